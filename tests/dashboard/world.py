"""An app with history in a real store, a client for ASGI apps, and a store that counts its calls."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from detent import Detent, clock
from detent.dashboard.auth import User
from detent.dashboard.site import site
from detent.dashboard.source import Source
from detent.messages.masking import Mask
from detent.model import Ask, Claim, Outcome, Report, Verdict
from detent.rules.planning import manual_fire
from detent.stores.base import NODE, Store

T = TypeVar("T")
HOST = "dash.test"
OPERATOR, READER = User("ana", "operate"), User("bob", "read")
SAME = {"sec-fetch-site": "same-origin", "origin": f"http://{HOST}", "content-type": "application/json"}
LAST_S = 30.0  # no answer takes longer
FAILED = Outcome("failed", "exit code 3")


def make_app(url: str) -> Detent:
    app = Detent("shop", store=url)
    app.job("@every 10s")(tick)
    app.job("0 2 * * *", timezone="Europe/Berlin", description="dump the database")(backup)
    app.job("0 3 * * *", queue="db", enabled=False)(gone)
    app.task(queue="mail", max_retries=0)(send)
    return app


def add_jobs_of_tasks(app: Detent) -> None:
    task = app.task_named("send")
    app.job("0 4 * * *", name="remind", args=["all"], enqueue={"priority": "high"})(task)
    app.job("0 5 * * *", name="send-daily", args=["all"])(task)


def tick() -> None: ...
def backup() -> None: ...
def gone() -> None: ...


def send(to: str, password: str = "") -> None:
    raise ValueError(f"no address: {to}")


class World:
    """The app on a store, with a hand that does the work of a node."""

    def __init__(self, url: str, declare: Callable[[Detent], None] = lambda app: None) -> None:
        self.app = make_app(url)
        declare(self.app)
        self.store = self.app.open_store()
        self.manifest = self.app.manifest()
        self.jobs = {job.name: job for job in self.manifest.jobs}
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.source = Source(
            store=self.store,
            url=url,
            mask=Mask(),
            manifests={"shop": self.manifest},
            apps={"shop": self.app},
            emit=lambda event, **fields: self.events.append((event, fields)),
        )
        self._numbers = count(1)
        generation = self.store.look("shop").generation
        self.store.set_jobs("shop", generation, {name: job.revision for name, job in self.jobs.items()})
        self.beat()

    def beat(self) -> None:
        node = {
            "host": "elsewhere",
            "queues": ["default", "mail"],
            "outputs": "/none",
            "pid": 7,
            "version": "1",
        }
        self.store.note("shop", NODE + "host.1", json.dumps(node | {"wall": clock.wall()}), 600.0)

    def put(self, name: str = "shop.tick", ago_s: float = 0.0) -> str:
        number, due_at = next(self._numbers), clock.now() - timedelta(seconds=ago_s)
        fire = manual_fire(self.jobs[name], due_at.replace(microsecond=0), f"t{number}")
        self.store.put([fire])
        return fire.key

    def claim(self) -> list[Claim]:
        return [*self.store.claim(Ask("shop", "host.1", next(self._numbers), limit=20)).claims]

    def run(self, name: str = "shop.tick", outcome: Outcome = FAILED, output: bytes = b"it wrote\n") -> str:
        """Run a fire of the job to this end; return its key."""
        key = self.put(name)
        self.finish(next(claim for claim in self.claim() if claim.fire.key == key), outcome, output)
        return key

    def finish(self, claim: Claim, outcome: Outcome = FAILED, output: bytes = b"") -> None:
        self.store.finish([Report(claim, Verdict(outcome), status=3, took_s=1.5, tail=output)])

    def kill_letter(self, to: str = "nowhere") -> str:
        """Push a message that fails; return its key."""
        key = str(self.app.task_named("send").push(to, password="hunter22").key)
        self.app.drain()
        return key

    def site(self, user: User | None = OPERATOR) -> Site:
        return Site(site(self.source, lambda request: user, [HOST]))


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Site:
    """A client that speaks ASGI."""

    def __init__(self, app: Any, headers: Mapping[str, str] | None = None, client: str = "127.0.0.1") -> None:
        self._app, self._headers, self._client = app, {"host": HOST, **(headers or {})}, client

    def get(self, target: str, **headers: str) -> Answer:
        return run(self.ask("GET", target, headers))

    def post(self, target: str, body: Any = None, **headers: str) -> Answer:
        return run(self.ask("POST", target, SAME | headers, json.dumps(body or {}).encode()))

    def scope(self, method: str, target: str, headers: Mapping[str, str]) -> dict[str, Any]:
        from urllib.parse import unquote

        path, _, query = target.partition("?")
        sent = {**self._headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
            "client": (self._client, 50_000),
            "server": ("127.0.0.1", 80),
        }

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str] = {}, body: bytes = b"", events: int = 1
    ) -> Answer:
        """Send a request; of a stream, read so many parts of its body."""
        stream = self.open(method, target, headers, body)
        start = await stream.next()
        found = {name.decode(): value.decode() for name, value in start.get("headers", ())}
        content, is_stream = b"", "event-stream" in found.get("content-type", "")
        while True:
            part = await stream.next()
            content += part.get("body", b"")
            events -= bool(part.get("body"))
            if not part.get("more_body") or (is_stream and not events):
                break
        await stream.close()
        return Answer(start["status"], found, content)

    def open(self, method: str, target: str, headers: Mapping[str, str] = {}, body: bytes = b"") -> Stream:
        return Stream(self._app, self.scope(method, target, headers), body)


class Stream:
    """A request whose parts of the answer are read one by one."""

    def __init__(self, app: Callable[..., Awaitable[None]], scope: dict[str, Any], body: bytes) -> None:
        self._parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._closed = asyncio.Event()
        self._requests = [{"type": "http.request", "body": body, "more_body": False}]
        self._task = asyncio.ensure_future(self._run(app, scope))

    async def _run(self, app: Callable[..., Awaitable[None]], scope: dict[str, Any]) -> None:
        await app(scope, self._receive, self._parts.put)

    async def _receive(self) -> dict[str, Any]:
        if self._requests:
            return self._requests.pop()
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def next(self) -> dict[str, Any]:
        getting = asyncio.ensure_future(self._parts.get())
        await asyncio.wait([getting, self._task], timeout=LAST_S, return_when=asyncio.FIRST_COMPLETED)
        if not getting.done() and self._task.done():
            self._task.result()
        return await asyncio.wait_for(getting, LAST_S)

    async def event(self) -> tuple[str, dict[str, Any]]:
        """The next event of a stream of events: its id and its document."""
        while True:
            text = (await self.next()).get("body", b"").decode()
            if text.startswith("id: "):
                first, _, second = text.strip().partition("\ndata: ")
                return first.removeprefix("id: "), json.loads(second)

    async def close(self) -> None:
        self._closed.set()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([self._task], timeout=1.0)
            self._task.cancel()
            await self._task


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(coroutine, LAST_S * 2)

    return asyncio.run(limited())


class Counting:
    """A store that counts its calls by verb."""

    def __init__(self, store: Store) -> None:
        self._store, self.calls = store, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return verb(*args, **kwargs)

        return counted

    @property
    def as_store(self) -> Store:
        return cast("Store", self)


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/shop.db"


def applied(document: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """What a client has after a delta."""
    if delta["since"] is None:
        return delta
    assert delta["since"] == document["version"]
    found = {**document, **delta, "since": document["since"]}
    for field in ("jobs", "marks", "buckets"):
        merged = {**document[field], **delta.get(field, {})}
        found[field] = {key: value for key, value in merged.items() if value is not None}
    return found
