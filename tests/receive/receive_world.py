"""Shared by tests of the receiver: signed fires, and apps in real servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.equipment.fleet import PATIENCE_S, wait_for
from tests.equipment.redis_server import free_port

from detent import clock
from detent.manifest.secret_refs import Secret
from detent.messages.signing import SignedRequest, sign
from detent.model import Claim, End, Fire, Request
from detent.receive import Incoming, ReceivedFire, Receiver, Reply
from detent.receive.fire import identity_of
from detent.runners.http.request import fire_headers, send
from detent.runners.lifeline import Lifeline

ROOT = Path(__file__).parents[2]
SECRET = "a-secret-that-signs"
DUE = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
KEY = "billing.note@2026-03-01T02:00:00Z"
RUN_ID = "019ca729-0a00-7c3c-a1bb-6f6ae3bbf8a5"


def claim_of(job: str = "note", key: str = "", fence: int = 7, attempt: int = 1) -> Claim:
    key = key or f"billing.{job}@2026-03-01T02:00:00Z"
    fire = Fire(key=key, job=f"billing.{job}", due_at=DUE, run_id=RUN_ID)
    expires_at = clock.now() + timedelta(seconds=30)
    return Claim(fire=fire, node="n", fence=fence, attempt=attempt, ttl_s=30, expires_at=expires_at)


def incoming(
    method: str = "POST",
    target: str = "/cron/note",
    body: bytes = b"",
    *,
    secret: str = SECRET,
    claim: Claim | None = None,
    ago_s: float = 0,
    headers: Mapping[str, str | None] | None = None,
) -> Incoming:
    """A fire as it arrives, signed with the headers that it has; with None, a header is taken away."""
    signed = fire_headers(Request("http://h/"), claim or claim_of(), "note", clock.now(), "")
    all_headers: dict[str, str | None] = {name.lower(): value for name, value in signed}
    changed = {name.lower(): value for name, value in (headers or {}).items()}
    left = {name: value for name, value in (all_headers | changed).items() if value is not None}
    if "x-cron-signature" not in changed:
        message = SignedRequest(method, target, body, identity_of(left))
        left["x-cron-signature"] = sign(message, Secret(secret), clock.now() - timedelta(seconds=ago_s))
    return Incoming(method, target, unquote(target.partition("?")[0]), left, body)


def fire(url: str, *, claim: Claim | None = None, secret: str = SECRET, **request: Any) -> End:
    """One attempt, by detent's own runner."""
    asked = Request(url, secret_refs=("raw:any",), **request)
    lifeline = Lifeline(clock.boottime() + 3600)
    return send(asked, claim or claim_of(), secrets=[Secret(secret)], timeout_s=PATIENCE_S, lifeline=lifeline)


def receiver(url: str = "https://app.example.com", **settings: Any) -> Receiver:
    return Receiver(
        "billing", **{"base_url": url, "secrets": ["raw:" + SECRET], "secret_refs": ["s"], **settings}
    )


def noting(seen: list[ReceivedFire], **settings: Any) -> Receiver:
    """One whose jobs, `note` and `put`, note their fires."""
    cron = receiver(**settings)
    cron.job("0 2 * * *", name="note")(seen.append)
    cron.job("0 2 * * *", name="put", method="PUT")(seen.append)
    return cron


def error_of(reply: Reply) -> tuple[int, str]:
    return reply.status, json.loads(reply.body)["error"]


class Server:
    """A process that serves an app, and what its jobs noted."""

    def __init__(self, words: list[str], folder: Path, port: int, env: Mapping[str, str]) -> None:
        self.port, self.url, self.log = port, f"http://127.0.0.1:{port}", folder / f"server-{port}.log"
        paths = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "CRON_SECRET": SECRET, "HOME": str(folder)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words, env={**os.environ, **paths, **env}, cwd=folder, stdout=log, stderr=log
            )

    def wait(self) -> None:
        wait_for(self._answers, what=f"an answer at {self.url}")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """Like kill -9."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def serving(kinds: Sequence[str], folder: Path, below: str = "", **env: str) -> Iterator[list[Server]]:
    """The app of `receive_app.py`, in servers of these kinds, at this path."""
    servers = []
    try:
        for kind in kinds:
            port = free_port()
            words = [sys.executable, str(Path(__file__).with_name("receive_app.py")), kind, str(port)]
            settings = {"APP_URL": f"http://127.0.0.1:{port}{below}", "NOTES": str(folder)}
            servers.append(Server(words, folder, port, settings | env))
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.end()


def runs(folder: Path) -> list[str]:
    """The fires that were run, by key: one line for each start of a job's function."""
    file = folder / "runs"
    return file.read_text().splitlines() if file.exists() else []
