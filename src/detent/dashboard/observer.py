"""The observer: one poller for each process and store, which runs only while a client looks.

- The calls of the store do not depend on the number of clients.  A bucket of tokens limits them: three a
  second, and a few more at once when the first client comes, for a wide look.
- Steps run one after the other in a thread; the loop builds a document each second and wakes the streams.
- If the store does not answer, the last picture stays, with its age.
"""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import Any, NamedTuple

from detent import clock
from detent.dashboard.document import WINDOWS_S, document
from detent.dashboard.gate import Refusal
from detent.dashboard.picture import PERIODS_S, Picture
from detent.dashboard.source import Source, in_thread
from detent.dashboard.versions import Versions
from detent.errors import DetentError
from detent.text import quote

CALLS_S = 3.0  # calls of the store in a second
BURST = 12  # calls at once for a wide look
TICK_S = 1.0
POLLED_S = 5.0  # a client that polls counts as a viewer for this time
RETRY_S = 2.0  # between two calls of a store that does not answer
FIRST_S = 5.0  # how long a client waits for the first picture
FRESH_S = 3.0  # how overdue a step may be in the first document of a client
VIEWERS_MAX = 1_000
RELOAD_S = 5.0  # how often changed files of manifests are looked for
APPS_S = 30.0  # how often the names of the apps are read


class Watched(NamedTuple):
    """An app and the window of its timeline."""

    app: str
    window_s: int


class Bucket:
    """Tokens for the calls of the store."""

    def __init__(self) -> None:
        self._tokens, self._at = float(BURST), clock.monotonic()

    def take(self) -> bool:
        now = clock.monotonic()
        self._tokens = min(float(BURST), self._tokens + (now - self._at) * CALLS_S)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class AppView:
    """The picture of one app, and when each of its steps was last read."""

    def __init__(self, source: Source, app: str) -> None:
        self.picture = Picture(app, source.manifests.get(app))
        self.read_at: dict[str, float] = {}
        self.good_at = clock.monotonic()
        self.error = ""

    def next_step(self) -> tuple[float, str]:
        """The step that is overdue the most, and how many of its periods have passed."""
        return max((self._age_s(step) / self.picture.period_s(step), step) for step in self._useful())

    @property
    def is_fresh(self) -> bool:
        """Whether every step was read, and not long ago."""
        return all(self._age_s(step) <= FRESH_S + PERIODS_S[step] for step in self._useful())

    def _useful(self) -> list[str]:
        return [step for step in PERIODS_S if self.picture.is_useful(step)]

    def _age_s(self, step: str) -> float:
        return clock.monotonic() - self.read_at.get(step, float("-inf"))

    def hurry(self) -> None:
        """Read everything that a user can change as soon as possible."""
        for step in ("recent", "running", "pauses", "sizes"):
            self.read_at.pop(step, None)


class Observer:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.apps: list[str] = sorted(source.manifests)
        self._apps_at = float("-inf")
        self._apps_lock = asyncio.Lock()
        self._apps_error: DetentError | None = None  # of the last read
        self._views: dict[str, AppView] = {}
        self._documents: dict[Watched, Versions] = {}
        self._streams: dict[Watched, int] = {}
        self._polled: dict[Watched, float] = {}
        self._bucket, self._reloaded_at = Bucket(), clock.monotonic()
        self._name = secrets.token_hex(4)
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # replaced at each publication

    # For routes.

    def watched(self, app: str, window_s: int) -> Watched:
        """Check what a client wants to see."""
        if window_s not in WINDOWS_S:
            raise Refusal(400, f"bad window {window_s}: use one of {', '.join(map(str, WINDOWS_S))} seconds")
        app = app or (self.apps[0] if self.apps else "")
        if app not in self.apps:
            some = ", ".join(self.apps[:5]) or "none yet: start `detent run`"
            raise Refusal(404, f"no app {quote(app[:80])} in the store; there are {some}")
        return Watched(app, window_s)

    async def find_apps(self) -> list[str]:
        """The names of the apps, read again if they are old.  Requests wait for another request's read only
        while no name is known yet."""
        if self.apps and self._apps_lock.locked():
            return self.apps
        async with self._apps_lock:
            if clock.monotonic() - self._apps_at > APPS_S:
                try:
                    found = await in_thread(self.source.store.apps)
                except DetentError as error:
                    self._apps_at, self._apps_error = clock.monotonic() - APPS_S + RETRY_S, error
                else:
                    own = [*self.source.manifests]
                    self.apps = [*own, *(app for app in found if app not in own)]
                    self._apps_at, self._apps_error = clock.monotonic(), None
            if self._apps_error and not self.apps:
                raise self._apps_error
        return self.apps

    async def document(self, watched: Watched, since: str | None) -> str:
        """The newest document, for a client that polls."""
        self._polled[watched] = clock.monotonic() + POLLED_S
        return await self._first(watched, since)

    @contextmanager
    def viewing(self, watched: Watched) -> Iterator[None]:
        """Count a stream as a viewer."""
        most = viewers_max()
        if sum(self._streams.values()) >= most:
            raise Refusal(
                503,
                f"{most:,} streams are open already, the most of one process ({VIEWERS_MAX:,}, or half of its"
                " `ulimit -n`): close some pages, poll api/now instead, or start another `detent dashboard`",
            )
        self._streams[watched] = self._streams.get(watched, 0) + 1
        try:
            yield
        finally:
            self._streams[watched] -= 1

    async def after(self, watched: Watched, version: str | None, timeout_s: float) -> tuple[str, str] | None:
        """The version and the document that follow this version; None if nothing changes in time."""
        text = await self._first(watched, version)
        document = self._documents[watched]
        until = clock.monotonic() + timeout_s
        while document.version == version:
            left_s, changed = until - clock.monotonic(), self._changed
            if left_s <= 0:
                return None
            try:
                await asyncio.wait_for(changed.wait(), left_s)
            except TimeoutError:
                return None
            text = document.since(version)
        return document.version, text

    async def view(self, app: str) -> AppView:
        """The picture of an app, for other screens; it counts as a viewer for a while."""
        watched = self.watched(app, WINDOWS_S[0])
        await self.document(watched, None)
        return self._views[watched.app]

    def hurry(self, app: str) -> None:
        if view := self._views.get(app):
            view.hurry()

    # The poller.

    async def _first(self, watched: Watched, since: str | None) -> str:
        self._start()
        until = clock.monotonic() + FIRST_S
        if watched not in self._documents and watched.app in self._views:
            self._publish({watched})  # another window of a picture that is there
        while watched not in self._documents and clock.monotonic() < until:
            try:
                await asyncio.wait_for(self._changed.wait(), until - clock.monotonic())
            except TimeoutError:
                break
        if watched not in self._documents:
            view = self._views.get(watched.app)
            raise Refusal(
                503, f"the store does not answer: {view.error if view else ''}; run `detent doctor`"
            )
        return self._documents[watched].since(since)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._changed = asyncio.Event()
            self._documents.clear()  # a task whose loop was closed has left them
            self._task = loop.create_task(self._run())

    def _viewed(self) -> set[Watched]:
        now = clock.monotonic()
        self._polled = {watched: until for watched, until in self._polled.items() if until > now}
        self._streams = {watched: count for watched, count in self._streams.items() if count}
        return {*self._polled, *self._streams}

    async def _run(self) -> None:
        """Read and publish until no client looks any more."""
        while viewed := self._viewed():
            began = clock.monotonic()
            self._documents = {one: document for one, document in self._documents.items() if one in viewed}
            await self._reload()
            for app in {watched.app for watched in viewed}:
                view = self._views.get(app)
                if view is None or view.picture.manifest is not self.source.manifests.get(app):
                    self._views[app] = AppView(self.source, app)
            reading = asyncio.ensure_future(self._read([self._views[one.app] for one in viewed]))
            while not reading.done():
                await asyncio.wait([reading], timeout=TICK_S)
                self._publish(viewed)
            reading.result()
            await asyncio.sleep(max(0.0, began + TICK_S - clock.monotonic()))
        self._documents.clear()

    async def _reload(self) -> None:
        if clock.monotonic() - self._reloaded_at > RELOAD_S:
            self._reloaded_at = clock.monotonic()
            await in_thread(self.source.reload)

    async def _read(self, views: list[AppView]) -> None:
        """Run the steps that are due, the most overdue first, while there are tokens."""
        unique = {id(view): view for view in views}
        while unique:
            ident, (periods, step) = max(
                ((ident, view.next_step()) for ident, view in unique.items()), key=lambda one: one[1]
            )
            view = unique[ident]
            if periods < 1:
                return
            if view.error and clock.monotonic() - view.read_at.get(step, 0.0) < RETRY_S:
                del unique[ident]
                continue
            if not self._bucket.take():
                return
            await self._step(view, step)
            if view.error:
                del unique[ident]

    async def _step(self, view: AppView, step: str) -> None:
        try:
            found = await in_thread(view.picture.fetch, step, self.source.store)
        except DetentError as error:
            view.error = self.source.mask.text(str(error))
        except Exception as error:
            view.error = "a bug in detent: its log has an event internal-error; please report it"
            self.source.emit("internal-error", error=f"{type(error).__name__}: {error}")
        else:
            view.picture.take(step, found)
            view.good_at, view.error = clock.monotonic(), ""
        view.read_at[step] = clock.monotonic()

    def _publish(self, viewed: set[Watched]) -> None:
        changed = False
        for watched in viewed:
            view = self._views[watched.app]
            is_ready = watched in self._documents or view.is_fresh or view.error
            if not view.picture.has_begun or not is_ready:
                continue
            if watched not in self._documents:
                self._documents[watched] = Versions(f"{self._name}-{secrets.token_hex(2)}")
            changed |= self._documents[watched].take(self._document(view, watched))
        if changed:
            self._changed.set()
            self._changed = asyncio.Event()

    def _document(self, view: AppView, watched: Watched) -> dict[str, Any]:
        found = document(view.picture, watched.window_s) | {"apps": self.apps, "stale": None}
        if view.error:
            age_s = round(clock.monotonic() - view.good_at, 1)
            found["stale"] = {"age_s": age_s, "error": view.error}
        return found


def viewers_max() -> int:
    """Streams take at most half of the files that this process may open: a node in it needs some, too."""
    files, _ = getrlimit(RLIMIT_NOFILE)
    return VIEWERS_MAX if files == RLIM_INFINITY else min(VIEWERS_MAX, files // 2)
