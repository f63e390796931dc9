"""The receiver as an ASGI app: alone, mounted below a path, or around another app."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from detent.receive.messages import Incoming, Reply, gather, requote
from detent.receive.receiver import Receiver

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


def asgi_app(receiver: Receiver, inner: AsgiApp | None) -> AsgiApp:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and (inner is None or receiver.owns(path_of(scope)))
        if not is_ours and inner is not None:
            await inner(scope, receive, send)
        elif scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await _answer(receiver, scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    return app


async def _answer(receiver: Receiver, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    incoming = Incoming(
        method=scope["method"],
        target=target_of(scope),
        path=path_of(scope),
        headers=gather(scope["headers"]),
        body=await _read(receive, receiver.body_max),
    )
    task = asyncio.get_running_loop().create_task(receiver.receive_async(incoming))
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    # A disconnected caller may cancel this coroutine, but not the job that has begun.
    reply = await asyncio.shield(task)
    headers = [(name.lower().encode("latin-1"), value.encode()) for name, value in reply.all_headers()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


_under_way: set[asyncio.Task[Reply]] = set()  # a loop keeps only weak references to its tasks


def target_of(scope: MutableMapping[str, Any]) -> str:
    """path?query as it was sent; the path is quoted again if the server does not pass the raw one."""
    raw = scope.get("raw_path")
    path = raw.decode("latin-1") if raw else requote(scope["path"])
    query = scope.get("query_string", b"").decode("latin-1")
    return f"{path}?{query}" if query else path


def path_of(scope: MutableMapping[str, Any]) -> str:
    """The decoded path, without the mount point."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path


async def _read(receive: Receive, most: int) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > most:
            return None
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return bytes(body)


async def _live(receive: Receive, send: Send) -> None:
    for stage in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{stage}.complete"})
