"""The schema of the PostgreSQL store, and the errors of its server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from tests.equipment.postgres_server import PATIENCE_S, Server, held, new_name, schema_of, wait_until

from detent.clock import monotonic
from detent.errors import StoreMismatch, StoreUnavailable, UsageError
from detent.model import Ask
from detent.rules.outcomes import CLAIM_GONE
from detent.stores.postgres.link import Links
from detent.stores.postgres.schema import VERSION
from detent.stores.postgres.store import PostgresStore
from detent.stores.registry import open_store
from detent.testing.stores.fixtures import Asker, fire, found, keys, renew

THREADS = 8


# The schema.


def test_processes_that_open_an_empty_database_together_create_one_store(server: Server) -> None:
    name, gate = new_name(), threading.Barrier(THREADS)

    def open_and_put(number: int) -> str:
        with closing(PostgresStore(server.url, name)) as store:
            gate.wait(PATIENCE_S)
            store.put([fire(f"a.b@{number}")])
            return store.look("a").epoch

    with ThreadPoolExecutor(THREADS) as pool:
        epochs = set(pool.map(open_and_put, range(THREADS)))
    assert len(epochs) == 1
    assert server.sql(f"SELECT count(*) FROM {name}.fires") == [(THREADS,)]


def test_opening_an_existing_store_changes_nothing(server: Server, store: PostgresStore) -> None:
    store.put([fire("a.b@1")])
    look = f"SELECT oid FROM pg_proc WHERE pronamespace = '{schema_of(store)}'::regnamespace ORDER BY oid"
    before = server.sql(look)
    with closing(PostgresStore(server.url, schema_of(store))) as again:
        assert found(again) == ["a.b@1"]
    assert server.sql(look) == before


def test_a_schema_that_is_too_new_is_refused_with_what_to_do(server: Server, store: PostgresStore) -> None:
    store.put([fire("a.b@1")])
    server.sql(f"UPDATE {schema_of(store)}.schema_version SET number = {VERSION + 2}, oldest = {VERSION + 1}")
    store.close()
    with pytest.raises(StoreMismatch, match=rf"has version {VERSION + 2}, .* upgrade detent"):
        store.put([fire("a.b@2")])


def test_a_newer_schema_that_allows_this_version_is_used(server: Server, store: PostgresStore) -> None:
    store.put([fire("a.b@1")])
    server.sql(f"UPDATE {schema_of(store)}.schema_version SET number = {VERSION + 1}")
    store.close()
    assert found(store) == ["a.b@1"]


def test_a_schema_of_another_program_is_refused_and_left_alone(server: Server, store: PostgresStore) -> None:
    server.sql(f"CREATE SCHEMA {schema_of(store)}; CREATE TABLE {schema_of(store)}.theirs (one integer)")
    with pytest.raises(StoreMismatch, match="belongs to another program"):
        store.put([fire("a.b@1")])
    assert server.sql(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema_of(store)}'") == [(1,)]


def test_a_user_needs_only_its_own_schema(server: Server) -> None:
    name, poor = new_name(), new_name()
    server.sql(
        f"CREATE ROLE {name} LOGIN; CREATE SCHEMA {name} AUTHORIZATION {name}; CREATE ROLE {poor} LOGIN"
    )
    with closing(PostgresStore(server.url.replace("postgres@", f"{name}@"), name)) as store:
        assert store.put([fire("a.b@1")]) == [True]
        assert keys(Asker(store).claim()) == ["a.b@1"]
    refused = pytest.raises(StoreMismatch, match="GRANT CREATE ON DATABASE")
    with closing(PostgresStore(server.url.replace("postgres@", f"{poor}@"), poor)) as store, refused:
        store.put([fire("a.b@1")])


def test_a_dropped_schema_is_created_again_in_quarantine(server: Server, store: PostgresStore) -> None:
    store.put([fire("a.b@1")])
    epoch, old = store.look("a").epoch, Asker(store).claim_one()
    server.sql(f"DROP SCHEMA {schema_of(store)} CASCADE")
    assert store.put([fire("a.b@1")]) == [True]
    assert store.look("a").epoch != epoch
    granted = Asker(store, "n2").ask()
    assert granted.claims == ()
    assert 25 < granted.next_in_s <= 30
    assert renew(store, old) == CLAIM_GONE


@pytest.mark.parametrize("prefix", ["Detent", "7up", "a-b", 'a"b', "pg_mine", "x" * 64])
def test_a_prefix_that_is_not_a_schema_name_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError, match=r"bad key_prefix .* it names the schema"):
        open_store("postgresql://nobody@localhost/x", key_prefix=prefix)


# Words for what goes wrong.


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql://me:s3cret@127.0.0.1:1/x", StoreUnavailable),
        ("postgres://127.0.0.1:1/x?user=me&password=s3cret", StoreUnavailable),
        ("postgresql://me:s3cret@s3cret@127.0.0.1:1/x", UsageError),
        ("postgresql://me:s3cret/s3cret@127.0.0.1:1/x", UsageError),
        ("postgresql://me:s3cret@127.0.0.1:1/x?s3cret", UsageError),
    ],
)
def test_no_message_holds_a_password(url: str, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        open_store(url).look("a")
    assert "s3cret" not in str(raised.value)
    assert "postgresql:" in str(raised.value)


def test_a_wait_for_a_reply_times_out(server: Server) -> None:
    links, began = Links(server.url, "none", lambda link: None), monotonic()
    with pytest.raises(StoreUnavailable, match="in time"), links.link(0.3) as link:
        link.value("SELECT pg_sleep(60)")
    assert monotonic() - began < PATIENCE_S
    assert not link.is_open


def test_the_server_times_out_before_its_client(store: PostgresStore) -> None:
    with pytest.raises(StoreUnavailable, match="took too long"), store.driver.hand("a"):
        store.driver.look("a", [])
        store.driver._mine.open.session.rows("SELECT pg_sleep(60)")


def test_an_ask_whose_backend_was_killed_is_repeated_with_its_number(
    server: Server, store: PostgresStore
) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    ask, schema = Ask("a", "n1", 1, limit=1), schema_of(store)
    with psycopg.connect(server.url) as other, ThreadPoolExecutor(1) as pool:
        other.execute(f"LOCK TABLE {schema}.asks")
        call = pool.submit(store.claim, ask)
        ((pid,),) = wait_until(lambda: held(server))
        server.sql("SELECT pg_terminate_backend(%s)", pid)
        assert isinstance(call.exception(PATIENCE_S), StoreUnavailable)
    first = store.claim(ask).claims
    assert [claim.fire.key for claim in first] == ["a.b@1"]
    ours = f"FROM pg_stat_activity WHERE application_name = '{schema}'"
    server.sql(f"SELECT pg_terminate_backend(pid) {ours}")
    wait_until(lambda: not server.sql(f"SELECT pid {ours}"))
    again = store.claim(ask).claims  # it finds its connection gone, and opens another
    assert [(claim.fire.key, claim.fence) for claim in again] == [("a.b@1", first[0].fence)]
