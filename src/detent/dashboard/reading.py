"""The routes that read.  Each answer is bounded, and reads the picture of the observer where it can."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from datetime import timedelta
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from detent import clock
from detent.dashboard import asked
from detent.dashboard.audit import read_audit
from detent.dashboard.document import WINDOWS_S, job_entries, overview_of
from detent.dashboard.fires import fire_details, output_of, read_fire
from detent.dashboard.gate import USER, Refusal
from detent.dashboard.observer import AppView, Observer, Watched
from detent.dashboard.queues import dead_entry, read_queues
from detent.dashboard.records import fire_entry, job_details, job_policy
from detent.dashboard.shared import Shared
from detent.dashboard.source import in_thread
from detent.dashboard.tasks import find_task, task_entries
from detent.errors import DetentError
from detent.messages.masking import MASKED
from detent.model import DEAD, Query
from detent.rules.rates import with_priorities
from detent.schedules.words import words_of
from detent.stores.base import app_of
from detent.stores.registry import promise_of
from detent.text import quote
from detent.views.formatting import iso
from detent.views.job_text import canonical_job, job_fields
from detent.views.lookup import job_of
from detent.views.nodes import node_record, remarks
from detent.views.upcoming import instants_of, upcoming_record
from detent.views.why_reasons import fire_sentences

COMMENT_S = 15.0  # a comment keeps an idle stream open
RETRY_MS = 2_000
NEXT_MAX = 100
HOURS_MAX = 48
ARGUMENTS = ("args", "enqueue.args", "request.body")  # fields of a definition
KEEP_S = 2.0  # how long clients share an answer
DIAGNOSIS_S = 60.0
TALLY_S = 10.0
READY_S = 1.0


class Reading:
    def __init__(self, observer: Observer) -> None:
        self._observer, self._source, self._shared = observer, observer.source, Shared()

    # The observer's picture.

    async def now(self, request: Request) -> Response:
        watched = await self._watched(request)
        text = await self._observer.document(watched, asked.text_of(request.query_params, "since") or None)
        return Response(text, media_type="application/json")

    async def events(self, request: Request) -> Response:
        watched = await self._watched(request)
        await self._observer.document(watched, None)  # an error is an answer, not a broken stream
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        since = request.headers.get("last-event-id") or request.query_params.get("since") or None

        async def stream(version: str | None = since) -> AsyncIterator[str]:
            yield f"retry: {RETRY_MS}\n\n"
            while True:
                found = await self._observer.after(watched, version, COMMENT_S)
                if found is None:
                    yield ": idle\n\n"
                else:
                    version = found[0]
                    yield f"id: {version}\ndata: {found[1]}\n\n"

        return _Stream(stream(), self._observer.viewing(watched))

    # Jobs.

    async def jobs(self, request: Request) -> Response:
        asked.check_names(request.query_params, ("app", "after", "limit"))
        view = await self._view(request)
        after = asked.text_of(request.query_params, "after")
        limit = asked.number(request.query_params, "limit", 100, asked.LIMIT_MAX)
        names = [name for name in view.picture.jobs() if name > after]
        page = names[:limit]
        found = await self._job_entries(view, page)
        return JSONResponse({"jobs": found, "after": page[-1] if len(names) > limit else None})

    async def job(self, request: Request) -> Response:
        name, view = await self._job(request)
        entry = (await self._job_entries(view, [name]))[0]
        picture, manifest = view.picture, view.picture.manifest
        base, fields, policy, words = name.partition("/")[0], [], None, ""
        if manifest and base in manifest.canonical:
            fields = [*self._fields(canonical_job(manifest, base))]
            job = next((job for job in manifest.jobs if job.name == base), None)
            policy, words = (job_policy(job), words_of(job.schedule)) if job else (None, "")
        is_known = manifest is not None and base in manifest.canonical and base not in manifest.disabled
        can = [*(["fire"] if is_known else []), "resume" if name in picture.pauses else "pause"]
        can = can if request.scope[USER].role == "operate" else []
        task = find_task(self._source, name) if can else None
        takes = task.parameters.names if task else None
        details = {"words": words, "fields": fields, "policy": policy, "takes": takes}
        details |= {"nodes": picture.holders(name), "can": can}
        return JSONResponse(entry | details)

    async def next(self, request: Request) -> Response:
        asked.check_names(request.query_params, ("limit",))
        limit = asked.number(request.query_params, "limit", 10, NEXT_MAX)
        name, view = await self._job(request)
        manifest = view.picture.manifest
        base = name.partition("/")[0]
        if manifest is None or base not in manifest.canonical or base in manifest.disabled:
            return JSONResponse([])
        job = job_of(manifest, name)
        found = islice(instants_of(manifest, job, view.picture.now, view.picture.pauses), limit)
        return JSONResponse([upcoming_record(one) | {"name": name} for one in found])

    async def _job_entries(self, view: AppView, names: list[str]) -> list[dict[str, Any]]:
        missing = [name for name in names if name not in view.picture.newest]
        if missing:
            found = await in_thread(self._source.store.newest, view.picture.app, missing)
            view.picture.take("more", found)
        picture = view.picture
        entries = job_entries(picture, names, overview_of(picture))
        return [{**job_details(name, picture.known(name)), **entries[name]} for name in names]

    def _fields(self, job: dict[str, Any]) -> list[list[str]]:
        """The definition of a job as texts, with secrets and its environment masked."""
        mask, hides = self._source.mask, self._source.hides_arguments
        found = []
        for field, value in job_fields(job):
            is_hidden = field.startswith("env.") or (hides and field in ARGUMENTS)
            found.append([field, MASKED if is_hidden else mask.text(value)])
        return found

    # Fires.

    async def fires(self, request: Request) -> Response:
        app = await self._app(request)
        query = asked.fires_query(request.query_params, app, clock.now())
        node = asked.text_of(request.query_params, "node")
        found = await in_thread(self._source.store.find, query)
        rows = [row for row in found if not node or node in (row.node, *(one.node for one in row.attempts))]
        return JSONResponse(
            {"fires": [fire_entry(row) for row in rows], "before": asked.cursor(found.before)}
        )

    async def fire(self, request: Request) -> Response:
        row = await in_thread(read_fire, self._source.store, request.path_params["key"])
        can_operate = request.scope[USER].role == "operate"
        return JSONResponse(await in_thread(fire_details, self._source, row, can_operate))

    async def why(self, request: Request) -> Response:
        row = await in_thread(read_fire, self._source.store, request.path_params["key"])
        view = await self._observer.view(app_of(row.fire.job))
        return JSONResponse({"fire": row.fire.key, "reasons": fire_sentences(row, view.picture.now)})

    async def output(self, request: Request) -> Response:
        query = request.query_params
        asked.check_names(query, ("attempt", "download"))
        attempt = asked.number(query, "attempt", 1, 10**6) if "attempt" in query else None
        row = await in_thread(read_fire, self._source.store, request.path_params["key"])
        found = await in_thread(output_of, self._source, row, attempt)
        if query.get("download"):
            headers = {"Content-Disposition": 'attachment; filename="output.txt"'}
            return PlainTextResponse(found["output"] or "", headers=headers)
        return JSONResponse(found)

    # Queues, nodes, numbers.

    async def queues(self, request: Request) -> Response:
        asked.check_names(request.query_params, ("app",))
        view = await self._view(request)
        picture, store = view.picture, self._source.store
        make = lambda: in_thread(read_queues, store, picture)  # noqa: E731
        found = await self._shared.get(("queues", picture.app), KEEP_S, make)
        return JSONResponse(found | {"tasks": task_entries(self._source, picture.app)})

    async def dead(self, request: Request) -> Response:
        query = request.query_params
        asked.check_names(query, ("app", "limit", "before"))
        wanted = Query(
            app=await self._app(request),
            state="over",
            origins=("push",),
            queues=with_priorities([request.path_params["name"][: asked.TEXT_MAX]]),
            kinds=DEAD,
            limit=asked.number(query, "limit", 50, asked.LIMIT_MAX),
            before=asked.place(asked.text_of(query, "before")),
        )
        found = await in_thread(self._source.store.find, wanted)
        entries = [dead_entry(row, self._source) for row in found]
        return JSONResponse({"dead": entries, "before": asked.cursor(found.before)})

    async def nodes(self, request: Request) -> Response:
        asked.check_names(request.query_params, ("app",))
        view = await self._view(request)
        nodes = view.picture.nodes
        store = await self._shared.get("diagnosis", DIAGNOSIS_S, lambda: in_thread(self._diagnosis))
        records = [node_record(node) for node in nodes]
        return JSONResponse({"nodes": records, "remarks": remarks(nodes), "store": store})

    def _diagnosis(self) -> dict[str, Any]:
        url = self._source.url
        found = promise_of(url) if url else ()
        return {"kind": url.partition(":")[0] or "?", "diagnosis": [one._asdict() for one in found]}

    async def tally(self, request: Request) -> Response:
        asked.check_names(request.query_params, ("app", "hours"))
        view, hours = await self._view(request), asked.number(request.query_params, "hours", 1, HOURS_MAX)
        app, until = view.picture.app, view.picture.now.replace(second=0, microsecond=0)
        since, step_s = until - timedelta(hours=hours), 60 if hours <= HOURS_MAX // 2 else 300

        async def make() -> dict[str, Any]:
            found = await in_thread(self._source.store.tally, app, since, until, step_s)
            rows = [
                {"at": iso(one.at), "name": one.job, "outcome": one.kind}
                | {name: getattr(one, name) for name in ("queue", "fires")}
                | {name: _finite(getattr(one, name)) for name in ("late_le_s", "took_le_s")}
                for one in found
            ]
            return {"since": iso(since), "until": iso(until), "step_s": step_s, "rows": rows}

        return JSONResponse(await self._shared.get(("tally", app, hours), TALLY_S, make))

    async def audit(self, request: Request) -> Response:
        asked.check_names(request.query_params, ("app", "limit"))
        app, limit = (
            await self._app(request),
            asked.number(request.query_params, "limit", 100, asked.LIMIT_MAX),
        )
        records = await in_thread(read_audit, self._source.store, app)
        return JSONResponse({"audit": records[:limit]})

    # For monitors.

    async def healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(self, request: Request) -> Response:
        async def make() -> bool:
            try:
                await in_thread(self._source.store.apps)
            except DetentError:
                return False
            return True

        is_ready = await self._shared.get("ready", READY_S, make)
        return PlainTextResponse("ok" if is_ready else "the store does not answer", 200 if is_ready else 503)

    # What a request names.

    async def _watched(self, request: Request) -> Watched:
        query = request.query_params
        asked.check_names(query, ("app", "window", "since"))
        await self._observer.find_apps()
        window = query.get("window", str(WINDOWS_S[0]))
        is_number = window.isascii() and window.isdigit() and len(window) < 9
        return self._observer.watched(query.get("app", ""), int(window) if is_number else 0)

    async def _app(self, request: Request) -> str:
        await self._observer.find_apps()
        return self._observer.watched(asked.text_of(request.query_params, "app"), 600).app

    async def _view(self, request: Request) -> AppView:
        return await self._observer.view(await self._app(request))

    async def _job(self, request: Request) -> tuple[str, AppView]:
        name = request.path_params["name"]
        await self._observer.find_apps()
        view = await self._observer.view(app_of(name) or "?")
        if name not in view.picture.jobs():
            raise Refusal(404, f"no job {quote(name[:80])}: write its whole name, app.job")
        return name, view


class _Stream(StreamingResponse):
    """A stream of events, which counts as a viewer while it is sent.  It is refused before its first byte if
    there are too many."""

    def __init__(self, events: AsyncIterator[str], viewing: AbstractContextManager[None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._viewing = viewing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._viewing:
            await super().__call__(scope, receive, send)


def _finite(value: float | None) -> float | str | None:
    """JSON has no infinity."""
    return "inf" if value == float("inf") else value
