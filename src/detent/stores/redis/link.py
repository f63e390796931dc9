"""Connects to a Redis or Valkey server with redis-py, and explains its errors.

- `redis://[user:password@]host[:port][/db]`, with TLS `rediss://`; `unix:///path/to/socket`.
- `redis+sentinel://host[:port],host/service[/db]` asks Sentinels for the master (`sentinel`), and
  `redis+cluster://host[:port],host` finds an app's server in a cluster; with TLS `rediss+…://`.
- Options are redis-py's: `?ssl_ca_certs=/ca.pem`, `?socket_timeout=3`; `?sentinel_password=…` for Sentinels.
- The client never retries: the caller decides, because a failed call may have taken effect.
- Each calling thread has its own connection.  No message holds a password.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from detent.errors import DetentError, StoreMismatch, StoreUnavailable, UsageError
from detent.stores.redis.script import Script
from detent.stores.redis.sentinel import Host, Sentinels, sentinel_options
from detent.text import quote

Client = Any  # the types of redis-py are not precise enough
TIMEOUT_S = 5.0  # for one reply; a server may pause for more than 2 s
CONNECT_S = 3.0
ACKNOWLEDGE_S = 2.0  # for `wait_replicas`, which is part of a reply
PORT, SENTINEL_PORT = 6379, 26379
REDIRECTS_MAX = 5  # slots move rarely
OTHER_VERSION = "was used by another version of detent, which keeps things otherwise: upgrade the older one"
READ_ONLY = "is a read-only replica: name its master"
AWAY = ("LOADING", "BUSY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED")


class Address(NamedTuple):
    """The parts of a URL."""

    kind: str  # plain | sentinel | cluster
    hosts: tuple[Host, ...]
    service: str
    options: Mapping[str, Any]
    sentinel_options: Mapping[str, Any]


class Link:
    """Connections to one server, or to the servers of a cluster.  Opened at the first use."""

    def __init__(self, url: str, wait_replicas: int) -> None:
        self._address, self._wait_replicas = parse(url), wait_replicas
        self._lock = threading.Lock()
        self._client: Client = None
        self._master: Host | None = None  # the server of the client, if Sentinels named it
        self._sentinels: Sentinels | None = None
        self._cluster: Client = None
        self._keeps_functions = True

    @property
    def where(self) -> str:
        """How messages name the server."""
        address = self._address
        if "path" in address.options:
            return f"the Redis at {address.options['path']}"
        hosts = ", ".join(f"{host}:{port}" for host, port in address.hosts)
        kinds = {"sentinel": f"the Redis {quote(address.service)} of the Sentinels at"}
        return f"{kinds.get(address.kind, 'the Redis at')} {hosts}"

    def run(self, script: Script, key: str, arguments: Sequence[bytes | str], is_write: bool) -> list[bytes]:
        """Run the script once on the server that has the key."""
        acknowledged = self._wait_replicas if is_write else 0
        with self._translated():
            for _ in range(REDIRECTS_MAX):
                try:
                    return self._run(self.client(key), script, (1, key, *arguments), acknowledged)
                except _redis().exceptions.MovedError:
                    self._forget()  # the script did not run there
        raise StoreUnavailable(f"{self.where}: the slot of {quote(key)} moves from server to server")

    def _run(
        self, client: Client, script: Script, arguments: tuple[Any, ...], acknowledged: int
    ) -> list[bytes]:
        errors = _redis().exceptions
        if script.is_kept and self._keeps_functions:
            try:
                return self._call_function(client, script, arguments, acknowledged)
            except errors.NoPermissionError:
                self._keeps_functions = False
            except errors.ResponseError as refused:
                if "unknown command" not in str(refused):  # the reply of Redis 6.2
                    raise
                self._keeps_functions = False
        try:
            return self._send(client, ("EVALSHA", script.sha, *arguments), acknowledged)
        except errors.NoScriptError:  # the server was restarted, or is another one
            return self._send(client, ("EVAL", script.whole, *arguments), acknowledged)

    def _call_function(
        self, client: Client, script: Script, arguments: tuple[Any, ...], acknowledged: int
    ) -> list[bytes]:
        command, errors = ("FCALL", script.function, *arguments), _redis().exceptions
        try:
            return self._send(client, command, acknowledged)
        except errors.ResponseError as refused:
            if "Function not found" not in str(refused):
                raise
        try:
            client.execute_command("FUNCTION", "LOAD", script.library)
        except errors.ResponseError as refused:
            if "already exists" not in str(refused):  # another process loaded it
                raise
        return self._send(client, command, acknowledged)

    def _send(self, client: Client, command: tuple[Any, ...], acknowledged: int) -> list[bytes]:
        answer: list[bytes]
        if not acknowledged:
            answer = client.execute_command(*command)
            return answer
        both = client.pipeline(transaction=False)  # WAIT covers the writes of its own connection
        both.execute_command(*command)
        both.execute_command("WAIT", acknowledged, round(ACKNOWLEDGE_S * 1000))
        answers = both.execute(raise_on_error=False)  # else the error would hold the whole command
        for error in (one for one in answers if isinstance(one, Exception)):
            raise error
        answer, replicas = answers
        if replicas < acknowledged:
            have = f"{replicas} of {acknowledged} replicas have it"
            raise StoreUnavailable(f"{self.where}: {have} (`wait_replicas`); whether it stands is unknown")
        return answer

    def call(self, key: str, *command: Any) -> Any:
        """Run one command on the server that has the key."""
        with self._translated():
            return self.client(key).execute_command(*command)

    def call_each(self, *command: Any) -> list[Any]:
        """Run one command on every server; there is more than one only in a cluster."""
        with self._translated():
            clients = [self.client("")]
            if self._cluster is not None:
                nodes = self._cluster.get_primaries()
                clients = [self._cluster.get_redis_connection(node) for node in nodes]
            return [client.execute_command(*command) for client in clients]

    @property
    def is_guarded(self) -> bool:
        """Whether Sentinels promote another server if this one fails."""
        return self._address.kind == "sentinel"

    def client(self, key: str) -> Client:
        with self._lock:
            address = self._address
            if address.kind == "cluster":
                self._cluster = self._cluster or _open_cluster(address)
                node = self._cluster.get_node_from_key(key)
                if node is None:
                    raise _redis().exceptions.ClusterDownError("no server has the app's slot")
                return self._cluster.get_redis_connection(node)
            if address.kind == "sentinel":
                self._sentinels = self._sentinels or _open_sentinels(address, self.where)
                master = self._sentinels.master()
                if master != self._master:
                    self._client, self._master = _open_client(address, master), master
            elif self._client is None:
                self._client = _open_client(address)
            return self._client

    def close(self) -> None:
        """Close all connections, also those that a thread waits on."""
        with self._lock:
            client, sentinels, cluster = self._client, self._sentinels, self._cluster
            self._client = self._sentinels = self._master = self._cluster = None
        if client is not None:
            client.connection_pool.disconnect()
        if sentinels is not None:
            sentinels.close()
        if cluster is not None:
            cluster.close()

    def _forget(self) -> None:
        """Ask again for the master and the slots.  Running calls continue; idle connections are closed,
        because they may be dead too."""
        if self._address.kind == "plain":
            if (client := self._client) is not None:
                client.connection_pool.disconnect(inuse_connections=False)
        else:
            with self._lock:
                self._client = self._master = self._cluster = None
                if self._sentinels is not None:
                    self._sentinels.forget()

    def _translated(self) -> _Translated:
        return _Translated(self)

    def explain(self, error: Exception) -> DetentError:
        self._forget()
        errors, said = _redis().exceptions, str(error)
        if isinstance(error, errors.AuthenticationError) or said.startswith(("WRONGPASS", "NOAUTH")):
            return StoreMismatch(f"{self.where} refuses the user or the password: put it right in its URL")
        if _UNTRUSTED in said:
            return StoreMismatch(f"{self.where}: its certificate is refused: {_doubt(said)}")
        if isinstance(error, errors.NoPermissionError) or "NOPERM" in said:
            return StoreMismatch(f"{self.where} forbids what a store needs: {said}; {_RIGHTS}")
        if isinstance(error, errors.ReadOnlyError) or "READONLY" in said:
            return self.refused(READ_ONLY)
        if isinstance(error, errors.OutOfMemoryError) or said.startswith("OOM") or "OOM command" in said:
            return StoreUnavailable(f"{self.where} is full: raise its maxmemory, or `detent prune`")
        away = errors.ConnectionError | errors.TimeoutError | errors.TryAgainError | OSError | ValueError
        is_away = isinstance(error, away | errors.ClusterError | errors.RedisClusterException)
        if is_away or said.startswith(AWAY):
            return StoreUnavailable(f"{self.where} does not answer: {said}")
        if "DETENT-SCHEMA" in said:
            return StoreMismatch(f"{self.where} {OTHER_VERSION}")
        return StoreMismatch(f"{self.where} refuses: {said}")

    def refused(self, why: str) -> DetentError:
        """The error for a server that cannot be a store.  After a failover that may be temporary."""
        self._forget()
        if why == READ_ONLY and self._address.kind != "plain":
            return StoreUnavailable(f"{self.where} has just failed over")
        return StoreMismatch(f"{self.where} {why}")


class _Translated:
    """Translates the errors of redis-py."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or isinstance(error, DetentError):
            return
        errors = _redis().exceptions
        known = errors.RedisError | errors.RedisClusterException | OSError
        if isinstance(error, known) or _is_cut(error):
            assert isinstance(error, Exception)
            raise self._link.explain(error) from error


def _is_cut(error: BaseException | None) -> bool:
    """Whether `close` closed the connection of a waiting thread: redis-py without hiredis raises this."""
    return isinstance(error, ValueError) and "closed file" in str(error)


_RIGHTS = "its user needs +@read +@write +@scripting +info +time +wait on the keys of the prefix"
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def _doubt(said: str) -> str:
    fault = said.partition("verify failed: ")[2].partition(" (_ssl")[0].rstrip(".")
    if "mismatch" in fault:
        return f"{fault}; write the name that it is for into the URL"
    return f"{fault}; name the authority that vouches for it: ?ssl_ca_certs=FILE"


def _redis() -> Any:
    try:
        import redis
    except ModuleNotFoundError:
        raise UsageError("a Redis store needs redis-py: pip install 'detent[redis]'") from None
    return redis


# URLs.

FORM = (
    'write "redis://USER:PASSWORD@HOST:PORT/DB", of which all but the host may be left out; '
    "special characters of a password are written as %XX"
)


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
        options = {**settings, **_redis().connection.parse_url(url)}
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
        raise UsageError(f"bad store: {quote(text)} is no host with a port")
    return (host if colon else text).strip("[]") or "localhost", int(given) if colon else port


# Clients.


def _check_files(options: Mapping[str, Any]) -> None:
    for name in _FILES:
        if name in options and not Path(options[name]).is_file():
            raise UsageError(f"bad store: the {name} of its URL is no file: {quote(options[name])}")


def _no_retries() -> Any:
    redis = _redis()
    return redis.retry.Retry(redis.backoff.NoBackoff(), 0)


def _open_client(address: Address, master: Host | None = None) -> Client:
    options = dict(address.options)
    if master:
        options |= {"host": master[0], "port": master[1]}
    return _open(options)


def _open_sentinels(address: Address, where: str) -> Sentinels:
    options = sentinel_options(address.options, address.sentinel_options)
    clients = [_open({**options, "host": host, "port": port}) for host, port in address.hosts]
    return Sentinels(clients, address.service, where)


def _open(options: Mapping[str, Any]) -> Client:
    redis = _redis()
    _check_files(options)
    try:
        pool = redis.ConnectionPool(**options, retry=_no_retries(), retry_on_error=[])
        pool.make_connection()  # raises for an unknown option
    except TypeError as error:
        raise UsageError(f"bad store: an option of its URL is unknown: {error}") from None
    return redis.Redis(connection_pool=pool)


def _open_cluster(address: Address) -> Client:
    redis, options = _redis(), dict(address.options)
    if options.pop("connection_class", None):
        options["ssl"] = True
    for name in ("host", "port", "db"):
        options.pop(name, None)
    if options.get("ssl_check_hostname") and redis.VERSION < (6, 2):
        raise UsageError(
            "a Redis Cluster with TLS needs redis-py 6.2 or newer: older versions do not check the names of"
            " its servers. Run: pip install --upgrade redis"
        )
    _check_files(options)
    nodes = [redis.cluster.ClusterNode(host, port) for host, port in address.hosts]
    return redis.RedisCluster(startup_nodes=nodes, retry=_no_retries(), **options)
