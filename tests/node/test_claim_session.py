"""Claims from blocking code: an ask whose answer is lost, an end that cannot be reported, a renewal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.equipment.proxy import Proxy
from tests.equipment.redis_server import RedisServer, open_for

from detent.clock import StoreClock, boottime
from detent.errors import StoreUnavailable
from detent.model import Ask, Claim, End, Fire, Outcome, Policy, Query, Report, Verdict
from detent.node.claim_session import RETRY_S, ClaimSession, RenewalThread
from detent.rules.settling import report
from detent.runners.lifeline import Lifeline
from detent.stores.base import Store

PATIENCE_S = 20.0
DONE = Outcome("succeeded")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.end()


@pytest.fixture
def way(server: RedisServer) -> Iterator[Proxy]:
    server.call("FLUSHALL")
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def store(way: Proxy, tmp_path: Path) -> Iterator[Store]:
    with closing(open_for(way.url, tmp_path)) as one:
        yield one


class Watched(Lifeline):
    def __init__(self) -> None:
        super().__init__(trusted_by=0.0)
        self.extended, self.stopped = threading.Event(), threading.Event()

    def extend(self, trusted_by: float) -> None:
        super().extend(trusted_by)
        self.extended.set()

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        super().stop(why)
        self.stopped.set()


def session_of(store: Store, clock: StoreClock | None = None) -> ClaimSession:
    return ClaimSession(store, Ask("a", "host.1", number=0), clock or StoreClock())


def put(store: Store, *numbers: int) -> None:
    now = store.look("a").now
    store.put([Fire(f"a.j#{n}", "a.j", now, policy=Policy(claim_s=30.0), origin="push") for n in numbers])


def one_claim(session: ClaimSession) -> Claim:
    put(session.store, 1)
    (claim,) = session.claim().grants.claims
    return claim


def done(claim: Claim) -> Report:
    return report(claim, Verdict(DONE), End(DONE), claim.expires_at)


def test_an_ask_whose_answer_is_lost_gets_the_same_answer_again(store: Store, way: Proxy) -> None:
    session, before = session_of(store), boottime()
    put(store, 1)
    way.lose(1, to=b'"ask":[')
    grants, sent, _ = session.claim()
    assert (way.lost, [claim.attempt for claim in grants.claims]) == (1, [1])
    assert sent >= before
    assert session.claim().grants.claims == ()


def test_an_end_whose_answer_is_lost_is_reported_again(store: Store, way: Proxy) -> None:
    session = session_of(store)
    report = done(one_claim(session))
    way.lose(1)
    assert session.finish(report) == report.verdict
    assert way.lost == 1


def test_an_end_is_reported_until_its_claim_can_have_expired(store: Store, way: Proxy) -> None:
    seconds, waits = [100.0], list[float]()

    def wait(pause_s: float) -> None:
        waits.append(pause_s)
        seconds[0] += pause_s

    session = ClaimSession(store, Ask("a", "host.1", number=0), StoreClock(lambda: seconds[0]), wait)
    report = done(one_claim(session))
    way.refuse()
    with pytest.raises(StoreUnavailable):
        session.finish(report, give_up_at=102.0)
    assert waits == [RETRY_S] * 4
    way.restore()
    assert session.finish(report) == report.verdict


def test_threads_that_share_a_session_get_every_due_fire(store: Store) -> None:
    """An ask that a newer one overtakes would be granted nothing."""
    session, total = session_of(store), 40
    put(store, *range(total))
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(session.claim) for _ in range(total)]
        granted = [claim.fire.key for one in answers for claim in one.result(PATIENCE_S).grants.claims]
    assert sorted(granted) == sorted(f"a.j#{n}" for n in range(total))


def test_a_renewal_extends_trust_and_stops_work_that_was_cancelled(store: Store) -> None:
    session = session_of(store)
    claim = one_claim(session)
    lifeline = Watched()
    renewal = RenewalThread(store, claim, lifeline, after_s=0.0)
    assert lifeline.extended.wait(PATIENCE_S)
    store.cancel(claim.fire.key, "by hand")
    assert lifeline.stopped.wait(PATIENCE_S)
    renewal.join()
    assert renewal.is_over
    assert store.find(Query(key=claim.fire.key))[0].state == "claimed"
