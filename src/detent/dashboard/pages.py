"""The front end: one page for all screens, and its files, read once at the start and looked up by name."""

from __future__ import annotations

from hashlib import sha256
from html import escape
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from detent import __version__
from detent.dashboard.gate import USER, Refusal
from detent.dashboard.observer import Observer
from detent.text import quote

STATIC = Path(__file__).with_name("static")
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


class File(NamedTuple):
    kind: str
    content: bytes
    tag: str


def read_files() -> dict[str, File]:
    """The files by their path below `static`."""
    found = {}
    for path in STATIC.rglob("*"):
        if kind := KINDS.get(path.suffix):
            content = path.read_bytes()
            tag = f'"{sha256(content).hexdigest()[:16]}"'
            found[path.relative_to(STATIC).as_posix()] = File(kind, content, tag)
    return found


class Pages:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._files = read_files()

    async def page(self, request: Request) -> Response:
        user, apps = request.scope[USER], self._observer.apps
        values = {
            "root": request.scope.get("root_path", ""),
            "user": user.name,
            "role": user.role,
            "app": apps[0] if apps else "",
            "version": __version__,
        }
        text = self._files[INDEX].content.decode()
        for name, value in values.items():
            text = text.replace("{{" + name + "}}", escape(value))
        return Response(text, media_type="text/html")

    async def file(self, request: Request) -> Response:
        file = self._files.get(request.path_params["name"])
        if file is None or request.path_params["name"] == INDEX:
            raise Refusal(404, f"no file {quote(request.path_params['name'][:80])}")
        headers = {"ETag": file.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.kind, headers=headers)
