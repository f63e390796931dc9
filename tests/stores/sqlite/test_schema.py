"""A SQLite store of another version: brought up to date, and still good for the program that made it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from detent.model import Ask, Query, Rate, Report
from detent.stores.sqlite import schema
from detent.stores.sqlite.rows import FIRE, RECORD, record_values
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import DONE, fire, found


def older(path: Path, version: int) -> None:
    """A store as that version of the program made it, with a fire that is due and one that failed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for number, statements in schema._sections():
            for statement in statements if number <= version else ():
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {version}")
        put = f"INSERT INTO fires (app, run_at, {', '.join(FIRE)}, state, outcome) VALUES "
        for key, *ended in (("a.b@1", "pending", None), ("a.b@2", "over", "failed exit 1")):
            values = (*record_values(fire(key), 0.0), *ended)
            db.execute(f"{put} ({', '.join('?' * len(values))})", values)


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_an_older_version_is_upgraded_and_keeps_its_data(version: int, tmp_path: Path) -> None:
    older(tmp_path / "store.db", version)
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        (claim,) = store.claim(Ask("a", "n1", 1)).claims
        store.finish([Report(claim, DONE, result="[1]")])
        (row,) = store.find(Query(key="a.b@1"))
        assert [attempt.result for attempt in row.attempts] == ["[1]"]
        assert found(store, queues=("default",), kinds=("failed",)) == ["a.b@2"]
        assert store.charge("a", "mail", Rate(1)).used == 1


def test_a_program_of_the_version_before_works_beside_this_one(tmp_path: Path) -> None:
    """It refuses a file by `user_version`, and writes rows by the columns that it knows."""
    older(tmp_path / "store.db", schema.OLDEST)
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        assert store.put([fire("a.c@1")]) == [True]
        with closing(sqlite3.connect(tmp_path / "store.db")) as db:
            assert db.execute("PRAGMA user_version").fetchone() == (schema.OLDEST,)
            db.execute(RECORD, record_values(fire("a.d@1"), 0.0))
            db.execute("UPDATE fires SET state = 'over', outcome = 'failed exit 1' WHERE key = 'a.c@1'")
            db.execute("INSERT INTO notes VALUES ('a', 'pause/a.b', 'now', 0, NULL, NULL)")
            db.commit()
        assert found(store, state="over", kinds=("failed",)) == ["a.c@1", "a.b@2"]
        assert [claim.fire.key for claim in store.claim(Ask("a", "n1", 1, 9)).claims] == ["a.b@1", "a.d@1"]
