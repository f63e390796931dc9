"""The service around a node: notifications to systemd, and reloads."""

import asyncio
import socket
from pathlib import Path

from detent.manifest.check import Manifest, check_manifest
from detent.node.service import Notify, Service, ServiceOptions, WorkerOptions
from detent.stores.memory.store import MemoryStore
from detent.worker.inbox import Inbox


def test_systemd_receives_the_lines(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        Notify({"NOTIFY_SOCKET": str(tmp_path / "notify")})("READY=1", "STATUS=2 jobs")
        assert listener.recv(100) == b"READY=1\nSTATUS=2 jobs"


def test_without_systemd_nothing_is_sent() -> None:
    Notify({})("READY=1")
    Notify({"NOTIFY_SOCKET": "/nowhere/at/all"})("READY=1")


def test_the_watchdog_interval_is_read_from_the_environment() -> None:
    assert Notify({"WATCHDOG_USEC": "30000000"}).watchdog_s == 30.0
    assert Notify({"WATCHDOG_USEC": "soon"}).watchdog_s == Notify({}).watchdog_s == 0.0


def manifest(max_running: int) -> Manifest:
    job = {"name": "j", "schedule": "* * * * *", "command": "true"}
    return check_manifest({"version": 2, "app": "a", "node": {"max_running": max_running}, "jobs": [job]})


def test_a_reload_keeps_the_concurrency_of_a_worker(tmp_path: Path) -> None:
    async def reloaded(worker: WorkerOptions | None) -> int:
        options = ServiceOptions(
            load=lambda: manifest(7),
            files=(),
            store=MemoryStore(),
            directory=tmp_path,
            env={},
            emit=lambda event, **fields: None,
            worker=worker,
        )
        service = Service(options, manifest(5))
        await service._reload()
        return service._node.tuning.max_running

    assert asyncio.run(reloaded(WorkerOptions(Inbox({}), concurrency=3))) == 3
    assert asyncio.run(reloaded(None)) == 7
