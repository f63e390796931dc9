"""Queues on the SQLite store behave like those of the in-memory store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.stores.sqlite_pair import Pair, open_pair, rows

from detent.model import Ask, Fire, Outcome, Policy, Query, Rate, Report
from detent.rules.decide import DELAYS_MAX
from detent.rules.rates import rate_text, with_priorities
from detent.stores.base import RATE
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import DONE, GIVEN_BACK, Asker, finish, fire, later

MAIL = with_priorities(["mail"])
SMTP = Policy("Allow", breaker="smtp", breaker_threshold=2, breaker_cooldown_s=30.0)
REFUSED = DONE._replace(outcome=Outcome("failed", "refused", "backend"))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with open_pair(tmp_path / "store.db") as one:
        yield one


def message(number: int, queue: str = "mail", **fields: Any) -> Fire:
    return fire(f"a.b@{number:04}", origin="push", queue=queue, **fields)


def open_breaker(pair: Pair) -> None:
    pair.put(*(fire(f"a.first@{number}", origin="push", policy=SMTP, queue="mail") for number in range(2)))
    for store in pair.stores:
        for claim in Asker(store, "n0").claim(queues=MAIL):
            finish(store, claim, REFUSED)


def test_bulk_grants_of_queues_equal_single_decisions(pair: Pair) -> None:
    open_breaker(pair)
    for store in pair.stores:
        store.note("a", RATE + "mail", rate_text(Rate(25, 60.0)))
        store.note("a", RATE + "sms", rate_text(Rate(2, 20.0, by_key=True)))
    some = {7: {"policy": SMTP}, 11: {"start_by": later(-5)}, 12: {"policy": Policy("Allow", claim_s=90.0)}}
    for number in range(60):
        queue = (*MAIL, "sms", "plain")[number % 5]
        kept = {"policy": Policy("Allow", rate_key=f"{number % 4}")} if queue == "sms" else {}
        pair.put(message(number, queue, **(kept | some.get(number, {}))))
    granted = list[tuple[str, Outcome | None]]()
    for number, limit in enumerate((3, 10, 40, 1000, 1000), 1):
        granted += pair.ask(number, limit, queues=(*MAIL, "sms", "plain"))
        pair.clock.pass_time(7)
    assert len(granted) == 25 + 1 + 12 + 8 and sum(disposition is not None for _, disposition in granted) == 1
    pair.clock.pass_time(60)
    assert pair.ask(6, limit=1000, queues=("plain", "sms", *MAIL))


def test_a_queue_closed_by_its_rate_hides_no_disposition(pair: Pair) -> None:
    for store in pair.stores:
        store.note("a", RATE + "mail", rate_text(Rate(2, 60.0)))
    pair.put(*(message(number) for number in range(9)), message(10, start_by=later(-5)))
    pair.put(fire("a.h@1/on_failure", origin="hook", queue="mail"))
    assert [key for key, _ in pair.ask(1, limit=9, queues=MAIL)] == [
        "a.b@0000", "a.b@0001", "a.b@0010", "a.h@1/on_failure",
    ]  # fmt: skip


def test_fires_after_a_bulk_grant_are_found_whenever_they_were_put(pair: Pair) -> None:
    for step in range(8):
        pair.clock.pass_time(2.4e-7)  # the clock tells less than a microsecond
        keys = [f"a.b@{step}-{number}" for number in range(4)]
        pair.put(*(fire(key) for key in keys[:2]), fire(keys[2], start_by=later(-5)), fire(keys[3]))
        assert len(pair.ask(2 * step + 1, limit=2)) == 3
        assert len(pair.ask(2 * step + 2, limit=2)) == 1


def test_an_open_breaker_delays_some_hundred_fires_and_blocks_no_other_queue(pair: Pair) -> None:
    open_breaker(pair)
    _, store = pair.stores
    store.put([message(number, policy=SMTP) for number in range(2 * DELAYS_MAX + 9)])
    store.put([message(9000, "other")])
    node, now = Asker(store), store.look("a").now
    for asked in (1, 2, 3):
        grants = node.ask(queues=(*MAIL, "other"))
        assert [claim.fire.queue for claim in grants.claims] == ["other"] * (asked == 1)
        later_ones = [
            one for one in rows(store) if one.run_at and one.run_at > now and one.state == "pending"
        ]
        assert len(later_ones) == min(asked * DELAYS_MAX, 2 * DELAYS_MAX + 9)
        assert (grants.next_in_s < 1) == (asked < 3)


def test_bulk_delays_equal_single_decisions(pair: Pair) -> None:
    open_breaker(pair)
    slow = SMTP._replace(breaker_cooldown_s=45.0)
    odd: dict[int, dict[str, Any]] = {
        3: {"policy": Policy("Allow")},
        6: {"start_by": later(-5)},
        8: {"policy": slow},
        9: {"policy": slow},
        11: {"policy": SMTP._replace(concurrency="Queue"), "lane": "a.b"},
        14: {"policy": Policy("Allow")},
    }
    pair.put(*(message(number, **({"policy": SMTP} | odd.get(number, {}))) for number in range(17)))
    assert [key for key, _ in pair.ask(1, limit=1, queues=MAIL)] == ["a.b@0003", "a.b@0006"]
    assert [key for key, _ in pair.ask(2, limit=9, queues=MAIL)] == ["a.b@0014"]
    pair.clock.pass_time(30)
    for number in (3, 4):
        pair.ask(number, limit=9, queues=MAIL)
        pair.clock.pass_time(16)


def steps(store: SqliteStore, call: Callable[[], object]) -> int:
    """Hundreds of SQLite virtual machine steps that a call takes; a measure of what it reads."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1

    db = store.driver.file._mine.link.db
    db.set_progress_handler(step, 100)
    call()
    db.set_progress_handler(None, 0)
    return count


def test_unserved_fires_do_not_slow_down_an_ask(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        nodes, costs = [Asker(store, f"n{number}") for number in range(3)], list[list[int]]()
        for first in (0, 5000):
            store.put([message(first + number, "slow") for number in range(10 + first)])
            store.put([message(90_000 + first + number, "fast") for number in range(20)])
            asks: list[dict[str, Any]] = [
                {"queues": with_priorities(["fast"]), "limit": 9},
                {"queues": ("slow", "fast"), "limit": 1},
                {"queues": ("slow", "fast"), "limit": 0},
            ]
            pairs = zip(nodes, asks, strict=True)
            costs.append([steps(store, lambda one=one, ask=ask: one.ask(**ask)) for one, ask in pairs])
        few, many = costs
        assert all(cost < 2 * before + 10 for before, cost in zip(few, many, strict=True)), costs


def test_one_dead_letter_among_thousands_is_found_by_an_index(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.put([message(number) for number in range(3000)])
        claims = store.claim(Ask("a", "n1", 1, 3000, MAIL)).claims
        store.finish(
            [Report(claim, REFUSED if number == 1500 else DONE) for number, claim in enumerate(claims)]
        )
        query = Query("a", state="over", queues=MAIL, kinds=("failed", "lost", "timed-out"))
        assert [one.fire.key for one in store.find(query)] == ["a.b@1500"]
        assert steps(store, lambda: store.find(query)) < 20


# Reports in batches.


def test_a_batch_of_reports_is_settled_like_single_ones(pair: Pair) -> None:
    grace = Policy("Forbid", grace_s=9.0)
    pair.put(*(message(number) for number in range(8)), fire("a.g@1", "Forbid", policy=grace, queue="mail"))
    pair.put(fire("a.s@1", policy=SMTP, queue="mail"), message(10, start_by=later(-5)))
    asked = [
        sorted(
            store.claim(Ask("a", "n1", 1, 20, MAIL)).claims,
            key=lambda one: (one.disposition is not None, one.fire.key),
        )
        for store in pair.stores
    ]
    fields = {"status": 7, "took_s": 0.1234567, "tail": b"\xff", "result": '"\u00e9"'}
    for store, claims in zip(pair.stores, asked, strict=True):
        store.cancel(claims[2].fire.key)
        reports = [Report(claim, DONE, **fields) for claim in claims[:-1]]
        reports[3] = reports[3]._replace(verdict=REFUSED)
        reports[4] = reports[4]._replace(claim=claims[4]._replace(fence=claims[4].fence - 1))
        reports[5] = reports[5]._replace(verdict=GIVEN_BACK)
        reports[6] = reports[6]._replace(follow=(fire("a.f@1", origin="hook"),))
        reports.append(Report(claims[-1], DONE._replace(outcome=claims[-1].disposition or Outcome("lost"))))
        first = store.finish(reports)
        assert [verdict is None for verdict in first].index(True) == 4 and first.count(None) == 1
        assert store.finish(reports) == first
        twice = [Report(claims[0], DONE), Report(claims[4], REFUSED), Report(claims[4], DONE)]
        assert store.finish(twice) == [DONE, REFUSED, REFUSED]
    everything = [[store.find(Query(key=one.fire.key)) for one in rows(store)] for store in pair.stores]
    assert everything[1] == everything[0]
    assert pair.same(lambda store: list(store.claim(Ask("a", "n1", 2, 20, MAIL)).claims))


def test_a_fire_that_ends_may_be_followed_by_one_of_its_own_key(pair: Pair) -> None:
    again = message(1, policy=Policy("Allow", unique_s=60.0))
    pair.put(again)
    for store in pair.stores:
        (claim,) = store.claim(Ask("a", "n1", 1, 1, MAIL)).claims
        assert store.finish([Report(claim, REFUSED, tail=b"x", follow=(again,))]) == [REFUSED]
        (row,) = store.find(Query(key=again.key))
        assert (row.state, row.attempt, row.attempts) == ("pending", 0, ())
    assert pair.ask(2, 1, queues=MAIL) == [(again.key, None)]


def test_messages_wait_for_their_lane_like_with_single_decisions(pair: Pair) -> None:
    queue = {"policy": Policy("Queue"), "lane": "a.b"}
    pair.put(*(message(number, **queue) for number in range(12)), fire("a.b@x", "Queue", queue="mail"))
    for number in range(1, 5):
        assert [key for key, _ in pair.ask(number, limit=5, queues=MAIL) if key != "a.b@x"]
        for store in pair.stores:
            held = [one for one in rows(store) if one.state == "claimed"]
            for one in held:
                store.cancel(one.fire.key)
        pair.clock.pass_time(31)
