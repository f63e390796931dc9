"""Words to systemd, on a socket of our own."""

import socket
from pathlib import Path

from detent.node.service import Notify


def test_what_is_said_arrives(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        Notify({"NOTIFY_SOCKET": str(tmp_path / "notify")})("READY=1", "STATUS=2 jobs")
        assert listener.recv(100) == b"READY=1\nSTATUS=2 jobs"


def test_nobody_listens() -> None:
    Notify({})("READY=1")
    Notify({"NOTIFY_SOCKET": "/nowhere/at/all"})("READY=1")


def test_the_watchdog_says_how_often_it_wants_to_hear() -> None:
    assert Notify({"WATCHDOG_USEC": "30000000"}).watchdog_s == 30.0
    assert Notify({"WATCHDOG_USEC": "soon"}).watchdog_s == Notify({}).watchdog_s == 0.0
