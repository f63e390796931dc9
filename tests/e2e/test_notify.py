"""Notifications to systemd: READY, RELOADING, STOPPING, and a watchdog."""

import signal
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.equipment.fleet import Fleet

WATCHDOG_S = 3.0
STUCK_S = 4.0  # shorter than the timeout of a locked store, longer than the watchdog's


class Systemd:
    """The socket that a service manager listens on."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.env = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}

    def wait(self, word: str, within_s: float = 60.0) -> list[str]:
        """The lines of the next message that has this word."""
        self.socket.settimeout(within_s)
        while word not in (lines := self.socket.recv(4096).decode().split("\n")):
            pass
        return lines

    def drain(self) -> None:
        self.socket.setblocking(False)
        with suppress(BlockingIOError):
            while self.socket.recv(4096):
                pass


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    manager = Systemd(tmp_path / "notify")
    with manager.socket:
        yield manager


def test_systemd_is_notified_when_the_node_is_ready_reloads_and_stops(fleet: Fleet, systemd: Systemd) -> None:
    fleet.write(fleet.job("job", "sleep", "0"))
    node = fleet.start(**systemd.env)
    assert "STATUS=1 jobs" in systemd.wait("READY=1")

    node.send(signal.SIGHUP)
    since = systemd.wait("RELOADING=1")[1]
    assert since.startswith("MONOTONIC_USEC=") and since.partition("=")[2].isdecimal()
    systemd.wait("READY=1")

    node.send(signal.SIGTERM)
    systemd.wait("STOPPING=1")
    assert node.process.wait(30) == 0


def test_the_watchdog_hears_of_finished_rounds_and_of_nothing_else(fleet: Fleet, systemd: Systemd) -> None:
    fleet.write(fleet.job("job", "sleep", "0"))
    node = fleet.start(**systemd.env)
    node.wait("success")
    for _ in range(3):
        systemd.wait("WATCHDOG=1", WATCHDOG_S)

    with closing(sqlite3.connect(fleet.database, isolation_level=None, timeout=20)) as other:
        other.execute("BEGIN IMMEDIATE")  # no round can be finished from now on
        with suppress(TimeoutError):
            systemd.wait("WATCHDOG=1", WATCHDOG_S)  # of a round that had ended before
        systemd.drain()
        with pytest.raises(TimeoutError):
            systemd.wait("WATCHDOG=1", STUCK_S)
        other.execute("ROLLBACK")
    systemd.wait("WATCHDOG=1")
    assert node.end() == 0
