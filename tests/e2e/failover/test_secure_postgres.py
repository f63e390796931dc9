"""PostgreSQL with TLS and a password, and behind a pooler."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from tests.e2e.failover.launches import assert_sound, assert_unbroken, repeated, running
from tests.equipment.certificates import Authority
from tests.equipment.postgres_server import has_tls, new_server, server_user, shared_server, wait_until
from tests.equipment.redis_server import free_port

from detent.errors import StoreMismatch
from detent.stores.registry import open_store
from detent.testing.stores.fixtures import Asker, fire, keys

HBA = """
local   all all      trust
hostssl all postgres 127.0.0.1/32 trust
hostssl all me       127.0.0.1/32 scram-sha-256
"""


class Secured(NamedTuple):
    port: int
    authority: Authority

    def url(self, user: str = "postgres", host: str = "localhost", options: str = "") -> str:
        trust = f"sslmode=verify-full&sslrootcert={self.authority.file}"
        return f"postgresql://{user}@{host}:{self.port}/postgres?{options or trust}"


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    if not has_tls():
        pytest.skip("needs a PostgreSQL that was built with TLS: apt install postgresql")
    server = new_server("listen_addresses=127.0.0.1", "ssl=on")
    server.port = free_port()
    authority = Authority(server.directory / "authority")
    try:
        server.make()
        for file, name in zip(
            authority.vouch("server", "DNS:localhost"), ("server.crt", "server.key"), strict=True
        ):
            server.keep(file, name)
        (server.data / "pg_hba.conf").write_text(HBA)
        server.start()
        server.sql("CREATE ROLE me LOGIN PASSWORD 'right'; CREATE SCHEMA me AUTHORIZATION me")
        yield Secured(server.port, authority)
    finally:
        server.remove()


# TLS and passwords.


def test_a_server_with_a_certificate_and_a_user_with_a_password(secured: Secured) -> None:
    with closing(open_store(secured.url("me:right"), key_prefix="me")) as store:
        store.put([fire("a.b@1")])
        assert keys(Asker(store).claim()) == ["a.b@1"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"options": "sslmode=disable"}, "no pg_hba.conf entry.*: allow it in pg_hba.conf"),
        ({"options": "sslmode=verify-full&sslrootcert=/nowhere.pem"}, "name a file that is there"),
        ({"host": "127.0.0.1"}, "does not match host name.*: write the name that its certificate is for"),
        ({"user": "me:wrong"}, "password authentication failed.*: put the user or the password right"),
        ({"user": "me"}, "no password supplied: write the password into its URL"),
    ],
)
def test_a_refused_login_says_what_to_do(secured: Secured, given: dict[str, str], said: str) -> None:
    with pytest.raises(StoreMismatch, match=said) as error:
        open_store(secured.url(**given)).look("a")
    assert "wrong" not in str(error.value)


def test_a_certificate_of_an_unknown_authority_is_refused(secured: Secured, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    url = secured.url(options=f"sslmode=verify-full&sslrootcert={stranger.file}")
    with pytest.raises(StoreMismatch, match="certificate verify failed: name the authority"):
        open_store(url).look("a")


# Behind a pooler.


@pytest.fixture
def pooled(tmp_path: Path) -> Iterator[str]:
    """PgBouncer in transaction mode: each transaction may have another of two sessions."""
    program, server, port = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin"), shared_server(), free_port()
    if program is None:
        pytest.skip("needs pgbouncer: apt install pgbouncer")
    name = tmp_path.name.replace("-", "_")[:40]
    server.sql(f"CREATE DATABASE {name}")
    folder = server.directory / name
    folder.mkdir()
    (folder / "users").write_text('"postgres" ""\n')
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n{name} = host={server.directory} dbname={name} user=postgres\n"
        "[pgbouncer]\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 100\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {folder}/users\n"
    )
    folder.chmod(0o755)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, settings], stdout=log, stderr=log, **server_user())
    url = f"postgresql://postgres@127.0.0.1:{port}/{name}"
    try:
        wait_until(lambda: _answers(url))
        yield url
    finally:
        process.kill()
        process.wait(30)


def test_nodes_behind_a_pooler_launch_each_instant_once(pooled: str, tmp_path: Path) -> None:
    with running(tmp_path, pooled, pooled) as fleet:
        key = fleet.fire("quick")
        fleet.wait_over(key)
        fleet.wait_more(3)
        fleet.stop()
        assert repeated(fleet) == []
        assert_sound(fleet)
        assert_unbroken(fleet)


def test_a_waiter_behind_a_pooler_polls_instead_of_listening(pooled: str) -> None:
    with closing(open_store(pooled)) as waiter, closing(open_store(pooled)) as other:
        other.put([fire("a.b@1")])
        assert not waiter.wait("a", 0.01)
        other.put([fire("a.b@2")])
        assert waiter.wait("a", 30.0)


def _answers(url: str) -> bool:
    with suppress(psycopg.OperationalError):
        psycopg.connect(url, connect_timeout=5).close()
        return True
    return False
