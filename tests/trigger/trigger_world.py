"""Hosts for trigger tests: each has its own specs and locks, and the test plays the scheduler.

1. A trigger is a real process, and so are its warden and its work; what it says is read from its log.
2. An app that is called is a real server in this process, which keeps every request.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from tests.equipment.fleet import PATIENCE_S, SOURCES, NodeProcess, wait_for

from detent.model import Query, Row
from detent.stores.base import find_all
from detent.stores.registry import open_store

MINUTELY = "* * * * *"


class TriggerEnd(NamedTuple):
    """The end of a trigger process."""

    code: int
    events: list[dict[str, Any]]
    plain: list[str]  # lines that are no events

    @property
    def names(self) -> list[str]:
        return [event["event"] for event in self.events]

    def one(self, name: str) -> dict[str, Any]:
        [found] = [event for event in self.events if event["event"] == name]
        return found


class TriggerProcess(NodeProcess):
    """A running trigger."""

    def over(self) -> TriggerEnd:
        """Wait for its end."""
        code = self.process.wait(2 * PATIENCE_S)
        return TriggerEnd(code, self.events(), self.plain_lines())


class Host:
    """One host, as a trigger sees it."""

    def __init__(self, directory: Path, store: str = "") -> None:
        self.directory, self.specs, self.locks = directory, directory / "specs", directory / "locks"
        self.specs.mkdir(parents=True)
        self.url = store or f"sqlite:///{directory / 'state' / 'detent.db'}"
        (directory / "state").mkdir()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
        self.env |= {"PYTHONPATH": str(SOURCES), "DETENT_SPEC_DIR": str(self.specs)}
        self.env |= {"DETENT_LOCK_DIR": str(self.locks), "XDG_STATE_HOME": str(directory / "xdg")}
        self._rings: list[TriggerProcess] = []
        self.before: list[str] = []  # words in front of a trigger's own

    def write(self, name: str, version: int = 2, **job: Any) -> None:
        """The spec of a job `t.<name>`."""
        top = {key: job.pop(key) for key in ("secrets", "store", "node") if key in job}
        job = {"name": name, "schedules": [MINUTELY], **job}
        document = {"version": version, "app": "t", "jobs": [job], **top}
        (self.specs / f"t.{name}.json").write_text(json.dumps(document))

    def start(self, name: str, *words: str, store: bool = True, **env: str) -> TriggerProcess:
        line = [*self.before, sys.executable, "-m", "detent", "trigger", f"t.{name}", *words]
        line += ["--store", self.url] if store else []
        process = TriggerProcess(line, self.env | env, self.directory / f"trigger-{len(self._rings)}.log")
        self._rings.append(process)
        return process

    def trigger(self, name: str, *words: str, store: bool = True, **env: str) -> TriggerEnd:
        return self.start(name, *words, store=store, **env).over()

    def find(self, **query: Any) -> list[Row]:
        """Rows by due instant, oldest first."""
        with closing(open_store(self.url)) as store:
            return find_all(store, Query(app="t", limit=100_000, **query))[::-1]

    def clear_up(self) -> None:
        for process in self._rings:
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait(PATIENCE_S)


def pass_by(key: str) -> None:
    """Wait until a newer instant than that of this fire is due, for a job of every second."""
    due_at = datetime.fromisoformat(key.partition("@")[2])
    wait_for(lambda: datetime.now(UTC) > due_at + timedelta(seconds=1.1))


def set_watermark_back(host: Host, at: datetime) -> None:
    """Move the watermark back, as if triggers had been missed since."""
    with sqlite3.connect(host.url.removeprefix("sqlite:///")) as db:
        assert db.execute("UPDATE jobs SET at = ?", (at.timestamp(),)).rowcount == 1


@contextmanager
def slow_writes(host: Host) -> Iterator[Callable[[], bool]]:
    """Let nobody write to the store for a while.  Yields what says whether a process waits to write."""
    path = host.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as db, Path(f"{path}-writer").open() as lock:

        def is_waiting() -> bool:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            fcntl.flock(lock, fcntl.LOCK_UN)
            return False

        db.execute("BEGIN IMMEDIATE")
        yield is_waiting
        db.execute("ROLLBACK")


@cache
def this_minute() -> datetime:
    """Return the minute in which the test began, so that its instants do not depend on its duration."""
    return datetime.now(UTC).replace(second=0, microsecond=0)


def minute(ago: int) -> str:
    """A minute of the past, as `--due` takes it."""
    return f"{this_minute() - timedelta(minutes=ago):%Y-%m-%dT%H:%M:%SZ}"


class Asked(NamedTuple):
    """A request that reached an app."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


Answer = Callable[[Asked], tuple[int, bytes]]


class App:
    """An app that is called."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[Asked] = []
        app, lock = self, threading.Lock()

        class Heard(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, self.path, headers, body)
                with lock:
                    app.requests.append(asked)
                status, content = answer(asked)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                if 300 <= status < 400:
                    self.send_header("Location", f"{app.url}/elsewhere")
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = _answer

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Heard)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> App:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving(*statuses: int) -> Iterator[App]:
    """An app that gives these answers in turn, then repeats the last one."""
    left = list(statuses)

    def answer(_: Asked) -> tuple[int, bytes]:
        return (left.pop(0) if len(left) > 1 else left[0]), b"said"

    with App(answer) as app:
        yield app
