"""Serves the dashboard: in this thread for `detent dashboard`, in its own for `detent run --dashboard`."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import EADDRINUSE
from typing import TYPE_CHECKING, NamedTuple

from detent.dashboard import INSTALL, LISTEN
from detent.dashboard.auth import is_loopback, local_user, parse_auth, read_only
from detent.dashboard.source import Source
from detent.errors import UsageError
from detent.text import quote
from detent.views.formatting import current_user

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn import Server

PORT = 8732
KEEP_ALIVE_S = 5
CONNECTIONS_MAX = 1_200  # more than the observer's viewers
STOP_S = 2  # open streams have this long to end


class Options(NamedTuple):
    listen: str = LISTEN
    hosts: tuple[str, ...] = ()  # names under which browsers reach it
    auth: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    is_read_only: bool = False


class Address(NamedTuple):
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Address:
    """Parse `127.0.0.1:8732`, `:8732`, `[::1]:8732` or `host`."""
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    host, port = (host, port) if colon else (text, str(PORT))
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 2**16):
        raise UsageError(f"bad --listen {quote(text)}: use HOST:PORT, such as {LISTEN}")
    return Address(host, int(port))


def allowed_hosts(address: Address, names: Sequence[str]) -> set[str]:
    """The values of the header `Host` that browsers may send."""
    own = {"localhost", "127.0.0.1", "[::1]"} if address.is_loopback else {socket.gethostname(), address.host}
    with_port = {f"{name}:{address.port}" for name in own} | ({*own} if address.port == 80 else set())
    return {name.lower() for name in (*with_port, *names)}


def build(source: Source, options: Options, address: Address, env: Mapping[str, str]) -> ASGIApp:
    try:
        from detent.dashboard.site import site
    except ImportError as error:
        raise UsageError(f"{INSTALL} ({error})") from None
    if not options.auth and not address.is_loopback:
        raise UsageError(
            f"--listen {address} would let everyone in: add --auth token:env:NAME or --auth proxy:HEADER,"
            f" or listen on {LISTEN}"
        )
    secrets = {name: ref for manifest in source.manifests.values() for name, ref in manifest.secrets.items()}
    who = local_user(current_user())
    if options.auth:
        who = parse_auth(options.auth, options.proxies, secrets, env)
    if options.is_read_only:
        who = read_only(who)
    return site(source, who, allowed_hosts(address, options.hosts))


class Dashboard:
    """A dashboard.  It listens at once, and answers after `serve` or `start`."""

    def __init__(self, source: Source, options: Options, env: Mapping[str, str]) -> None:
        address = parse_listen(options.listen)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            self._socket = socket.create_server((address.host, address.port), family=family)
        except OSError as error:
            is_used = error.errno == EADDRINUSE
            advice = "; another program uses it: choose another port" if is_used else ""
            raise UsageError(f"cannot listen on {address}: {error.strerror}{advice}") from None
        self.address = address._replace(port=self._socket.getsockname()[1])
        try:
            app = build(source, options, self.address, env)
        except UsageError:
            self._socket.close()
            raise
        self._emit, self._server = source.emit, _new_server(app)
        self._thread = threading.Thread(target=self._run, name="detent-dashboard", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def serve(self) -> None:
        """Serve until a signal ends it."""
        self._emit("dashboard-started", url=self.url)
        with suppress(KeyboardInterrupt):  # uvicorn has shut down, and raises the signal again
            self._run()

    def start(self) -> None:
        """Serve in a thread; `stop` ends it."""
        self._thread.start()
        self._emit("dashboard-started", url=self.url)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_S * 2)

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


def _new_server(app: ASGIApp) -> Server:
    from uvicorn import Config, Server

    config = Config(
        app,
        log_level="critical",
        access_log=False,
        proxy_headers=False,  # the address of the peer decides whether a proxy is trusted
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_S,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_S,
    )
    return Server(config)
