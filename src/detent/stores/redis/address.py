"""URLs of Redis servers.

- `redis://[user:password@]host[:port][/db]`, with TLS `rediss://`; `unix:///path/to/socket`.
- `redis+sentinel://host[:port],host/service[/db]` asks Sentinels for the master, and
  `redis+cluster://host[:port],host` finds an app's server in a cluster; with TLS `rediss+…://`.
- Options are redis-py's: `?ssl_ca_certs=/ca.pem`, `?socket_timeout=3`; `?sentinel_password=…` for Sentinels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from detent.errors import UsageError
from detent.text import quote

TIMEOUT_S = 5.0  # for one reply; a server may pause for more than 2 s
CONNECT_S = 3.0
PORT, SENTINEL_PORT = 6379, 26379
FORM = (
    'write "redis://USER:PASSWORD@HOST:PORT/DB", of which all but the host may be left out; '
    "special characters of a password are written as %XX"
)
Host = tuple[str, int]


class Address(NamedTuple):
    """The parts of a URL."""

    kind: str  # plain | sentinel | cluster
    hosts: tuple[Host, ...]
    service: str
    options: Mapping[str, Any]
    sentinel_options: Mapping[str, Any]

    @property
    def where(self) -> str:
        if "path" in self.options:
            return f"the Redis at {self.options['path']}"
        hosts = ", ".join(f"{host}:{port}" for host, port in self.hosts)
        if self.kind == "sentinel":
            return f"the Redis {quote(self.service)} of the Sentinels at {hosts}"
        return f"the Redis at {hosts}"


def import_redis() -> Any:
    try:
        import redis
    except ModuleNotFoundError:
        raise UsageError("a Redis store needs redis-py: pip install 'detent[redis]'") from None
    return redis


def parse(url: str) -> Address:
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        raise UsageError(f"bad store: its Redis URL is wrong: {FORM}")
    security, _, kind = scheme.partition("+")
    where, _, query = rest.partition("?")
    # A password may hold any character but an unescaped @.
    user, at, where = where.rpartition("@")
    hosts, _, path = where.partition("/")
    service, _, db = path.partition("/") if kind == "sentinel" else ("", "", path)
    sentinel, further = _sentinel_options(query)
    whole = f"{security}://{user}{at}{where}" if not kind else f"{security}://{user}{at}host/{db}"
    options = _options(whole + (f"?{further}" if further else ""))
    if kind == "sentinel" and not service:
        raise UsageError('bad store: a Sentinel URL names its service: "redis+sentinel://HOST,HOST/SERVICE"')
    default = SENTINEL_PORT if kind == "sentinel" else PORT
    named = tuple(_host(one, default) for one in hosts.split(",")) if scheme != "unix" else ()
    return Address(kind or "plain", named, service, options, sentinel)


def _options(url: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": CONNECT_S,
        "health_check_interval": 0,
        "protocol": 2,  # all versions of redis-py give the same replies with it
    }
    if not url.startswith("unix:"):
        settings["socket_keepalive"] = True
    try:
        options = {**settings, **import_redis().connection.parse_url(url)}
        if url.startswith("rediss:") and "ssl_cert_reqs" not in options:
            options.setdefault("ssl_check_hostname", True)  # redis-py before 6.0 does not set it
        return options
    except UsageError:
        raise
    except ValueError as error:
        why = (
            str(error) if str(error).startswith("Invalid value for") else FORM
        )  # other messages may hold the password
        raise UsageError(f"bad store: its Redis URL is wrong: {why}") from None


def _sentinel_options(query: str) -> tuple[dict[str, str], str]:
    pairs = parse_qsl(query)
    ours = {name: value for name, value in pairs if name.startswith("sentinel_")}
    rest = urlencode([pair for pair in pairs if pair[0] not in ours])
    return {name.removeprefix("sentinel_"): value for name, value in ours.items()}, rest


def _host(text: str, port: int) -> tuple[str, int]:
    host, colon, given = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if colon and not given.isdecimal():
        raise UsageError(f"bad store: {quote(text)} is not a host with a port")
    return (host if colon else text).strip("[]") or "localhost", int(given) if colon else port
