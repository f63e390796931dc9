"""People read the tables of the PostgreSQL store: a view with timestamps and texts, and comments."""

from __future__ import annotations

from datetime import datetime

from tests.equipment.postgres_server import Server, schema_of

from detent.model import Outcome, Report, Verdict
from detent.stores.postgres.store import PostgresStore
from detent.testing.stores.fixtures import DONE, Asker, finish, fire


def test_the_view_shows_each_attempt_with_timestamps_and_texts(server: Server, store: PostgresStore) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    ours, _ = Asker(store).claim()
    failed = Verdict(Outcome("failed", "exit 7", "work"), 0.0)
    store.finish([Report(ours, failed, status=7, took_s=2.5)])
    finish(store, Asker(store, "n2").claim_one(), DONE)
    columns = (
        "key, state, outcome, reason, cause, attempt, node, attempt_outcome, attempt_reason, status, took_s"
    )
    look = f"SELECT {columns} FROM {schema_of(store)}.fire_history ORDER BY key, attempt"
    assert server.sql(look) == [
        ("a.b@1", "over", "succeeded", "", "work", 1, "n1", "failed", "exit 7", 7, 2.5),
        ("a.b@1", "over", "succeeded", "", "work", 2, "n2", "succeeded", "", None, 0.0),
        ("a.c@1", "claimed", None, None, None, None, None, None, None, None, None),
    ]
    times = "due_at, over_at, started_at, ended_at"
    ((*found,),) = server.sql(f"SELECT {times} FROM {schema_of(store)}.fire_history WHERE attempt = 1")
    assert found[0] == ours.fire.due_at
    assert all(isinstance(at, datetime) for at in found)


def test_every_table_has_a_comment(server: Server, store: PostgresStore) -> None:
    store.notes("a")
    bare = server.sql(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'v') AND relnamespace = %s::regnamespace"
        " AND obj_description(oid, 'pg_class') IS NULL",
        schema_of(store),
    )
    assert bare == []
