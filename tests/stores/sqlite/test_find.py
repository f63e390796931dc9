"""Searches in the SQLite store wait for no lock, and read a bounded number of fires."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from detent.model import Query
from detent.stores.base import LOOK_MAX
from detent.stores.sql.queries import LANE_IS_USED
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import Asker, fire, later

MANY = 3 * LOOK_MAX
STEPS = 100  # of SQLite's virtual machine, at a time


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    """A long history of successes, then a running and a waiting fire."""
    path = tmp_path_factory.mktemp("store") / "store.db"
    with closing(SqliteStore(path)) as one:
        one.put([fire("a.old@0"), fire("a.runs@1", due_at=later(-1)), fire("a.waits@1", due_at=later(-2))])
        Asker(one).claim_one(limit=1)
        with closing(sqlite3.connect(path)) as db:
            names = [name for (name,) in db.execute("SELECT name FROM pragma_table_info('fires')")]
            other = {
                "id": "n",
                "key": "'a.old@' || n",
                "due": "due + n",
                "state": "'over'",
                "over_at": "due + n",
            }
            other |= {"outcome": """'["succeeded", "", "work", ""]'""", "kind": "'succeeded'"}
            copied = ", ".join(other.get(name, name) for name in names)
            db.execute(
                "WITH RECURSIVE numbers(n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
                f" INSERT INTO fires SELECT {copied} FROM fires, numbers WHERE key = 'a.waits@1'",
                (MANY + 1000,),
            )
            db.commit()
        yield one


def test_look_waits_for_no_writer(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        adopted = store.set_jobs("a", 0, {"a.b": "r1"})
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            assert store.look("a").by_job == adopted.by_job
            assert store.apps() == ["a"]
            assert store.newest("a", ["a.b"]) == {"a.b": []}
            assert store.tally("a", adopted.now, adopted.now + timedelta(hours=1)) == []


@pytest.mark.parametrize(
    "query",
    [
        Query(app="a", state="claimed"),
        Query(state="claimed", origins=("manual",)),
        Query(app="a", state="pending", until=later(10**7)),
        Query(job="a.waits", state="pending"),
        Query(keys=("a.waits@1", "a.runs@1", "a.none@1")),
        Query(app="a", limit=20),
    ],
)
def test_open_and_new_fires_are_found_without_reading_the_history(old: SqliteStore, query: Query) -> None:
    assert old.find(query)
    assert steps_of(old, lambda: old.find(query)) < 10_000


def test_a_search_without_a_match_reads_a_bounded_part_of_the_history(old: SqliteStore) -> None:
    query = Query(app="a", kinds=("skipped", "succeeded"), jobs=("a.x", "a.y"))
    found = old.find(query)
    assert found == [] and found.before is not None
    assert steps_of(old, lambda: old.find(query)) < 100 * LOOK_MAX


def test_apps_are_listed_without_reading_the_history(old: SqliteStore) -> None:
    assert steps_of(old, old.apps) < 1_000


def test_newest_fires_and_tallies_are_read_by_an_index(old: SqliteStore) -> None:
    found = old.newest("a", ["a.waits", "a.runs"])
    assert [len(found[job]) for job in ("a.waits", "a.runs")] == [20, 1]
    assert steps_of(old, lambda: old.newest("a", ["a.waits", "a.runs"])) < 10_000
    assert sum(one.fires for one in old.tally("a", later(3600), later(3660))) == 60
    assert steps_of(old, lambda: old.tally("a", later(3600), later(3660))) < 10_000
    assert steps_of(old, lambda: old.count("a")) < 1_000


def steps_of(store: SqliteStore, act: Callable[[], object]) -> int:
    """The number of SQLite virtual machine steps that a call takes."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += STEPS
        return 0

    with store.driver.file.reading() as link:
        db = link.db
    db.set_progress_handler(count, STEPS)
    try:
        act()
    finally:
        db.set_progress_handler(None, 0)
    return counted


def test_whether_a_lane_is_used_is_found_by_indexes(tmp_path: Path) -> None:
    """Pruning asks it for each lane: a scan of all fires for each of them would take minutes."""
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        store.put([fire("a.b@0", "Forbid")])
        with closing(sqlite3.connect(tmp_path / "store.db")) as db:
            plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {LANE_IS_USED}", ("a.b", "a.b"))]
            used = [db.execute(LANE_IS_USED, (lane, lane)).fetchone() for lane in ("a.b", "a.c")]
    assert used == [(1,), None]
    assert [line for line in plan if "SCAN" in line] == []
