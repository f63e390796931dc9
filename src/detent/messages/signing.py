"""Signatures of HTTP requests, `t=<unix>,v1=<hex>,v2=<hex>`, and their verification.

- `v1` is HMAC-SHA256, keyed with the secret, over `<t>.<METHOD>.<path?query as sent>.<body>`.
- `v2` also covers the identity of the fire: HMAC-SHA256 over
  `<t>.<METHOD>.<path?query>.<Idempotency-Key>.<run id>.<attempt>.<fence>.<hex SHA-256 of the body>`.
- A verifier of `v2` also checks `v1`: together they fix where the path ends and the key begins.
- Segments may be in any order.  Unknown ones are ignored.  `t`, `v1` and `v2` must not be repeated.
- A signature is stale if its time is more than 300 s away.  A verifier may lower that to 30 s.
- A verifier accepts any of its secrets and returns which one matched.
- Manifest version 2 also supports Standard Webhooks: `v1,<base64>` over `<id>.<unix>.<body>`.
"""

import hmac
import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from detent.errors import SignatureError, UsageError
from detent.manifest.secret_refs import Secret

TOLERANCE_MAX_S = 300.0
TOLERANCE_MIN_S = 30.0
HEADER_MAX = 1024  # characters; ours have about 150

_TIME = r"(0|[1-9][0-9]{0,11})"
_DIGEST = r"[0-9a-f]{64}"


class MissingSignature(SignatureError): ...


class MalformedHeader(SignatureError): ...


class StaleTimestamp(SignatureError):
    """The signature is too old, or its time is too far in the future."""


class SignatureMismatch(SignatureError):
    """None of the secrets produces this signature."""


class Identity(NamedTuple):
    """The identity of an attempt, exactly as in the headers."""

    key: str
    run_id: str
    attempt: str
    fence: str


class SignedRequest(NamedTuple):
    """What is signed besides the time."""

    method: str
    path: str  # with the query, exactly as sent
    body: bytes = b""
    identity: Identity | None = None  # None: no `v2`


def sign(request: SignedRequest, secret: Secret, at: datetime) -> str:
    """Return the value of the header X-Cron-Signature."""
    unix = str(int(at.timestamp()))
    digests = _digests(request, secret, unix)
    return ",".join([f"t={unix}", *(f"{name}={digest}" for name, digest in digests.items())])


def sign_webhook(id: str, body: bytes, secret: Secret, at: datetime) -> str:
    """Return the value of the header `webhook-signature`.  The secret is in base 64."""
    from base64 import b64decode, b64encode

    unix = str(int(at.timestamp()))
    try:
        key = b64decode(secret.key().removeprefix(b"whsec_"), validate=True)
    except ValueError:
        raise UsageError("a secret for standard-webhooks must be in base 64, like whsec_…") from None
    digest = hmac.digest(key, f"{id}.{unix}.".encode() + body, "sha256")
    return f"v1,{b64encode(digest).decode()}"


def verify(
    header: str | None,
    request: SignedRequest,
    secrets: Sequence[Secret],
    now: datetime,
    tolerance_s: float = TOLERANCE_MAX_S,
) -> int:
    """Return the index of the secret that signed this request, or raise a `SignatureError`.

    A request with an identity must have `v2` as well.
    """
    if not TOLERANCE_MIN_S <= tolerance_s <= TOLERANCE_MAX_S:
        raise UsageError(f"bad tolerance {tolerance_s:g} s: allowed are 30 to 300 s")
    if not secrets:
        raise UsageError("no secret to verify a signature with: give at least one")
    names = ("v1",) if request.identity is None else ("v1", "v2")
    unix, given = _parse(header, names)
    if abs(now.timestamp() - int(unix)) > tolerance_s:
        raise StaleTimestamp(
            f"the time of the signature is more than {tolerance_s:g} s away: check both clocks"
        )
    for index, secret in enumerate(secrets):
        if hmac.compare_digest("".join(_digests(request, secret, unix).values()), given):
            return index
    covered = "method, path and body" if request.identity is None else "method, path, headers and body"
    raise SignatureMismatch(
        f"the signature matches none of the secrets; check the secret, and that {covered} are unchanged"
    )


def signature_id(header: str) -> str:
    """Return a hash that identifies a verified `v1` signature without revealing it."""
    return sha256(_parse(header, ("v1",))[1].encode()).hexdigest()


def _digests(request: SignedRequest, secret: Secret, unix: str) -> dict[str, str]:
    head = f"{unix}.{request.method.upper()}.{request.path}.".encode("utf-8", "surrogatepass")
    found = {"v1": hmac.digest(secret.key(), head + request.body, "sha256").hex()}
    if request.identity is not None:
        rest = ".".join([*request.identity, sha256(request.body).hexdigest()])
        found["v2"] = hmac.digest(secret.key(), head + rest.encode("utf-8", "surrogatepass"), "sha256").hex()
    return found


def _parse(header: str | None, names: Sequence[str]) -> tuple[str, str]:
    """Return the time and the concatenated digests of these names."""
    if header is None or not header.strip():
        raise MissingSignature(
            "the request has no signature: the header X-Cron-Signature is missing or empty"
        )
    if len(header) > HEADER_MAX:
        raise MalformedHeader(f"bad signature header: {len(header)} characters; allowed are {HEADER_MAX}")
    found: dict[str, list[str]] = {name: [] for name in ("t", *names)}
    for segment in header.split(","):
        name, equals, value = segment.strip().partition("=")
        if not equals:
            raise MalformedHeader("bad signature header: a segment without =; it reads t=<unix>,v1=<hex>")
        if name in found:
            found[name].append(value)
    unix = _only("t", found["t"], _TIME)
    if found["v1"] and "v2" in found and not found["v2"]:
        raise MissingSignature(
            "the header X-Cron-Signature has no v2= signature: upgrade the sender, or accept senders that "
            "sign v1 only with Receiver(accept_v1=True)"
        )
    return unix, "".join(_only(name, found[name], _DIGEST) for name in names)


def _only(name: str, values: list[str], form: str) -> str:
    if len(values) != 1:
        raise MalformedHeader(f"bad signature header: {len(values)} segments {name}=; there must be one")
    if not re.fullmatch(form, values[0]):
        expected = "Unix seconds" if name == "t" else "64 lowercase hex digits"
        raise MalformedHeader(f"bad signature header: {name} must be {expected}")
    return values[0]
