"""The rules of receipts, in each store."""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.equipment.fleet import wait_for

from detent.errors import DetentError, StoreMismatch, StoreUnavailable
from detent.receive.dedupe import Renewals
from detent.receive.messages import Reply
from detent.receive.receipts.base import (
    ANSWER_MAX,
    Arrival,
    BeginResult,
    ReceiptOptions,
    Receipts,
    encode_reply,
    open_receipts,
    replay,
)

TERMS = ReceiptOptions(lease_s=600, keep_s=86_400, is_fenced=False)
FENCED = TERMS._replace(is_fenced=True)
SHORT = TERMS._replace(lease_s=0.2)
OURS = BeginResult("ours")
DONE = encode_reply(Reply(200, b'{"sent": 3}', "application/json"))


@pytest.fixture
def opened(place: str) -> Iterator[Callable[[], Receipts]]:
    """Opens receipts of one place, as another process would."""
    made: list[Receipts] = []

    def open_one() -> Receipts:
        made.append(open_receipts(place))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


@pytest.fixture
def receipts(opened: Callable[[], Receipts]) -> Receipts:
    return opened()


@pytest.fixture
def app() -> str:
    """Of this test only: stores are shared."""
    return f"app-{secrets.token_hex(6)}"


def arriving(app: str, key: str = "k", fence: int = 1, job: str = "job") -> Arrival:
    return Arrival(app, job, key, fence, secrets.token_hex(8))


def test_the_first_caller_gets_the_fire_and_the_second_learns_that_it_runs(
    receipts: Receipts, app: str
) -> None:
    assert receipts.begin(arriving(app), TERMS) == OURS
    standing = receipts.begin(arriving(app), TERMS)
    assert standing.kind == "running" and 590 < standing.left_s <= 600
    assert receipts.begin(arriving(app, key="another"), TERMS) == OURS
    assert receipts.begin(arriving(app, job="another"), TERMS) == OURS


def test_a_handled_fire_always_gets_the_same_answer(receipts: Receipts, app: str) -> None:
    first = arriving(app)
    receipts.begin(first, TERMS)
    receipts.finish(first, DONE, TERMS)
    receipts.finish(first, encode_reply(Reply(204)), TERMS)  # repeated: the first one stands
    receipts.release(first)
    assert receipts.begin(arriving(app), TERMS) == BeginResult("handled", answer=DONE)
    assert replay(DONE).body == b'{"sent": 3}' and replay(DONE).status == 200


def test_a_released_fire_is_free_at_once(receipts: Receipts, app: str) -> None:
    first = arriving(app)
    receipts.begin(first, TERMS)
    receipts.release(first)
    assert receipts.begin(arriving(app), TERMS) == OURS


def test_a_lease_that_is_not_renewed_ends_and_its_owner_cannot_change_it(
    receipts: Receipts, app: str
) -> None:
    first, second = arriving(app), arriving(app)
    assert receipts.begin(first, SHORT) == OURS
    wait_for(lambda: receipts.begin(second, TERMS) == OURS, what="the end of the lease")
    receipts.renew([first], SHORT._replace(lease_s=0.01))
    receipts.finish(first, DONE, TERMS)
    receipts.release(first)
    standing = receipts.begin(arriving(app), TERMS)
    assert standing.kind == "running" and standing.left_s > 500
    receipts.finish(second, encode_reply(Reply(204)), TERMS)
    assert replay(receipts.begin(arriving(app), TERMS).answer).status == 204


def test_a_lease_that_is_renewed_goes_on(receipts: Receipts, app: str) -> None:
    first = arriving(app)
    receipts.begin(first, SHORT._replace(lease_s=5))
    receipts.renew([first], TERMS)
    assert receipts.begin(arriving(app), TERMS).left_s > 500


def test_a_thread_renews_held_leases_until_they_are_dropped(receipts: Receipts, app: str) -> None:
    first, terms = arriving(app), TERMS._replace(lease_s=1.5)
    receipts.begin(first, terms)
    renewals = Renewals(receipts, terms)
    renewals.hold(first)
    left = [receipts.begin(arriving(app), terms).left_s]

    def is_renewed() -> bool:
        left.append(receipts.begin(arriving(app), terms).left_s)
        assert left[-1] > 0, "the lease ended although it was held"
        return left[-1] > left[-2]

    wait_for(is_renewed, what="a renewal")
    renewals.drop(first)
    wait_for(lambda: receipts.begin(arriving(app), terms) == OURS, what="the end of the lease")
    wait_for(lambda: renewals._thread is None, what="the end of the thread")


def test_an_older_fence_is_stale_for_its_job_only(receipts: Receipts, app: str) -> None:
    newer = arriving(app, "new", fence=2**53 - 1)
    assert receipts.begin(newer, FENCED) == OURS
    assert receipts.begin(arriving(app, "old", fence=2**53 - 2), FENCED) == BeginResult(
        "stale", newest=2**53 - 1
    )
    assert (
        receipts.begin(arriving(app, "old", fence=2**53 - 2), TERMS) == OURS
    )  # a caller that does not ask gets no result
    assert receipts.begin(arriving(app, "same", fence=2**53 - 1), FENCED) == OURS
    assert receipts.begin(arriving(app, "old", fence=1, job="another"), FENCED) == OURS


def test_a_fence_counts_from_its_first_arrival_and_a_handled_fire_still_gets_its_answer(
    receipts: Receipts, app: str
) -> None:
    first = arriving(app, fence=5)
    receipts.begin(first, FENCED)
    assert receipts.begin(arriving(app, fence=9), FENCED).kind == "running"  # seen, though not run
    assert receipts.begin(arriving(app, "next", fence=8), FENCED) == BeginResult("stale", newest=9)
    assert receipts.begin(arriving(app, fence=5), FENCED).kind == "stale"
    receipts.finish(first, DONE, FENCED)
    assert receipts.begin(arriving(app, fence=5), FENCED).kind == "handled"


def test_exactly_one_of_many_concurrent_callers_gets_the_fire(
    opened: Callable[[], Receipts], app: str
) -> None:
    threads = 8
    places, gate = [opened() for _ in range(4)], threading.Barrier(threads)

    def race(number: int) -> list[str]:
        gate.wait(30)
        place = places[number % len(places)]
        return [place.begin(arriving(app, f"k{i}", fence=number), TERMS).kind for i in range(10)]

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(race, range(threads)))
    for kinds in zip(*results, strict=True):
        assert sorted(kinds) == ["ours"] + ["running"] * (threads - 1)


def test_receipts_are_deleted_after_their_time(opened: Callable[[], Receipts], app: str) -> None:
    brief, first, receipts = TERMS._replace(keep_s=0.05), arriving(app), opened()
    assert receipts.begin(arriving(app, "kept"), TERMS) == OURS
    receipts.begin(first, brief)
    receipts.finish(first, DONE, brief)
    # Tables are pruned with the first call of a process, and with some of the later ones.
    wait_for(lambda: opened().begin(arriving(app), brief) == OURS, what="forgetting")
    assert opened().begin(arriving(app, "kept"), TERMS).kind == "running"


def test_the_fence_of_an_unused_job_is_deleted(place: str, app: str) -> None:
    brief = FENCED._replace(keep_s=1e-6)

    def is_forgotten() -> bool:
        """Tables are pruned with the first call of a process."""
        job = secrets.token_hex(4)
        with closing(open_receipts(place)) as first, closing(open_receipts(place)) as second:
            assert first.begin(arriving(app, fence=9, job=job), FENCED) == OURS
            assert first.begin(arriving(app, "old", fence=8, job=job), FENCED).kind == "stale"
            second.begin(arriving(app, secrets.token_hex(4), job="another"), brief)
            return first.begin(arriving(app, "old", fence=8, job=job), FENCED) == OURS

    wait_for(is_forgotten, what="forgetting a fence")


def test_a_fire_that_runs_for_longer_than_receipts_are_kept_is_not_forgotten(place: str, app: str) -> None:
    brief, first = TERMS._replace(keep_s=1e-6), arriving(app)
    for owner in (first, arriving(app), arriving(app)):
        with closing(open_receipts(place)) as one:
            kind = one.begin(owner, brief).kind
            one.renew([first], brief)
    assert kind == "running"


def test_a_new_file_is_for_its_owner_only_and_an_existing_one_keeps_its_mode(
    tmp_path: Path, app: str
) -> None:
    old, new = tmp_path / "app.db", tmp_path / "receipts.db"
    old.touch(0o644)
    umask = os.umask(0o022)
    try:
        for file in (old, new):
            assert open_receipts(f"sqlite:///{file}").begin(arriving(app), TERMS) == OURS
    finally:
        os.umask(umask)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (old, new)] == [0o644, 0o600]


def test_a_long_answer_is_kept_without_its_body() -> None:
    assert replay(encode_reply(Reply(201, b"x" * ANSWER_MAX))).body == b"x" * ANSWER_MAX
    assert replay(encode_reply(Reply(201, b"x" * (ANSWER_MAX + 1)))) == Reply(
        201, b"", "text/plain; charset=utf-8", (("Idempotent-Replayed", "true"),)
    )
    assert replay(encode_reply(Reply(200, bytes(range(256))))).body == bytes(range(256))


def test_a_lease_of_another_boot_is_over(tmp_path: Path, app: str) -> None:
    file = tmp_path / "receipts.db"
    receipts = open_receipts(f"sqlite:///{file}")
    receipts.begin(arriving(app), TERMS)
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE detent_receive_receipts SET boot = 'the one before'")
    assert receipts.begin(arriving(app), TERMS) == OURS


def test_a_file_may_hold_other_tables_and_may_be_replaced(tmp_path: Path, app: str) -> None:
    file = tmp_path / "app.db"
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("CREATE TABLE theirs (x)")
    receipts = open_receipts(f"sqlite:///{file}")
    assert receipts.begin(arriving(app), TERMS) == OURS
    file.unlink()
    with pytest.raises(StoreUnavailable):
        receipts.begin(arriving(app), TERMS)  # once: then it knows
    assert receipts.begin(arriving(app), TERMS) == OURS


def test_an_unusable_store_of_receipts_is_reported_without_its_password(tmp_path: Path, app: str) -> None:
    (tmp_path / "text.db").write_text("no database at all, but a text of some length\n" * 50)
    places: dict[str, type[DetentError]] = {
        f"sqlite:///{tmp_path}/nowhere/r.db": StoreUnavailable,
        f"sqlite:///{tmp_path}/text.db": StoreMismatch,
        "redis://user:hidden@127.0.0.1:1": StoreUnavailable,
        "postgresql://user:hidden@127.0.0.1:1/db": StoreUnavailable,
    }
    for url, error in places.items():
        with pytest.raises(error) as raised:
            open_receipts(url).begin(arriving(app), TERMS)
        assert "hidden" not in str(raised.value)
