"""Acknowledged writes survive a power cut of the store's machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from tests.equipment.postgres_server import Server, server_user, wait_until
from tests.equipment.power import PowerDisk, power_disk
from tests.equipment.redis_server import RedisServer

from detent.model import Ask, Query
from detent.stores.base import Store
from detent.stores.registry import open_store
from detent.testing.stores.fixtures import fire

ACKNOWLEDGED = 300  # lines, after which the power is cut, in the middle of what comes next


class Machine(Protocol):
    """The server of a store, if it has one."""

    @property
    def url(self) -> str: ...
    def start(self) -> None: ...
    def end(self) -> None: ...


class NoServer(NamedTuple):
    """SQLite has no server."""

    url: str

    def start(self) -> None: ...
    def end(self) -> None: ...


class PostgresMachine:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        if user := server_user().get("user"):
            shutil.chown(folder, user)
        self._server = Server(folder, "fsync=on")
        self._server.make()
        self._server.start()

    @property
    def url(self) -> str:
        return self._server.url

    def start(self) -> None:
        self._server.start()

    def end(self) -> None:
        self._server.stop()


MACHINES = {
    "sqlite": lambda folder: NoServer(f"sqlite:///{folder}.db"),
    "redis": lambda folder: RedisServer(folder),
    "postgres": PostgresMachine,
}


class Acknowledged(NamedTuple):
    """One line that the writer printed."""

    what: str
    key: str
    fence: int


@pytest.fixture
def disk() -> Iterator[PowerDisk]:
    with power_disk() as found:
        yield found


@pytest.mark.root
@pytest.mark.parametrize("kind", MACHINES)
def test_acknowledged_writes_survive_a_power_cut(kind: str, disk: PowerDisk) -> None:
    machine = MACHINES[kind](disk.folder / "store")
    disk.write_through()  # what was made in haste
    witness = disk.folder / "witness"
    acknowledged = _write_until_the_power_is_cut(machine, disk, witness)
    disk.restore_power()
    assert not witness.exists() or not witness.read_bytes(), "the power was not really cut"
    machine.start()
    try:
        with closing(open_store(machine.url)) as store:
            _assert_kept(store, acknowledged)
    finally:
        machine.end()


def _write_until_the_power_is_cut(machine: Machine, disk: PowerDisk, witness: Path) -> list[Acknowledged]:
    words = [sys.executable, "-m", "tests.equipment.power_writer", machine.url]
    writer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert writer.stdout is not None
    with writer:
        lines = [next(writer.stdout) for _ in range(ACKNOWLEDGED)]
        witness.write_bytes(b"this was never synced")
        disk.cut_power()  # a machine without power acknowledges nothing: what comes now does not count
        writer.kill()
    machine.end()
    return [Acknowledged(what, key, int(fence)) for what, key, fence in map(str.split, lines)]


def _assert_kept(store: Store, acknowledged: list[Acknowledged]) -> None:
    rows = {row.fire.key: row for row in store.find(Query(app="a", limit=len(acknowledged)))}
    for one in acknowledged:
        row = rows.get(one.key)
        assert row is not None, f"{one.key} was put, and is gone"
        if one.what == "claim":
            assert row.fence >= one.fence, f"{one.key} lost its claim"
        if one.what == "finish":
            assert row.state == "over", f"{one.key} was finished, and is {row.state}"
            assert row.outcome is not None and row.outcome.kind == "succeeded"
    store.put([fire("a.job@new")])
    highest = max(one.fence for one in acknowledged)
    granted = wait_until(lambda: _claims(store, len(acknowledged)))
    assert all(claim.fence > highest for claim in granted)
    finished = {one.key for one in acknowledged if one.what == "finish"}
    assert not finished & {claim.fire.key for claim in granted}


def _claims(store: Store, number: int) -> object:
    return store.claim(Ask("a", "another", number, 100)).claims
