"""An ask on the SQLite store reads only what it needs, and behaves like the in-memory store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores.sqlite_pair import Pair, open_pair, rows

from detent.model import Ask, Policy, Query, Report
from detent.rules.decide import SETTLED_MAX as DISPOSITIONS_MAX
from detent.rules.outcomes import JOB_REMOVED, NEWER_INSTANT, paused, replaced_by
from detent.stores.sql.columns import record_of
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import DONE, GIVEN_BACK, START, Asker, FakeClock, finish, fire, later

MANY = DISPOSITIONS_MAX + 60


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with open_pair(tmp_path / "store.db") as one:
        yield one


def test_a_disposition_behind_more_fires_than_can_run_is_found(pair: Pair) -> None:
    pair.put(*(fire(f"a.b{number}@1") for number in range(9)), fire("a.z@1", start_by=later(-5)))
    assert [key for key, disposition in pair.ask(1, limit=2) if disposition] == ["a.z@1"]


def test_a_fire_behind_more_dispositions_than_are_granted_is_found(pair: Pair) -> None:
    pair.put(*(fire(f"a.b{number:03}@1", start_by=later(-5)) for number in range(MANY)), fire("a.z@1"))
    granted = pair.ask(1, limit=2)
    assert [key for key, disposition in granted if not disposition] == ["a.z@1"]
    assert len(granted) == DISPOSITIONS_MAX + 1
    assert len(pair.ask(2, limit=2)) == MANY - DISPOSITIONS_MAX


def test_a_paused_schedule_is_settled_for_a_full_node(pair: Pair) -> None:
    for store in pair.stores:
        store.set_jobs("a", 0, {"a.b": "1", "a.z": "1"})
        store.note("a", "pause/a.z", "for now")
    pair.put(fire("a.b@1"), fire("a.b@2"), fire("a.z@3", origin="schedule"))
    assert dict(pair.ask(1, limit=1))["a.z@3"] == paused("for now")


def test_a_schedule_without_a_job_is_settled_for_a_full_node(pair: Pair) -> None:
    pair.put(fire("a.b@1"), fire("a.b@2"), fire("a.z@3", origin="schedule"))
    assert dict(pair.ask(1, limit=1))["a.z@3"] == JOB_REMOVED


def test_a_late_instant_without_a_job_is_settled(pair: Pair) -> None:
    pair.put(*(fire(f"a.z@{at}", origin="schedule", due_at=later(at)) for at in (-300, -200)))
    removed = JOB_REMOVED
    assert dict(pair.ask(1, limit=3)) == {"a.z@-300": removed, "a.z@-200": removed}


def test_an_older_late_instant_is_settled_for_a_full_node(pair: Pair) -> None:
    for store in pair.stores:
        store.set_jobs("a", 0, {"a.z": "1"})
    pair.put(fire("a.b@1"), fire("a.b@2"))
    pair.put(*(fire(f"a.z@{at}", origin="schedule", due_at=later(at)) for at in (-300, -200)))
    assert dict(pair.ask(1, limit=1))["a.z@-300"] == NEWER_INSTANT


def test_a_full_node_still_decides_on_lanes(pair: Pair) -> None:
    pair.put(*(fire(f"a.q@{number}", "Queue") for number in (1, 2)), fire("a.r@1", "Replace"))
    pair.ask(1, limit=2)
    pair.put(fire("a.b@1"), fire("a.b@2"), fire("a.q@3", "Queue"), fire("a.r@2", "Replace", due_at=later(1)))
    assert [key for key, disposition in pair.ask(2, limit=1) if disposition] == ["a.q@3"]
    (held,) = (row for row in rows(pair.stores[1]) if row.fire.key == "a.r@1")
    assert held.stop == replaced_by("a.r@2")


def test_an_ask_without_room_and_dispositions_still_decides_on_lanes(pair: Pair) -> None:
    pair.put(fire("a.r@1", "Replace"))
    pair.ask(1, limit=1)
    pair.put(*(fire(f"a.b{number:03}@1", start_by=later(-5)) for number in range(MANY)))
    pair.put(fire("a.c@1"), fire("a.c@2"), fire("a.r@2", "Replace", due_at=later(1)))
    pair.ask(2, limit=1)
    (held,) = (row for row in rows(pair.stores[1]) if row.fire.key == "a.r@1")
    assert held.stop == replaced_by("a.r@2")


def test_a_full_node_respects_grace(pair: Pair) -> None:
    policy = Policy(concurrency="Forbid", grace_s=20.0)
    pair.put(fire("a.g@1", "Forbid", policy=policy))
    for store in pair.stores:
        finish(store, Asker(store, "n0").claim_one())
    pair.put(fire("a.b@1"), fire("a.b@2"), fire("a.g@2", "Forbid", policy=policy))
    pair.ask(1, limit=1)
    pair.clock.pass_time(20)
    assert pair.ask(2, limit=9) == [("a.b@2", None), ("a.g@2", None)]


def test_a_returned_disposition_is_found_for_a_full_node(pair: Pair) -> None:
    pair.put(fire("a.z@1", "Forbid"), fire("a.z@2", "Forbid"))
    for store in pair.stores:
        holder, skipped = Asker(store, "n0").claim()
        finish(store, skipped, GIVEN_BACK)
        finish(store, holder)
    pair.put(fire("a.b@1"), fire("a.b@2"))
    assert [key for key, disposition in pair.ask(1, limit=1) if disposition] == ["a.z@2"]


def test_a_job_that_a_node_cannot_run_does_not_block_the_queue(pair: Pair) -> None:
    pair.put(*(fire(f"a.b@{number}") for number in range(20)))
    pair.put(fire("a.b@z", start_by=later(-5)), fire("a.z@1"))
    granted = dict(pair.ask(1, limit=5, without=("a.b",)))
    assert set(granted) == {"a.b@z", "a.z@1"}


def test_expired_claims_come_before_due_fires(pair: Pair) -> None:
    pair.put(*(fire(f"a.b{number}@1") for number in range(4)))
    pair.ask(1, limit=2)
    pair.clock.pass_time(31)
    pair.put(fire("a.z@1"))
    granted = pair.ask(2, limit=3)
    assert [key for key, disposition in granted if disposition] == ["a.b0@1", "a.b1@1"]


def test_the_late_hook_of_a_fire_that_starts_in_the_same_ask_is_deleted(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(tmp_path / "store.db", clock.wall, clock.monotonic, lambda: "this boot")
    main = fire("a.b@1", policy=Policy(concurrency="Allow", hooks=("on_late",)))
    store.put([main, fire("a.b@1/on_late", origin="hook", first_at=START), fire("a.z@1")])
    claims = store.claim(Ask("a", "n1", 1, limit=2)).claims
    assert [claim.fire.key for claim in claims] == ["a.b@1", "a.z@1"]
    assert claims[1].fence == claims[0].fence + 1
    assert {row.fire.key for row in store.find(Query())} == {"a.b@1", "a.z@1"}
    store.close()


def test_an_ask_reads_few_of_many_fires_that_only_need_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.put([fire(f"a.b{number}@1", "Forbid") for number in range(3000)])
    read = 0

    def counted(row: tuple[object, ...]) -> object:
        nonlocal read
        read += 1
        return record_of(row)

    monkeypatch.setattr("detent.stores.sql.reads.record_of", counted)
    assert len(store.claim(Ask("a", "n1", 1, limit=10)).claims) == 10
    assert read <= 100
    store.close()


def test_pruning_deletes_in_batches(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(tmp_path / "store.db", clock.wall, clock.monotonic, lambda: "this boot")
    store.put([fire(f"a.b@{number}") for number in range(2300)])
    claims = store.claim(Ask("a", "n1", 1, limit=2300)).claims
    store.finish([Report(claim, DONE, tail=b"x") for claim in claims])
    assert store.prune("a", older_than_s=3600, keep=5) == 2295
    assert len(store.find(Query(limit=100))) == 5
    store.close()


def test_a_bulk_grant_equals_single_decisions(pair: Pair) -> None:
    for store in pair.stores:
        store.set_jobs("a", 0, {f"a.j{number:02}": "1" for number in range(40)})
        store.note("a", "pause/a.j13", "for now")
    forbid = Policy(claim_s=10.0)
    some = {
        5: {"policy": forbid._replace(claim_s=90.0)},
        9: {"policy": forbid._replace(hooks=("on_late",), late_after_s=30)},
        20: {"start_by": later(-5)},
        21: {"start_by": later(900)},
    }
    for number in range(40):
        pair.put(fire(f"a.j{number:02}@1", "Forbid", origin="schedule", **some.get(number, {})))
    pair.put(fire("a.j07@2", "Forbid"), fire("a.j30@2", "Replace"), fire("a.j31@0", "Allow"))
    granted = []
    for number, (limit, without) in enumerate(((4, ()), (5, ("a.j06",)), (12, ()), (1000, ())), 1):
        granted += pair.ask(number, limit, without=without)
    assert len(granted) == 42 and sum(disposition is None for _, disposition in granted) == 39
    assert pair.ask(5, limit=1000) == []


def test_expired_claims_are_settled_before_a_bulk_grant(pair: Pair) -> None:
    pair.put(*(fire(f"a.b{number}@1") for number in range(6)))
    pair.ask(1, limit=3)
    pair.clock.pass_time(31)
    assert sum(disposition is not None for _, disposition in pair.ask(2, limit=10)) == 3


def test_a_claim_of_a_bulk_grant_has_the_recorded_fire(pair: Pair) -> None:
    for number in range(50):
        due_at, start_by = later(-number / 1_000_003), later(60 + number / 7)
        policy = Policy(claim_s=10.0 if number % 20 else 90.0)
        fields = {"policy": policy, "payload": '{"a": "\\u00e9 ü"}'}
        pair.put(fire(f"a.b{number:02}@1", "Forbid", due_at=due_at, start_by=start_by, **fields))
    ask = Ask("a", "n1", 1, limit=100)
    ours, theirs = (store.claim(ask).claims for store in pair.stores)
    assert len(ours) == 50 and theirs == ours
