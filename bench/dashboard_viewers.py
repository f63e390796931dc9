"""Many open streams of `detent run --dashboard`: what they cost the node, and whether a fire is late or lost.

The node runs commands every second on a SQLite store.  Clients open streams of the screen Now through raw
sockets and read every event.  The fires of some seconds are looked at, after all clients have the first
picture.  With as many streams as one process serves, one more has to be refused.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from node_process import NodeProcess, manifest_of, memory_mb, node, spent
from report import Bench, Budget, Effort, Result, Table, main, quantile

from detent.clock import instant
from detent.dashboard.observer import VIEWERS_MAX
from detent.model import Query
from detent.stores.base import find_all
from detent.stores.sqlite.store import SqliteStore

JOBS = 10
SOME = 100  # streams, beside the most
LATE_S = 1.0  # a fire that starts later than this is late
END_S = 1.5  # after the window, for the last fires
OPEN_AT_ONCE = 50
OPEN_S = 120.0
FILES = 4 * VIEWERS_MAX
ROWS_MAX = 100_000
CPU_PERCENT, MEMORY_MB = 10, 150


class Run(NamedTuple):
    late_s: list[float]  # of each fire that started
    lost: int
    cpu_percent: float  # of a core
    memory_mb: float
    sizes: list[int]  # bytes of each event that a client got
    refused: str  # the answer to a stream too many; "": not asked


class Viewer:
    """One stream."""

    def __init__(self, port: int) -> None:
        self._port, self.sizes = port, list[int]()

    async def open(self) -> int:
        """Return the status; of a stream, after its first event."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        host = f"127.0.0.1:{self._port}"
        self._writer.write(f"GET /api/events HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        if status == 200:
            await self._event()
        else:
            self.error = json.loads(await self._reader.read(65_536))["error"]
        return status

    async def _event(self) -> int:
        """The size of the next event."""
        while True:
            size = int(await self._reader.readline(), 16)
            data = await self._reader.readexactly(size + 2)
            if data.startswith(b"id: "):
                return size

    async def follow(self) -> None:
        while True:
            self.sizes.append(await self._event())

    def close(self) -> None:
        self._writer.close()


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def watch(process: NodeProcess, port: int, viewers: int, seconds: float) -> tuple[Run, float, float]:
    clients = [Viewer(port) for _ in range(viewers)]
    async with asyncio.timeout(OPEN_S):
        for first in range(0, viewers, OPEN_AT_ONCE):
            found = await asyncio.gather(*(one.open() for one in clients[first : first + OPEN_AT_ONCE]))
            assert {*found} == {200}, found
    following = [asyncio.ensure_future(one.follow()) for one in clients]
    began, before = time.time(), spent(process.pid)
    await asyncio.sleep(seconds)
    until, after = time.time(), spent(process.pid)
    refused = ""
    if viewers == VIEWERS_MAX:
        extra = Viewer(port)
        assert await extra.open() == 503
        refused = extra.error
    for task in following:
        task.cancel()
    for task in following:
        with suppress(asyncio.CancelledError):
            await task
    for one in clients:
        one.close()
    sizes = [size for one in clients for size in one.sizes]
    cpu = (after.own_s - before.own_s) / (until - began) * 100
    return Run([], 0, cpu, memory_mb(process.pid), sizes, refused), began, until


def measured(viewers: int, seconds: float) -> Run:
    jobs = [{"name": f"job-{n}", "schedule": "@every 1s", "command": ["true"]} for n in range(JOBS)]
    port = free_port()
    with node(manifest_of(jobs), further=["--dashboard", f"127.0.0.1:{port}"]) as process:
        process.wait_started()
        run, began, until = asyncio.run(watch(process, port, viewers, seconds))
        time.sleep(END_S)
        first, last = int(began) + 1, int(until)
        store = SqliteStore(process.database)
        query = Query(app="bench", since=instant(first), until=instant(last), limit=ROWS_MAX)
        rows = find_all(store, query)
        store.close()
    late_s = [(row.attempts[0].started_at - row.fire.due_at).total_seconds() for row in rows if row.attempts]
    return run._replace(late_s=late_s, lost=JOBS * (last - first + 1) - len(late_s))


def measure(effort: Effort) -> Result:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    runs = {
        viewers: measured(viewers, effort.seconds) for viewers in sorted({0, min(SOME, effort.n), effort.n})
    }
    rows = tuple(_row(viewers, run) for viewers, run in runs.items())
    notes = [f"{JOBS} commands a second; a fire is late if it starts more than {LATE_S:g} s after it is due"]
    notes += [f"stream {effort.n + 1:,}: 503, {run.refused}" for run in runs.values() if run.refused]
    headings = (
        "streams",
        "events each",
        "event bytes",
        "start p50 ms",
        "p99 ms",
        "max ms",
        "late",
        "lost",
        "CPU %",
        "MB",
    )
    table = Table(f"Streams of a dashboard beside a node, {effort.seconds:g} s", headings, rows, tuple(notes))
    return Result((table,), tuple(_budgets(runs)))


def _row(viewers: int, run: Run) -> tuple[float, ...]:
    late_ms = [late * 1000 for late in run.late_s]
    return (
        viewers,
        len(run.sizes) / max(1, viewers),
        quantile(run.sizes, 0.5) if run.sizes else 0,
        quantile(late_ms, 0.5),
        quantile(late_ms, 0.99),
        max(late_ms),
        _late(run),
        run.lost,
        run.cpu_percent,
        run.memory_mb,
    )


def _late(run: Run) -> int:
    return sum(late > LATE_S for late in run.late_s)


def _budgets(runs: Mapping[int, Run]) -> Iterator[Budget]:
    none, some, *_ = runs
    viewers = max(runs)
    cpu = runs[some].cpu_percent - runs[none].cpu_percent
    yield Budget(f"CPU of {some} streams", cpu, "% of a core", floor=CPU_PERCENT)
    yield Budget(f"memory with {viewers} streams", runs[viewers].memory_mb, "MB", floor=MEMORY_MB)
    run = runs[viewers]
    yield Budget(f"fires lost, {viewers} streams", run.lost, "", floor=0)
    yield Budget(f"fires late, {viewers} streams", _late(run), "", floor=0)


EFFORTS = {
    "tiny": Effort(20, seconds=3),
    "usual": Effort(VIEWERS_MAX, seconds=30),
    "full": Effort(VIEWERS_MAX, seconds=120),
}
BENCH = Bench("dashboard_viewers", EFFORTS, measure)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
