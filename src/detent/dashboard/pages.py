"""The front end: one page for all screens, and its files, read once at the start and looked up by name."""

from __future__ import annotations

from hashlib import sha256
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from detent import __version__
from detent.dashboard.gate import USER, Refusal
from detent.dashboard.observer import Observer
from detent.text import quote

SUFFIXES = {
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


class Pages:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._files = {name: _file(name, content) for name, content in _contents(_static(), "")}

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


def _static() -> Traversable:
    return resources.files("detent.dashboard") / "static"


def _contents(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _contents(one, f"{prefix}{one.name}/")
        elif _suffix(one.name) in SUFFIXES:
            found.append((prefix + one.name, one.read_bytes()))
    return found


def _file(name: str, content: bytes) -> File:
    tag = f'"{sha256(content).hexdigest()[:16]}"'
    return File(SUFFIXES[_suffix(name)], content, tag)


def _suffix(name: str) -> str:
    return "." + name.rpartition(".")[2]
