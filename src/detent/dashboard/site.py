"""Puts the dashboard together: its routes, and the gate before them."""

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from importlib.util import find_spec

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from detent.dashboard.acting import Acting
from detent.dashboard.auth import Who
from detent.dashboard.gate import Gate
from detent.dashboard.observer import Observer
from detent.dashboard.pages import Pages
from detent.dashboard.reading import Reading
from detent.dashboard.shared import Shared
from detent.dashboard.source import Source, in_thread
from detent.observe.metrics.store_wide import render_store

SCREENS = ("/", "/jobs", "/jobs/{name:path}", "/fires", "/fires/{key:path}", "/queues", "/queues/{name:path}",
           "/nodes", "/audit")  # fmt: skip
Handler = Callable[[Request], Awaitable[Response]]
METRICS_S = 5.0  # how long scrapers share an answer
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PACKED_MIN = 1_000  # bytes: smaller answers are not compressed


def routes(observer: Observer) -> list[Route]:
    """Every route.  A longer path stands before a shorter one that would match it, too."""
    reading, acting, pages = Reading(observer), Acting(observer), Pages(observer)
    read: dict[str, Handler] = {
        "/healthz": reading.healthz,
        "/readyz": reading.readyz,
        "/api/now": reading.now,
        "/api/events": reading.events,
        "/api/jobs": reading.jobs,
        "/api/jobs/{name:path}/next": reading.next,
        "/api/fires": reading.fires,
        "/api/fires/{key:path}/why": reading.why,
        "/api/fires/{key:path}/output": reading.output,
        "/api/queues": reading.queues,
        "/api/queues/{name:path}/dead": reading.dead,
        "/api/nodes": reading.nodes,
        "/api/tally": reading.tally,
        "/api/audit": reading.audit,
        "/static/{name:path}": pages.file,
    }
    operate = {
        **{f"/api/jobs/{{name:path}}/{action}": action for action in ("fire", "pause", "resume")},
        **{f"/api/fires/{{key:path}}/{action}": action for action in ("kill", "again")},
        **{f"/api/queues/{{queue:path}}/{action}": action for action in ("retry", "forget")},
    }
    last = {"/api/jobs/{name:path}": reading.job, "/api/fires/{key:path}": reading.fire}
    last |= dict.fromkeys(SCREENS, pages.page)
    if metrics := _metrics_route(observer.source):
        read["/metrics"] = metrics
    return [
        *(Route(path, handler, methods=["GET"]) for path, handler in read.items()),
        *(Route(path, partial(acting.handle, action), methods=["POST"]) for path, action in operate.items()),
        *(Route(path, handler, methods=["GET"]) for path, handler in last.items()),
    ]


def _metrics_route(source: Source) -> Handler | None:
    """The metrics of the whole store; None without prometheus_client."""
    if find_spec("prometheus_client") is None:
        return None
    shared = Shared()

    def render() -> bytes:
        jobs = [job for manifest in source.manifests.values() for job in manifest.jobs]
        return render_store(source.store, source.store.apps(), jobs)

    async def metrics(request: Request) -> Response:
        text = await shared.get("metrics", METRICS_S, lambda: in_thread(render))
        return Response(text, media_type=METRICS_TYPE)

    return metrics


def site(source: Source, who: Who, hosts: Collection[str] = ()) -> ASGIApp:
    router = Router(routes=routes(Observer(source)), redirect_slashes=False)
    return Gate(GZipMiddleware(router, minimum_size=PACKED_MIN), who, hosts, source.emit)
