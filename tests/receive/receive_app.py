"""An app with a receiver, for tests: `python receive_app.py KIND PORT` serves it.

Each start of a job's function is a line in $NOTES/runs.  `slow` goes on when there is a file $NOTES/go.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from detent.receive import ReceivedFire, Receiver, Reject

NOTES = Path(os.environ["NOTES"])

cron = Receiver(
    "billing",
    base_url=os.environ["APP_URL"],
    secrets=["env:NEXT_SECRET", "env:CRON_SECRET"],
    dedupe=os.environ.get("RECEIPTS", ""),
    lease_seconds=float(os.environ.get("LEASE", "15")),
    reject_stale_fence=bool(os.environ.get("FENCED")),
    require_signed_manifest=bool(os.environ.get("SIGNED")),
    body_max=int(os.environ.get("BODY_MAX", "1048576")),
)


def note(fire: ReceivedFire) -> None:
    with (NOTES / "runs").open("a") as file:
        file.write(f"{fire.key} {fire.attempt} {fire.fence}\n")


@cron.job("0 2 * * *", name="note")
def plain(fire: ReceivedFire) -> dict[str, Any]:
    note(fire)
    return {"job": fire.job, "run": fire.run_id, "secret": fire.secret_index}


@cron.job("0 2 * * *", method="PUT")
def echo(fire: ReceivedFire) -> bytes:
    return fire.body


@cron.job("0 2 * * *")
async def waits(fire: ReceivedFire) -> str:
    await asyncio.sleep(0)
    note(fire)
    return f"attempt {fire.attempt}"


@cron.job("0 2 * * *")
def slow(fire: ReceivedFire) -> str:
    note(fire)
    while not (NOTES / "go").exists():
        time.sleep(0.01)
    return "went"


@cron.job("0 2 * * *")
def broken(fire: ReceivedFire) -> None:
    note(fire)
    raise ValueError(f"it broke with {os.environ['CRON_SECRET']}")


@cron.job("0 2 * * *")
def no() -> None:
    raise Reject("not today", status=410)


def serve_asgi(port: int, app: Any) -> None:
    import uvicorn

    uvicorn.run(app, port=port, log_level="warning", lifespan="on")


def serve_mounted(port: int) -> None:
    """Below /tasks of a Starlette app."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    serve_asgi(port, Starlette(routes=[Mount("/tasks", cron.asgi())]))


def serve_around(port: int) -> None:
    """Around another app."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def home(request: Any) -> PlainTextResponse:
        return PlainTextResponse("another app")

    serve_asgi(port, cron.asgi(Starlette(routes=[Route("/", home)])))


def serve_waitress(port: int) -> None:
    import waitress

    waitress.serve(cron.wsgi(), host="127.0.0.1", port=port, _quiet=True)


def serve_wsgiref(port: int) -> None:
    """A server that does not pass the path as it was sent."""
    from wsgiref.simple_server import make_server

    make_server("127.0.0.1", port, cron.wsgi()).serve_forever()


def flask_app() -> Any:
    from flask import Flask, request

    app = Flask(__name__)
    app.before_request(lambda: request.get_data()[:0] or None)  # another reader of the body
    app.register_blueprint(cron.blueprint(), url_prefix=os.environ.get("BELOW"))
    return app


def serve_gunicorn(port: int) -> None:
    words = ["-m", "gunicorn", "--threads", "4", "-b", f"127.0.0.1:{port}", "receive_app:flask_app()"]
    os.chdir(Path(__file__).parent)
    os.execv(sys.executable, [sys.executable, *words])


def django_settings() -> None:
    from django.conf import settings

    csrf = "django.middleware.csrf.CsrfViewMiddleware"
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x", MIDDLEWARE=[csrf])


def serve_django_wsgi(port: int) -> None:
    import waitress
    from django.core.wsgi import get_wsgi_application

    django_settings()
    _patterns()
    waitress.serve(get_wsgi_application(), host="127.0.0.1", port=port, _quiet=True)


def serve_django_asgi(port: int) -> None:
    import uvicorn
    from django.core.asgi import get_asgi_application

    django_settings()
    _patterns()
    uvicorn.run(get_asgi_application(), port=port, log_level="warning", lifespan="off")


urlpatterns: list[Any] = []


def _patterns() -> None:
    from django.urls import include, path

    urlpatterns[:] = [path(os.environ.get("BELOW", "").lstrip("/") or "", include(cron.urlpatterns()))]


KINDS: dict[str, Callable[[int], None]] = {
    "uvicorn": lambda port: serve_asgi(port, cron.asgi()),
    "mounted": serve_mounted,
    "around": serve_around,
    "waitress": serve_waitress,
    "wsgiref": serve_wsgiref,
    "gunicorn": serve_gunicorn,
    "django-wsgi": serve_django_wsgi,
    "django-asgi": serve_django_asgi,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](int(sys.argv[2]))
