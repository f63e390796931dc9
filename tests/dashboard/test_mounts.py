"""The dashboard within another web app, FastAPI and Django (ASGI): below a path, with that app's users."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from tests.dashboard.world import HOST, SAME, Site, make_app, run, sqlite_url

from detent.dashboard import User, asgi

DJANGO = """
import asyncio, json, os, sys
import django
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["dash.test"], ROOT_URLCONF="__main__", SECRET_KEY="x", USE_TZ=True)
urlpatterns = []
django.setup()
from django.core.asgi import get_asgi_application
from detent.dashboard import User, asgi
from tests.dashboard.world import Site, make_app

web, ops = get_asgi_application(), asgi(make_app(sys.argv[1]), who=lambda request: User("ana", "operate"))

async def application(scope, receive, send):
    if scope["type"] == "http" and scope["path"].startswith("/ops"):
        scope = {**scope, "root_path": "/ops"}
        await ops(scope, receive, send)
    else:
        await web(scope, receive, send)

async def main():
    site = Site(application)
    stream = site.open("GET", "/ops/api/events")
    await stream.next()
    _, document = await stream.event()
    await stream.close()
    page = await site.ask("GET", "/ops/jobs/shop.tick")
    other = await site.ask("GET", "/elsewhere")
    print(json.dumps([sorted(document["jobs"]), page.status, page.body.decode(), other.status]))

asyncio.run(main())
"""


async def current_user(request: Request) -> User | None:
    await asyncio.sleep(0)
    name = request.headers.get("x-session")
    return User(name, "operate" if name == "ana" else "read") if name else None


def mounted(url: str) -> Site:
    api = FastAPI()
    api.mount("/ops", asgi(make_app(url), who=current_user))

    @api.get("/")
    def root() -> dict[str, str]:
        return {"hello": "world"}

    return Site(api)


def test_a_mount_in_fastapi_serves_pages_files_streams_and_actions(tmp_path: Path) -> None:
    site, ana = mounted(sqlite_url(tmp_path)), {"x-session": "ana"}

    async def look() -> list[Any]:
        stream = site.open("GET", "/ops/api/events", ana)
        await stream.next()
        _, document = await stream.event()
        await stream.close()
        page = await site.ask("GET", "/ops/", ana)
        file = await site.ask("GET", "/ops/static/app.js", ana)
        pause = await site.ask("POST", "/ops/api/jobs/shop.tick/pause", SAME | ana, b"{}")
        return [document, page, file, pause]

    document, page, file, pause = run(look())
    assert {*document["jobs"]} == {"shop.backup", "shop.gone", "shop.tick"} and file.status == 200
    assert b'data-root="/ops"' in page.body and b'src="/ops/static/app.js"' in page.body
    assert pause.status == 200 and pause.json["by"] == "ana"
    assert site.get("/").json == {"hello": "world"} and "content-security-policy" not in site.get("/").headers


def test_a_mount_asks_the_app_who_the_user_is(tmp_path: Path) -> None:
    site = mounted(sqlite_url(tmp_path))
    for target in ("/ops/", "/ops/api/now", "/ops/api/events", "/ops/static/app.js"):
        assert site.get(target).status == 401
    answer = run(site.ask("POST", "/ops/api/jobs/shop.tick/pause", SAME | {"x-session": "bob"}, b"{}"))
    assert answer.status == 403 and "bob may read only" in answer.json["error"]
    missing = run(site.ask("GET", "/ops/api/nothing", {"x-session": "bob"}))
    assert missing.status == 404 and [*missing.json] == ["error"], "its own errors, not those of FastAPI"
    assert site.get("/ops/healthz").body == b"ok"


def test_a_mount_can_check_the_host(tmp_path: Path) -> None:
    api = FastAPI()
    api.mount("/ops", asgi(make_app(sqlite_url(tmp_path)), who=current_user, hosts=[HOST]))
    assert Site(api, {"x-session": "ana"}).get("/ops/").status == 200
    assert Site(api, {"x-session": "ana"}).get("/ops/", host="evil.test").status == 421


def test_a_mount_beside_django(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, sqlite_url(tmp_path)],
        capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    jobs, status, page, other = json.loads(done.stdout)
    assert jobs == ["shop.backup", "shop.gone", "shop.tick"] and status == 200 and other == 404
    assert 'data-root="/ops"' in page
