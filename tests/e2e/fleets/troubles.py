"""Store failures and how each is repaired: one table for each kind of store.

Each row is a failure of its own kind.  The tests of the stores cover what the stores map to the same error.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psycopg
import redis
from tests.e2e.fleets.hosts import Hosts, ServedPostgres, ServedRedis
from tests.equipment.fleet import wait_for
from tests.equipment.small_disk import fill

SECRET = "another-one"
LOG = "log-disk"  # where a PostgreSQL with a small disk has its write-ahead log


class Trouble(NamedTuple):
    begin: Callable[[Hosts], object]
    end: Callable[[Hosts], object]
    forgets: bool = False  # the store comes back empty
    needs: str = ""  # "small disk": a server of its own on a small disk


def _redis(hosts: Hosts) -> ServedRedis:
    assert isinstance(hosts.served, ServedRedis)
    return hosts.served


def _postgres(hosts: Hosts) -> ServedPostgres:
    assert isinstance(hosts.served, ServedPostgres)
    return hosts.served


ON_THE_WAY = {
    "refused": Trouble(lambda hosts: hosts.proxy.refuse(), lambda hosts: hosts.proxy.restore()),
    "black-holed": Trouble(lambda hosts: hosts.proxy.swallow(), lambda hosts: hosts.proxy.restore()),
}


# Redis.


def _change_password(hosts: Hosts) -> None:
    server = _redis(hosts).server
    server.call("CONFIG", "SET", "requirepass", SECRET)
    with redis.Redis(port=server.port, password=SECRET) as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")


def _take_password_away(hosts: Hosts) -> None:
    with redis.Redis(port=_redis(hosts).server.port, password=SECRET) as client:
        client.execute_command("CONFIG", "SET", "requirepass", "")


def _forget_all(hosts: Hosts) -> None:
    server = _redis(hosts).server
    shutil.rmtree(server.folder / "appendonlydir")
    server.start()


def _filler(hosts: Hosts) -> Path:
    return _redis(hosts).server.folder / "filler"


def _make_room(hosts: Hosts) -> None:
    server = _redis(hosts).server
    server.process.wait(30)  # a server that syncs every write ends when its disk is full
    _filler(hosts).unlink()
    server.start()


ON_REDIS = ON_THE_WAY | {
    "another password": Trouble(_change_password, _take_password_away),
    "a full disk": Trouble(lambda hosts: fill(_filler(hosts)), _make_room, needs="small disk"),
    "a restart without its data": Trouble(
        lambda hosts: _redis(hosts).server.end(), _forget_all, forgets=True
    ),
}


# PostgreSQL.


def _alter(what: str) -> Callable[[Hosts], None]:
    """Change a setting that only new sessions see."""

    def alter(hosts: Hosts) -> None:
        served = _postgres(hosts)
        served.server.sql(f"ALTER {what.format(name=served.name)}")

    return alter


def _alter_for_all(what: str) -> Callable[[Hosts], None]:
    def alter(hosts: Hosts) -> None:
        _alter(what)(hosts)
        _postgres(hosts).hang_up()

    return alter


def _demand_password(hosts: Hosts) -> None:
    served = _postgres(hosts)
    rules = served.server.data / "pg_hba.conf"
    rules.write_text(f"local all {served.name} scram-sha-256\n{rules.read_text()}")
    served.server.sql("SELECT pg_reload_conf()")
    wait_for(lambda: not _lets_in(served))  # it reads its rules a little later
    served.hang_up()


def _lets_in(served: ServedPostgres) -> bool:
    try:
        psycopg.connect(served.url).close()
    except psycopg.OperationalError:
        return False
    return True


def _trust_again(hosts: Hosts) -> None:
    served = _postgres(hosts)
    rules = served.server.data / "pg_hba.conf"
    rules.write_text(rules.read_text().partition("\n")[2])
    served.server.sql("SELECT pg_reload_conf()")


def _fill_disk(hosts: Hosts) -> None:
    """Fill the disk of the write-ahead log: the server ends when it needs the next log file."""
    server = _postgres(hosts).server
    fill(server.directory / LOG / "filler")
    with suppress(psycopg.OperationalError):
        while True:
            server.sql("SELECT pg_switch_wal(), txid_current()")


def _make_room_for_log(hosts: Hosts) -> None:
    server = _postgres(hosts).server
    server.wait_end()
    (server.directory / LOG / "filler").unlink()
    server.start()


ON_POSTGRES = ON_THE_WAY | {
    "read-only": Trouble(
        _alter_for_all("DATABASE {name} SET default_transaction_read_only TO on"),
        _alter("DATABASE {name} RESET default_transaction_read_only"),
    ),
    "a full disk": Trouble(_fill_disk, _make_room_for_log, needs="small disk"),
    "no room for a connection": Trouble(
        _alter_for_all("ROLE {name} CONNECTION LIMIT 0"), _alter("ROLE {name} CONNECTION LIMIT -1")
    ),
    "another password": Trouble(_demand_password, _trust_again),
    "a restart without its data": Trouble(
        lambda hosts: _postgres(hosts).server.sql(f"DROP DATABASE {_postgres(hosts).name} WITH (FORCE)"),
        lambda hosts: _postgres(hosts).create(),
        forgets=True,
    ),
}
TROUBLES = {"redis": ON_REDIS, "postgres": ON_POSTGRES}
