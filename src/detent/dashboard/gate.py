"""The one gate before every route, stream and file: host, user, role, origin and size, then the route.

1. `Host` has to be a known name, else 421.  A page of another site that resolves to this machine (DNS
   rebinding) sends its own name.
2. `who` has to find a user, else 401.  `healthz` and `readyz` are open: they return one word.
3. Another site may link to a page, but its pages may not read the API: 403.
4. A POST needs the role `operate`, a body in JSON, and a bearer token or `Sec-Fetch-Site: same-origin`.  Its
   `Origin` has to be the `Host`.
5. Every response has the security headers.  None has a CORS header or a cookie.
6. An error is one JSON sentence, never a traceback.
"""

import json
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from detent.dashboard.auth import User, Who, user_of
from detent.errors import DetentError, StoreUnavailable
from detent.events import Emit
from detent.text import quote

BODY_MAX = 64 * 1024
TARGET_MAX = 8 * 1024  # bytes of the path and the query
OPEN = frozenset({"/healthz", "/readyz"})
USER = "detent.user"  # where the gate leaves the user in the scope
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NO_STORE = (b"cache-control", b"no-store")


class Refusal(Exception):
    """A request that gets no answer but an error."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error

    def response(self) -> Response:
        headers = {"WWW-Authenticate": 'Basic realm="detent", charset="UTF-8"'} if self.status == 401 else {}
        return JSONResponse({"error": self.error}, self.status, headers)


class _Sender:
    """Adds the security headers to a response."""

    def __init__(self, send: Send) -> None:
        self._send, self.has_begun = send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = [*message.get("headers", ()), *HEADERS]
            if all(name.lower() != b"cache-control" for name, _ in headers):
                headers.append(NO_STORE)
            message = {**message, "headers": headers}
        await self._send(message)


class Gate:
    def __init__(self, inside: ASGIApp, who: Who, hosts: Collection[str], emit: Emit) -> None:
        """`hosts`: allowed values of `Host` with the port, in lower case; empty: the server around it checks
        them."""
        self._inside, self._who, self._hosts, self._emit = inside, who, frozenset(hosts), emit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inside(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, _Sender(send))
        else:  # there are no websockets
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: _Sender) -> None:
        scope = {**scope, "app": self}  # with an app, routes raise their errors instead of writing them
        scope.pop("starlette.exception_handlers", None)  # those of the app around it
        try:
            scope[USER] = await self._admit(Request(scope))
            await self._inside(scope, receive, send)
        except Exception as error:
            refusal = self._refusal(error)
            if send.has_begun:  # a stream: the client sees it end, and connects again
                return
            await refusal.response()(scope, receive, send)

    def _refusal(self, error: Exception) -> Refusal:
        if isinstance(error, Refusal):
            return error
        if isinstance(error, HTTPException):  # of the router: 404, 405
            return Refusal(error.status_code, f"{error.detail}: docs/howto/dashboard.md lists the routes")
        if isinstance(error, StoreUnavailable):
            return Refusal(503, f"the store does not answer: {error}; try again, or run `detent doctor`")
        if isinstance(error, DetentError):
            return Refusal(409, str(error))
        self._emit("internal-error", error=f"{type(error).__name__}: {error}")
        return Refusal(500, "a bug in detent: its log has an event internal-error; please report it")

    async def _admit(self, request: Request) -> User | None:
        path = _path(request)
        if path in OPEN:
            return None
        if len(request.url.path) + len(request.url.query) > TARGET_MAX:
            raise Refusal(400, f"the address is longer than {TARGET_MAX} characters: use fewer filters")
        host = request.headers.get("host", "").lower()
        if self._hosts and host not in self._hosts:
            allowed = ", ".join(sorted(self._hosts))
            raise Refusal(421, f"unknown host {quote(host[:80])}: use one of {allowed}, or start with --host")
        user = await user_of(self._who, request)
        if user is None:
            raise Refusal(401, "sign in first: send the token as a bearer token or as the password")
        if request.method == "POST":
            _check_post(request, user)
        elif request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and (
            request.headers.get("sec-fetch-mode") != "navigate" or path.startswith("/api/")
        ):
            raise Refusal(403, "a page of another site may not read the dashboard: open it directly")
        return user


def _path(request: Request) -> str:
    """The path below the mount."""
    path, root = request.scope["path"], request.scope.get("root_path", "")
    return str(path.removeprefix(root)) if root and path.startswith(root + "/") else str(path)


def _check_post(request: Request, user: User) -> None:
    headers = request.headers
    is_bearer = headers.get("authorization", "").lower().startswith("bearer ")
    if not is_bearer and headers.get("sec-fetch-site") != "same-origin":
        raise Refusal(403, "only a page of the dashboard, or a bearer token, may change something")
    origin = headers.get("origin")
    if origin is None and not is_bearer:
        raise Refusal(403, "the request has no Origin: send it from a page of the dashboard")
    if origin is not None and _netloc(origin) != headers.get("host", "").lower():
        raise Refusal(403, f"a page of another site, {quote(origin[:80])}, may not change something")
    if user.role != "operate":
        raise Refusal(403, f"{user.name} may read only: a user with the role operate can do this")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "the body has to be JSON: send Content-Type: application/json")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


async def body_of(request: Request) -> dict[str, object]:
    """The JSON object in the body of a POST, which is small."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > BODY_MAX:
                raise Refusal(400, f"the body is longer than {BODY_MAX} bytes")
        found = json.loads(body or b"{}")
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except ClientDisconnect:
        raise Refusal(400, "the connection ended before the body") from None
    except (ValueError, RecursionError):
        raise Refusal(400, 'the body is not JSON: send an object such as {"reason": ""}') from None
    if not isinstance(found, dict):
        raise Refusal(400, 'the body is not a JSON object: send one such as {"reason": ""}')
    return found
