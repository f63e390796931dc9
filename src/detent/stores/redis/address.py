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
from detent.stores.redis.link import CONNECT_S, PORT, TIMEOUT_S
from detent.text import quote

ANSWER_S = 1.0  # for the reply of one Sentinel
SENTINEL_PORT = 26379
FORM = (
    'write "redis://USER:PASSWORD@HOST:PORT/DB", of which all but the host may be left out; '
    "special characters of a password are written as %XX"
)
Host = tuple[str, int]


class Address(NamedTuple):
    kind: str  # plain | sentinel | cluster
    hosts: tuple[Host, ...]
    service: str
    options: Mapping[str, Any]
    sentinel_options: Mapping[str, Any]  # the TLS options of the master, but their own user and password

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
    pairs = parse_qsl(query)
    theirs = {name: value for name, value in pairs if name.startswith("sentinel_")}
    further = urlencode([pair for pair in pairs if pair[0] not in theirs])
    whole = f"{security}://{user}{at}{where}" if not kind else f"{security}://{user}{at}host/{db}"
    options = _options(whole + (f"?{further}" if further else ""))
    if kind == "sentinel" and not service:
        raise UsageError('bad store: a Sentinel URL names its service: "redis+sentinel://HOST,HOST/SERVICE"')
    default = SENTINEL_PORT if kind == "sentinel" else PORT
    named = tuple(_host(one, default) for one in hosts.split(",")) if scheme != "unix" else ()
    shared = {name: value for name, value in options.items() if name.startswith(("ssl_", "connection_class"))}
    shared |= {name: min(ANSWER_S, options[name]) for name in ("socket_timeout", "socket_connect_timeout")}
    shared |= {name.removeprefix("sentinel_"): value for name, value in theirs.items()}
    return Address(kind or "plain", named, service, options, shared | {"decode_responses": True})


def _options(url: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": CONNECT_S,
        "health_check_interval": 0,
        "protocol": 2,  # all versions of redis-py give the same replies with it
    }
    if not url.startswith("unix:"):
        settings["socket_keepalive"] = True
    parse_url = import_redis().connection.parse_url
    try:
        options = {**settings, **parse_url(url)}
    except ValueError as error:  # its message may hold the password
        why = str(error) if str(error).startswith("Invalid value for") else FORM
        raise UsageError(f"bad store: its Redis URL is wrong: {why}") from None
    if url.startswith("rediss:") and "ssl_cert_reqs" not in options:
        options.setdefault("ssl_check_hostname", True)  # redis-py before 6.0 does not set it
    return options


def _host(text: str, port: int) -> Host:
    host, colon, given = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if colon and not given.isdecimal():
        raise UsageError(f"bad store: {quote(text)} is not a host with a port")
    return (host if colon else text).strip("[]") or "localhost", int(given) if colon else port
