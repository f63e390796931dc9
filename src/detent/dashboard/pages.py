"""The front end: one page for all screens, and its files."""

from html import escape
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from detent import __version__
from detent.dashboard.gate import USER
from detent.dashboard.observer import Observer

STATIC = Path(__file__).with_name("static")


class Pages:
    def __init__(self, observer: Observer) -> None:
        self._observer, self._files = observer, StaticFiles(directory=STATIC)

    async def page(self, request: Request) -> Response:
        user, apps = request.scope[USER], self._observer.apps
        values = {
            "root": request.scope.get("root_path", ""),
            "user": user.name,
            "role": user.role,
            "app": apps[0] if apps else "",
            "version": __version__,
        }
        text = (STATIC / "index.html").read_text()
        for name, value in values.items():
            text = text.replace("{{" + name + "}}", escape(value))
        return Response(text, media_type="text/html")

    async def file(self, request: Request) -> Response:
        response = await self._files.get_response(request.path_params["name"], request.scope)
        response.headers["Cache-Control"] = "no-cache"
        return response
