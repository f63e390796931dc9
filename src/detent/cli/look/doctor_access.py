"""The rows of `detent doctor` about access to a remote store, and about weak secrets."""

import os
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, urlsplit

from detent.manifest.canonical import without_password
from detent.manifest.secret_refs import display_ref
from detent.runners.secrets import SECRET_ADVISED, resolve
from detent.stores.base import Diagnosis
from detent.stores.registry import POSTGRES, REDIS
from detent.text import plural, quote

IN_THE_MIDDLE = "a host in the network can pose as the server, read everything and change what runs"
VERIFIED = ("verify-ca", "verify-full")


def access_rows(url: str) -> Iterator[Diagnosis]:
    """Check a store on another host; a file, a socket or a local server needs no check."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    hosts = options.get("host") or parts.netloc.rpartition("@")[2]
    if not any(_is_elsewhere(host) for host in hosts.split(",")):
        return
    if parts.scheme in POSTGRES:
        yield from _postgres_tls(options)
    elif parts.scheme in REDIS:
        yield from _redis_password(url, options)
        yield from _redis_tls(parts.scheme, options)


def _is_elsewhere(host: str) -> bool:
    name = host if host.startswith("[") else host.partition(":")[0]
    return name not in ("", "localhost") and not name.startswith(("/", "127.", "[::1]"))


def _redis_password(url: str, options: Mapping[str, str]) -> Iterator[Diagnosis]:
    userinfo = urlsplit(url).netloc.rpartition("@")[0]
    if userinfo.partition(":")[2] or "password" in options or "ssl_certfile" in options:
        return
    found = f"{without_password(url)} is on another host, and its URL has no password"
    consequence = "anyone who can reach that server can change what runs"
    advice = "set `requirepass` or an ACL user there, and use redis://USER:PASSWORD@HOST"
    yield Diagnosis("store access", "weak", found, consequence, advice)


def _redis_tls(scheme: str, options: Mapping[str, str]) -> Iterator[Diagnosis]:
    checks, names = options.get("ssl_cert_reqs", "required"), options.get("ssl_check_hostname", "true")
    if not scheme.startswith("rediss"):
        return
    if checks.lower() in ("none", "optional"):
        advice = "remove ssl_cert_reqs, and name the CA: ?ssl_ca_certs=FILE"
        yield Diagnosis("store TLS", "weak", f"ssl_cert_reqs={checks}", IN_THE_MIDDLE, advice)
    elif names.lower() in ("false", "0", "no"):
        found, advice = f"ssl_check_hostname={names}", "remove ssl_check_hostname"
        yield Diagnosis("store TLS", "weak", found, IN_THE_MIDDLE, advice)


def _postgres_tls(options: Mapping[str, str]) -> Iterator[Diagnosis]:
    mode = options.get("sslmode") or os.environ.get("PGSSLMODE") or "prefer"
    has_authority = "sslrootcert" in options or "PGSSLROOTCERT" in os.environ
    if mode in VERIFIED or (mode == "require" and has_authority):
        return
    found = f"sslmode={mode}, and the server is on another host" + (
        "" if "sslmode" in options else " (the default)"
    )
    advice = "use ?sslmode=verify-full&sslrootcert=FILE"
    yield Diagnosis("store TLS", "weak", found, IN_THE_MIDDLE, advice)


def secret_rows(refs: Iterable[str], table: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Secrets that are too short, as far as this process can read them."""
    for ref in sorted(set(refs)):
        for secret in resolve((ref,), table, os.environ).secrets:
            if (size := len(secret.key())) < SECRET_ADVISED:
                found = f"the secret {quote(display_ref(ref))} has {plural(size, 'byte')}"
                advice = f"use at least {SECRET_ADVISED} random bytes: `openssl rand -hex 32`"
                yield Diagnosis("secrets", "weak", found, "anyone who guesses it can sign as you", advice)
