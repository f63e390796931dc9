"""Connects to Redis or Valkey servers with redis-py, and explains its errors."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from detent.errors import DetentError, StoreMismatch, StoreUnavailable, UsageError
from detent.stores.redis.address import Address, Host, import_redis, parse
from detent.stores.redis.health import READ_ONLY, explain
from detent.stores.redis.link import NoScript
from detent.stores.redis.sentinel import Sentinels
from detent.text import quote

Client = Any  # the types of redis-py are not precise enough
REDIRECTS_MAX = 5  # slots move rarely
_CODES = {  # the first words of errors, which redis-py removes
    "NoPermissionError": "NOPERM", "ReadOnlyError": "READONLY",
    "AuthenticationError": "NOAUTH", "OutOfMemoryError": "OOM",
}  # fmt: skip
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class RedisServers:
    """One server, or those of a cluster.  Connects at the first use."""

    def __init__(self, url: str) -> None:
        self._address = parse(url)
        self.where = self._address.where
        self.has_sentinels = self._address.kind == "sentinel"  # they promote another server if this one fails
        self._lock = threading.Lock()
        self._client: Client = None  # of one server, or of the cluster
        self._master: Host | None = None  # the server of the client, if Sentinels named it
        self._sentinels: Sentinels | None = None

    def send(self, key: str, *commands: Sequence[Any]) -> list[Any]:
        for _ in range(REDIRECTS_MAX):
            try:
                return _send(self._client_of(key), commands)
            except Exception as error:
                if not isinstance(error, import_redis().exceptions.MovedError):
                    raise self._explain(error) from error
                self._forget()  # the commands did not run there
        raise StoreUnavailable(f"{self.where}: the slot of {quote(key)} moves from server to server")

    def send_each(self, *command: Any) -> list[Any]:
        """Send one command to every server; there is more than one only in a cluster."""
        try:
            clients = [self._client_of("")]
            if self._address.kind == "cluster":
                clients = [self._client.get_redis_connection(node) for node in self._client.get_primaries()]
            return [_send(client, [command])[0] for client in clients]
        except Exception as error:
            raise self._explain(error) from error

    def _client_of(self, key: str) -> Client:
        with self._lock:
            address = self._address
            if address.kind == "sentinel":
                if self._sentinels is None:
                    clients = [_open(address.sentinel_options, host) for host in address.hosts]
                    self._sentinels = Sentinels(clients, address.service, address.where)
                master = self._sentinels.master()
                if master != self._master:
                    self._client, self._master = _open(address.options, master), master
            elif self._client is None:
                self._client = _open_cluster(address) if address.kind == "cluster" else _open(address.options)
            if address.kind != "cluster":
                return self._client
            node = self._client.get_node_from_key(key)
            if node is None:
                raise import_redis().exceptions.ClusterDownError("no server has the app's slot")
            return self._client.get_redis_connection(node)

    def close(self) -> None:
        with self._lock:
            client, sentinels = self._client, self._sentinels
            self._client = self._sentinels = self._master = None
        if sentinels is not None:
            sentinels.close()
        if client is not None and self._address.kind == "cluster":
            client.close()
        elif client is not None:
            client.connection_pool.disconnect()

    def _forget(self) -> None:
        """Ask again for the master and the slots.  Running calls continue; idle connections are closed,
        because they may be dead too."""
        with self._lock:
            if self._address.kind != "plain":
                self._client = self._master = None
            elif self._client is not None:
                self._client.connection_pool.disconnect(inuse_connections=False)
            if self._sentinels is not None:
                self._sentinels.forget()

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, DetentError):
            return error
        errors, said = import_redis().exceptions, str(error)
        if isinstance(error, errors.NoScriptError):
            return NoScript()
        is_cut = isinstance(error, ValueError) and "closed file" in said  # `close` did it, without hiredis
        if not (is_cut or isinstance(error, errors.RedisError | errors.RedisClusterException | OSError)):
            return error
        self._forget()
        if "CERTIFICATE_VERIFY_FAILED" in said:
            fault = said.partition("verify failed: ")[2].partition(" (_ssl")[0].rstrip(".")
            do = "name the authority that vouches for it: ?ssl_ca_certs=FILE"
            do = "write the name that it is for into the URL" if "mismatch" in fault else do
            return StoreMismatch(f"{self.where}: its certificate is refused: {fault}; {do}")
        code = next((code for name, code in _CODES.items() if isinstance(error, getattr(errors, name))), "")
        if code == "READONLY" or "READONLY" in said:
            return self.refused(READ_ONLY)
        away = errors.ConnectionError | errors.TimeoutError | errors.TryAgainError | OSError | ValueError
        if not code and isinstance(error, away | errors.ClusterError | errors.RedisClusterException):
            return StoreUnavailable(f"{self.where} does not answer: {said}")
        return explain(self.where, f"{code} {said}".strip())

    def refused(self, why: str) -> DetentError:
        """The error for a server that cannot be a store.  After a failover that may be temporary."""
        self._forget()
        if why == READ_ONLY and self._address.kind != "plain":
            return StoreUnavailable(f"{self.where} has just failed over")
        return StoreMismatch(f"{self.where} {why}")


def _send(client: Client, commands: Sequence[Sequence[Any]]) -> list[Any]:
    client.response_callbacks.clear()  # replies as the server sends them
    if len(commands) == 1:
        return [client.execute_command(*commands[0])]
    pipeline = client.pipeline(transaction=False)  # one connection: WAIT covers only its own writes
    for command in commands:
        pipeline.execute_command(*command)
    replies: list[Any] = pipeline.execute(raise_on_error=False)  # else the error would hold the whole command
    if errors := [one for one in replies if isinstance(one, Exception)]:
        raise errors[0]
    return replies


# Clients.


def _open(options: Mapping[str, Any], host: Host | None = None) -> Client:
    redis = _checked(options)
    given = {**options, "host": host[0], "port": host[1]} if host else options
    try:
        pool = redis.ConnectionPool(**given, **_never_again(redis), retry_on_error=[])
        pool.make_connection()  # raises for an unknown option
    except TypeError as error:
        raise UsageError(f"bad store: an option of its URL is unknown: {error}") from None
    return redis.Redis(connection_pool=pool)


def _open_cluster(address: Address) -> Client:
    redis, left_out = _checked(address.options), ("connection_class", "host", "port", "db")
    options = {name: value for name, value in address.options.items() if name not in left_out}
    if "connection_class" in address.options:
        options["ssl"] = True
    if options.get("ssl_check_hostname") and redis.VERSION < (6, 2):
        raise UsageError(
            "a Redis Cluster with TLS needs redis-py 6.2 or newer: older versions do not check the names of"
            " its servers. Run: pip install --upgrade redis"
        )
    nodes = [redis.cluster.ClusterNode(host, port) for host, port in address.hosts]
    return redis.RedisCluster(startup_nodes=nodes, **_never_again(redis), **options)


def _checked(options: Mapping[str, Any]) -> Any:
    """The module redis, after a check of the files that these options name."""
    for name in _FILES:
        if name in options and not Path(options[name]).is_file():
            raise UsageError(f"bad store: the {name} of its URL is not a file: {quote(options[name])}")
    return import_redis()


def _never_again(redis: Any) -> dict[str, Any]:
    return {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0)}
