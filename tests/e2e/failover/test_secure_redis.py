"""Redis with TLS, and users with no more rights than a store needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.equipment.certificates import Authority
from tests.equipment.redis_server import RIGHTS, RedisServer, free_port, tls_binary

from detent.errors import StoreMismatch, UsageError
from detent.model import Query
from detent.stores.base import Store
from detent.stores.registry import open_store, promise_of
from detent.testing.stores.fixtures import Asker, finish, fire, found, keys, renew


class Secured(NamedTuple):
    server: RedisServer
    port: int  # where it speaks TLS
    authority: Authority

    @property
    def options(self) -> str:
        return f"ssl_ca_certs={self.authority.file}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, port, binary = tmp_path_factory.mktemp("tls"), free_port(), tls_binary()
    authority = Authority(folder / "authority")
    server = RedisServer(folder / "redis", *_tls(authority, port), binary=binary)
    yield Secured(server, port, authority)
    server.end()


def _tls(authority: Authority, port: int) -> list[str]:
    certificate, key = authority.vouch("redis", "IP:127.0.0.1")
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    files += ["--tls-ca-cert-file", str(authority.file), "--tls-auth-clients", "optional"]
    return ["--tls-port", str(port), *files]


# TLS.


def test_a_certificate_of_a_known_authority_is_trusted(secured: Secured) -> None:
    url = f"rediss://127.0.0.1:{secured.port}/0?{secured.options}"
    with closing(open_store(url, key_prefix="trusted:")) as store:
        _use(store)
    assert promise_of(url)[0].state == "ok"


def test_a_client_may_show_a_certificate_of_its_own(secured: Secured) -> None:
    secured.server.call("CONFIG", "SET", "tls-auth-clients", "yes")
    certificate, key = secured.authority.vouch("client", "DNS:client")
    url = f"rediss://127.0.0.1:{secured.port}?{secured.options}&ssl_certfile={certificate}&ssl_keyfile={key}"
    with closing(open_store(url, key_prefix="client:")) as store:
        _use(store)
    secured.server.call("CONFIG", "SET", "tls-auth-clients", "optional")


def test_a_bad_certificate_is_reported_with_the_reason(secured: Secured, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger")
    for host, options, said in (
        ("127.0.0.1", f"ssl_ca_certs={stranger.file}", "certificate is refused: .* name the authority"),
        ("127.0.0.1", "", "certificate is refused: .* name the authority"),
        ("localhost", secured.options, "mismatch, .*'localhost'; write the name that it is for into the URL"),
    ):
        with pytest.raises(StoreMismatch, match=said):
            open_store(f"rediss://:secret@{host}:{secured.port}?{options}").look("a")
    with pytest.raises(UsageError, match="the ssl_ca_certs of its URL is not a file"):
        open_store(f"rediss://127.0.0.1:{secured.port}?ssl_ca_certs=/nowhere.pem").look("a")


def test_sentinels_are_contacted_by_tls_too(secured: Secured, tmp_path: Path) -> None:
    port, plain = free_port(), secured.server.port
    words = [word.removeprefix("--") for word in _tls(secured.authority, port)]
    settings = "\n".join(f"{name} {value}" for name, value in zip(words[::2], words[1::2], strict=True))
    watches = f"sentinel monitor main 127.0.0.1 {secured.port} 1\ntls-replication yes\n{settings}"
    sentinel = RedisServer(tmp_path / "sentinel", watches=watches, binary=tls_binary())
    url = f"rediss+sentinel://127.0.0.1:{port}/main?{secured.options}"
    with closing(open_store(url, key_prefix="guarded:")) as store:
        _use(store)
    with pytest.raises(StoreMismatch, match="certificate is refused"):
        open_store(f"rediss+sentinel://127.0.0.1:{port}/main").look("a")
    assert plain != secured.port
    sentinel.end()


# Rights.


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.end()


def test_a_user_needs_no_more_rights_than_these(server: RedisServer) -> None:
    import redis

    server.call("ACL", "SETUSER", "me", "on", ">secret", "resetchannels", "~shop:*", *RIGHTS)
    url = server.url.replace("//", "//me:secret@")
    with closing(open_store(url, key_prefix="shop:", wait_replicas=0)) as store:
        _use(store)
    assert server.call("ACL", "LOG") == [], "nothing was denied"
    assert "could not be read" in promise_of(url)[0].found
    with redis.Redis.from_url(url) as client:
        for words in (("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("GET", "theirs"), ("SHUTDOWN",)):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*words)
    server.call("ACL", "SETUSER", "me", "+config|get")
    assert promise_of(url)[0].state == "ok"


def _use(store: Store) -> None:
    """Every verb, once."""
    store.set_jobs("a", 0, {"a.b": "1"})
    assert store.put([fire("a.b@1", "Forbid"), fire("a.b@2", "Forbid")]) == [True, True]
    claims = Asker(store).claim(limit=2)
    running = next(claim for claim in claims if claim.disposition is None)
    assert renew(store, running) is None
    assert finish(store, running, tail=b"said") is not None
    assert not store.wait("a", 0.05)
    assert store.cancel("a.b@3") is False
    store.note("a", "pause/a.b", "why")
    assert [note.text for note in store.notes("a")] == ["why"]
    assert store.find(Query(key=running.fire.key))[0].attempts[0].tail == b"said"
    assert len(found(store)) == 2
    assert store.prune("a", 0, 0) == 1
    assert keys(Asker(store, "n2").claim(dead=("n1",))) == ["a.b@2"]
