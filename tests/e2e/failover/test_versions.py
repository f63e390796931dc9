"""Two versions of the program on one store."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.failover.launches import assert_sound, assert_unbroken, repeated, running
from tests.equipment.fleet import SOURCES, wait_for
from tests.equipment.postgres_server import shared_server
from tests.equipment.redis_server import RedisServer

from detent.stores.base import Store
from detent.stores.postgres import schema
from detent.stores.postgres.store import PostgresStore
from detent.stores.registry import open_store
from detent.testing.stores.fixtures import Asker, finish, fire, found, keys

THREADS = 4
POLICY = '{"concurrency":"Allow","colour":"red","retries":{"max_attempts":2,"mood":"calm"}}'


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.end()


# What a newer version wrote.


def test_unknown_fields_of_a_newer_node_are_kept_and_ignored_in_redis(
    redis_server: RedisServer,
) -> None:
    key = "{detent:a}:texts"
    with closing(open_store(redis_server.url)) as store:
        store.put([fire("a.b@1")])
        own, shared = map(json.loads, redis_server.call("HGET", key, "a.b@1").split(b"\n"))
        shared[2] = POLICY
        text = "\n".join(json.dumps([*values, "red"]) for values in (own, shared))
        redis_server.call("HSET", key, "a.b@1", text)
        _settle(store)
        assert redis_server.call("HGET", key, "a.b@1").decode() == text


def test_unknown_fields_of_a_newer_node_are_kept_and_ignored_in_postgresql() -> None:
    with closing(PostgresStore(shared_server().url, f"newer_{os.getpid()}")) as store:
        store.put([fire("a.b@1")])
        table = f"newer_{os.getpid()}.fires"
        shared_server().sql(f"ALTER TABLE {table} ADD COLUMN colour text DEFAULT 'red'")
        shared_server().sql(f"UPDATE {table} SET policy = %s", POLICY)
        store.close()
        _settle(store)
        assert shared_server().sql(f"SELECT policy, colour FROM {table}") == [(POLICY, "red")]


def _settle(store: Store) -> None:
    claim = Asker(store).claim_one()
    assert (claim.fire.policy.concurrency, claim.fire.policy.retries.max_attempts) == ("Allow", 2)
    assert finish(store, claim) is not None
    assert found(store) == ["a.b@1"]


# An older schema.


def test_an_older_schema_is_migrated_once_and_keeps_its_fires(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, gate = f"older_{os.getpid()}", threading.Barrier(THREADS)
    with closing(PostgresStore(shared_server().url, name)) as older:
        older.put([fire("a.b@1"), fire("a.c@1")])
        claim = Asker(older).claim_one(limit=1)
        step = "ALTER TABLE fires ADD COLUMN colour text; CREATE TABLE colours ();"  # a second time it fails
        newest = schema.VERSION + 1
        monkeypatch.setattr(schema, "VERSION", newest)
        (tmp_path / "tables.sql").write_text(f"-- version 1\nnot again;\n-- version {newest}\n{step}\n")
        monkeypatch.setattr(schema, "FILES", (tmp_path / "tables.sql",))

        def upgrade(number: int) -> list[str]:
            gate.wait(30)
            with closing(PostgresStore(shared_server().url, name)) as newer:
                return found(newer)

        with ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(upgrade, range(THREADS))) == [["a.c@1", "a.b@1"]] * THREADS
        look = f"SELECT number, oldest FROM {name}.schema_version"
        assert shared_server().sql(look) == [(newest, schema.OLDEST)]
        assert finish(older, claim) is not None, "who was there before goes on"
        assert keys(Asker(older, "n2").claim()) == ["a.c@1"]


# Nodes of two versions.


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the release before or, as long as there is none, of the commit before."""
    folder, repository = tmp_path_factory.mktemp("before"), SOURCES.parent
    look = "git describe --tags --abbrev=0 2>/dev/null || git rev-parse HEAD~1"
    found = subprocess.run(look, shell=True, cwd=repository, capture_output=True, text=True)
    if found.returncode:
        pytest.skip("needs the history of the sources, in git, for a version before this one")
    archive = f"git archive {found.stdout.strip()} src | tar -x -C {folder}"
    subprocess.run(archive, shell=True, cwd=repository, check=True)
    return folder / "src"


@pytest.fixture(params=["redis", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "redis":
        server = RedisServer(tmp_path / "redis")
        yield server.url
        server.end()
    else:
        name = f"versions_{os.getpid()}"
        shared_server().sql(f"CREATE DATABASE {name}")
        yield shared_server().url.replace("/postgres?", f"/{name}?")


def test_a_node_of_the_previous_version_works_beside_the_current_one(
    url: str, before: Path, tmp_path: Path
) -> None:
    with running(tmp_path, url, url, paths=(str(before), str(SOURCES))) as fleet:
        both = {node.instance for node in fleet.nodes}
        wait_for(lambda: {one.node for one in fleet.witness.starts()} == both, what="launches by both")
        older, newer = fleet.nodes
        newer.kill()
        fleet.wait_more(2)
        older.end()
        assert repeated(fleet) == []
        assert_sound(fleet)
        assert_unbroken(fleet)
