"""Viewers of a chaos run: a dashboard of the store that is killed again and again, and its open pages."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import suppress

from tests.chaos.jobs import APP
from tests.chaos.world import PATIENCE_S, World
from tests.equipment.fleet import wait_for
from tests.equipment.redis_server import free_port

LIFE_S = 10.0  # of a dashboard that the pages reach, until it is killed
AGAIN_S = 1.0  # until a page connects again
UPDATE_MAX = 1 << 20  # bytes
SILENT_S = 20.0  # a stream sends at least a comment every 15 s


class Viewers:
    """So many open pages of one dashboard."""

    def __init__(self, world: World, count: int) -> None:
        self._folder, self._env = world.folder / "dashboard", world.env
        self._folder.mkdir()
        self._port, self._url, self._count = free_port(), world.store.url, count
        self._lives: list[subprocess.Popen[bytes]] = []
        self._seen = Counter[str]()
        self._problems: list[str] = []
        self._over = threading.Event()
        self._program = [*world.program, "dashboard", "--store", self._url]
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._serve, self._view)]
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Wait for the first update."""
        wait_for(lambda: self._seen["updates"], what="an update of an open page")

    def end(self) -> tuple[dict[str, int], list[str]]:
        """Returns what the pages received, and what went wrong."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * SILENT_S)
        for log in sorted(self._folder.iterdir()):
            if "Traceback" in log.read_text(errors="replace"):
                self._problems.append(f"the dashboard wrote a traceback: {log}")
        return dict(self._seen), self._problems

    def _serve(self) -> None:
        while not self._over.is_set():
            with (self._folder / f"{self._seen['lives']:04}.log").open("wb") as log:
                words = [*self._program, "--listen", f"127.0.0.1:{self._port}"]
                life = subprocess.Popen(words, env=self._env, stdout=log, stderr=log)
            self._seen["lives"] += 1
            before, give_up_at = self._seen["updates"], time.monotonic() + PATIENCE_S
            while self._seen["updates"] == before and time.monotonic() < give_up_at:
                self._over.wait(0.1)
            self._over.wait(LIFE_S)
            if life.poll() is not None:
                self._problems.append(f"the dashboard ended by itself: {life.returncode}, {log.name}")
            life.send_signal(signal.SIGKILL)
            life.wait()

    def _view(self) -> None:
        async def view_all() -> None:
            await asyncio.gather(*(self._page() for _ in range(self._count)))

        asyncio.run(view_all())

    async def _page(self) -> None:
        while not self._over.is_set():
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await self._stream()
            await asyncio.sleep(AGAIN_S)

    async def _stream(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=UPDATE_MAX)
        try:
            host = f"Host: 127.0.0.1:{self._port}"
            writer.write(f"GET /api/events?app={APP} HTTP/1.1\r\n{host}\r\n\r\n".encode())
            status = (await asyncio.wait_for(reader.readline(), SILENT_S)).decode().split(" ")
            self._seen[f"status {status[1]}" if len(status) > 1 else "no answer"] += 1
            if status[1:2] != ["200"]:
                if status[1:2] not in ([], ["503"]):  # killed meanwhile; the store is away
                    self._problems.append(f"the dashboard answered {' '.join(status).strip()}")
                return
            ends_at = time.monotonic() + LIFE_S + SILENT_S
            while not self._over.is_set() and time.monotonic() < ends_at:
                line = await asyncio.wait_for(reader.readline(), SILENT_S)
                if not line:
                    return
                self._seen["updates"] += line.startswith(b"data:")
        finally:
            writer.close()
