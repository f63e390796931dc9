"""Searches in the PostgreSQL store: how many fires the server reads, with a long history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.equipment.postgres_server import Session, new_name, rows_read, schema_of, shared_server

from detent.model import Query
from detent.stores.base import LOOK_MAX
from detent.stores.postgres.store import PostgresStore
from detent.testing.stores.fixtures import Asker, fire, later

MANY = 3 * LOOK_MAX


@pytest.fixture(scope="module")
def old() -> Iterator[PostgresStore]:
    """A long history of successes without statistics, then a running and a waiting fire."""
    with closing(PostgresStore(shared_server().url, new_name())) as one:
        one.put([fire("a.old@0"), fire("a.runs@1", due_at=later(-1)), fire("a.waits@1", due_at=later(-2))])
        Asker(one).claim_one(limit=1)
        name, names = schema_of(one), _columns(one)
        other = {"id": "n", "key": "'a.old@' || n", "due": "due + n", "state": "'over'", "over_at": "due + n"}
        copied = ", ".join(
            (other | {"outcome": "NULL", "kind": "'succeeded'"}).get(column, column) for column in names
        )
        shared_server().sql(
            f"INSERT INTO {name}.fires ({', '.join(names)}) SELECT {copied} FROM {name}.fires, "
            f"generate_series(1000, {MANY + 1000}) AS n WHERE key = 'a.waits@1'"
        )
        yield one


def _columns(store: PostgresStore) -> list[str]:
    look = f"""SELECT attname FROM pg_attribute WHERE attrelid = '{schema_of(store)}.fires'::regclass
               AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
    return [str(name) for (name,) in shared_server().sql(look)]


@pytest.mark.parametrize(
    "query",
    [
        Query(app="a", state="claimed"),
        Query(state="claimed", origins=("manual",)),
        Query(app="a", state="pending"),
        Query(job="a.waits", state="pending"),
        Query(keys=("a.waits@1", "a.runs@1", "a.none@1")),
        Query(app="a", limit=20),
    ],
)
def test_open_and_new_fires_are_found_without_reading_the_history(old: PostgresStore, query: Query) -> None:
    assert old.find(query)
    assert rows_read(old, lambda store: store.find(query)) < 100


@pytest.mark.parametrize(
    "query", [Query(app="a", kinds=("skipped", "succeeded"), jobs=("a.x", "a.y")), Query(app="nobody")]
)
def test_a_search_without_a_match_reads_a_bounded_part_of_the_history(
    old: PostgresStore, query: Query
) -> None:
    found = old.find(query)
    assert found == [] and found.before is not None
    assert rows_read(old, lambda store: store.find(query)) <= 2 * LOOK_MAX + 100


def test_apps_are_listed_without_reading_the_history(old: PostgresStore) -> None:
    assert old.apps() == ["a"]
    assert rows_read(old, lambda store: store.apps()) < 100


def test_newest_fires_and_tallies_are_read_by_an_index(old: PostgresStore) -> None:
    found = old.newest("a", ["a.waits", "a.runs"])
    assert [len(found[job]) for job in ("a.waits", "a.runs")] == [20, 1]
    assert rows_read(old, lambda store: store.newest("a", ["a.waits", "a.runs"])) < 100
    assert sum(one.fires for one in old.tally("a", later(3600), later(3660))) == 60
    assert rows_read(old, lambda store: store.tally("a", later(3600), later(3660))) < 200
    assert rows_read(old, lambda store: store.count("a")) < 100


def test_look_waits_for_no_transaction(old: PostgresStore) -> None:
    with closing(Session(shared_server(), old)) as session:
        session.store.set_jobs("a", 0, {"a.b": "r1"})  # not committed
        assert old.look("a").generation == 0
        session.roll_back()
