"""Real `detent worker` processes for tests, and what the witness saw of them."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.equipment.fleet import LOOK_S, PATIENCE_S, SOURCES, NodeProcess, alive, wait_for

from detent import Detent
from detent.app.queue.handles import Handle
from detent.model import Query, Row

HERE = Path(__file__).parent
PAGE = 12_000
WARM = 150  # after this many messages a worker has learnt that they are short


class Seen(NamedTuple):
    """A line of the witness."""

    what: str  # start | end | spawned
    key: str
    attempt: int
    pid: int
    at: float
    fence: int


class Works:
    """An app, its store, and the workers that a test starts."""

    def __init__(self, directory: Path, url: str, name: str) -> None:
        self.directory, self.url, self.name = directory, url, name
        self.witness = directory / "witness"
        self.env = {one: value for one, value in os.environ.items() if not one.startswith("DETENT_")}
        self.env |= {"WORKER_APP": name, "WORKER_STORE": url, "WORKER_WITNESS": str(self.witness)}
        self.env |= {"PYTHONPATH": f"{SOURCES}{os.pathsep}{HERE}", "XDG_STATE_HOME": str(directory / "state")}
        self.workers: list[NodeProcess] = []
        self.tasks = self._import()
        self.app: Detent = self.tasks.app

    def _import(self) -> Any:
        """Its module, once more for each test: an app has one store."""
        spec = importlib.util.spec_from_file_location("worker_app", HERE / "worker_app.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        before = dict(os.environ)
        os.environ.update(self.env)
        try:
            spec.loader.exec_module(module)
        finally:
            os.environ.clear()
            os.environ.update(before)
        return module

    # Workers.

    def launch(self, *words: str, verb: str = "worker", store: str = "") -> NodeProcess:
        app = ["-f", "worker_app:app"] if verb == "run" else ["worker_app:app"]
        line = [sys.executable, "-m", "detent", verb, *app, *words]
        line += ["--store", store] if store else []
        log = self.directory / f"worker-{len(self.workers)}.log"
        self.workers.append(NodeProcess(line, self.env, log))
        return self.workers[-1]

    def start(self, concurrency: int = 1, processes: int = 1, store: str = "") -> NodeProcess:
        words = "q", "--concurrency", str(concurrency), "--processes", str(processes)
        worker = self.launch(*words, store=store)
        worker.wait("started")
        return worker

    def start_warm(self, concurrency: int = 1) -> NodeProcess:
        """Start a worker that has learnt that its messages are short, so that it takes large batches."""
        worker = self.start(concurrency)
        self.wait_over(self.tasks.quick.push_many([()] * WARM))
        self.witness.write_bytes(b"")
        return worker

    # What became of messages.

    def seen(self, what: str = "start", keys: Iterable[str] = ()) -> list[Seen]:
        if not self.witness.exists():
            return []
        *lines, _ = self.witness.read_text().split("\n")
        blank = {"key": "", "attempt": 0, "at": 0.0, "fence": 0}
        found = [Seen(**{**blank, **json.loads(line)}) for line in lines]
        wanted = set(keys)
        return [one for one in found if one.what == what and (not wanted or one.key in wanted)]

    def starts(self, *handles: Handle[Any]) -> list[Seen]:
        return self.seen("start", [one.key for one in handles])

    def wait_starts(self, count: int, *handles: Handle[Any]) -> list[Seen]:
        wait_for(lambda: len(self.starts(*handles)) >= count, what=f"start {count}")
        return self.starts(*handles)

    def row(self, handle: Handle[Any]) -> Row:
        (row,) = self.app.open_store().find(Query(key=handle.key))
        return row

    def open_rows(self) -> list[Row]:
        store, about = self.app.open_store(), {"app": self.name, "limit": 1}
        return store.find(Query(state="pending", **about)) + store.find(Query(state="claimed", **about))

    def wait_over(self, handles: Iterable[Handle[Any]], within_s: float = 2 * PATIENCE_S) -> list[Row]:
        """Wait until all pushed messages are over, and return the rows of these."""
        those, rows = [*handles], list[Row]()

        def look() -> bool:
            if not self.open_rows():  # a message that was returned between the two queries is in neither
                rows[:] = map(self.row, those)
            return len(rows) == len(those) and all(row.state == "over" for row in rows)

        wait_for(look, within_s, "the end of all messages", LOOK_S)
        return rows

    def rows(self) -> list[Row]:
        """Read in pages, so that no server is busy for seconds."""
        store, about = self.app.open_store(), Query(app=self.name, origins=("push",), limit=PAGE)
        found: dict[str, Row] = {}
        while page := store.find(about):
            known = len(found)
            found.update((row.fire.key, row) for row in page)
            if len(found) == known:
                break
            about = about._replace(until=page[-1].fire.due_at)
        return [*found.values()]

    # The end.

    def clear_up(self) -> None:
        for worker in self.workers:
            worker.clear_up()
        self.app.open_store().close()

    def assert_quiet(self) -> None:
        for worker in self.workers:
            assert worker.plain_lines() == []
            assert worker.events("internal-error") == []


def outcomes(rows: Iterable[Row]) -> Mapping[str, int]:
    return Counter(row.outcome.kind if row.outcome else row.state for row in rows)


def assert_once(starts: Iterable[Seen]) -> None:
    """Assert that each attempt of each message started once."""
    begun = Counter((one.key, one.attempt) for one in starts)
    assert [one for one, count in begun.items() if count > 1] == []


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


__all__ = ["Works", "alive", "assert_once", "is_alive", "outcomes", "wait_for"]
