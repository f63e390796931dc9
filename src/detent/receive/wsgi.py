"""The receiver as a WSGI app: alone, mounted below a path, or around another app."""

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from detent.receive.messages import Incoming, decode, requote
from detent.receive.receiver import Receiver

Environ = dict[str, Any]
WsgiApp = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

CHUNK = 65_536


def wsgi_app(receiver: Receiver, inner: WsgiApp | None) -> WsgiApp:
    def app(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = decode(environ.get("PATH_INFO", "").encode("latin-1", "replace")) or "/"
        if inner is not None and not receiver.owns(path):
            return inner(environ, start_response)
        reply = receiver.receive(incoming_of(environ, path, read_body(environ, receiver.body_max)))
        phrase = {one.value: one.phrase for one in HTTPStatus}.get(reply.status, "Unknown")
        start_response(f"{reply.status} {phrase}", reply.all_headers())
        return [reply.body]

    return app


def incoming_of(environ: Mapping[str, Any], path: str, body: bytes | None) -> Incoming:
    """Build the request from a WSGI environment, or from Django's META, which has the same keys."""
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): decode(value.encode("latin-1", "replace"))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    return Incoming(str(environ["REQUEST_METHOD"]), target_of(environ), path, headers, body)


def target_of(environ: Mapping[str, Any]) -> str:
    """path?query as it was sent: REQUEST_URI or RAW_URI; without them, the path is quoted again."""
    raw = str(environ.get("REQUEST_URI") or environ.get("RAW_URI") or "")
    if "://" in raw.partition("?")[0]:  # the absolute form, with scheme and host before the path
        rest = raw.partition("://")[2]
        raw = rest[rest.find("/") :] if "/" in rest else "/"
    if raw.startswith("/"):
        return raw
    path = f"{environ.get('SCRIPT_NAME', '')}{environ.get('PATH_INFO', '')}".encode("latin-1", "replace")
    query = environ.get("QUERY_STRING", "")
    return f"{requote(path)}?{query}" if query else requote(path)


def read_body(environ: Environ, most: int) -> bytes | None:
    """The body as it was sent; None: it is larger than `most` bytes."""
    length = str(environ.get("CONTENT_LENGTH") or "")
    if length.isdecimal():
        left = int(length)
    else:
        left = most + 1 if environ.get("wsgi.input_terminated") else 0  # a chunked body ends by itself
    if length.isdecimal() and left > most:
        return None
    body = bytearray()
    while left > 0 and (some := environ["wsgi.input"].read(min(left, CHUNK))):
        body += some
        left -= len(some)
    return None if len(body) > most else bytes(body)
