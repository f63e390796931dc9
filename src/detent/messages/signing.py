"""Signatures of fires: `t=<unix>,v1=<hex>,v2=<hex>`, and how a receiver checks one.

- `v1` is HMAC-SHA256, keyed with the secret, over `<t>.<METHOD>.<path?query as sent>.<body>`.
- `v2` also covers what identifies the fire: HMAC-SHA256 over
  `<t>.<METHOD>.<path?query>.<Idempotency-Key>.<run id>.<attempt>.<fence>.<hex SHA-256 of the body>`.
- A verifier of `v2` also checks `v1`: together they leave no doubt where the path ends and the key begins.
- Segments come in any order; unknown ones are ignored; `t`, `v1` and `v2` come once each.
- A signature is stale beyond 300 s either way; a verifier may tighten that, to no less than 30 s.
- A verifier accepts any of its secrets, and says which one it was.
- Version 2 can sign by Standard Webhooks instead: `v1,<base64>` over `<id>.<unix>.<body>`.
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
HEADER_MAX = 1024  # characters: ours has about 150

_TIME = re.compile(r"(0|[1-9][0-9]{0,11})")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class MissingSignature(SignatureError):
    """The request carries no signature."""

    status = 401


class MalformedHeader(SignatureError):
    """The signature's header cannot be read."""

    status = 401


class StaleTimestamp(SignatureError):
    """The signature is too old, or from too far in the future."""

    status = 401


class SignatureMismatch(SignatureError):
    """None of the secrets gives this signature."""

    status = 401


class Identity(NamedTuple):
    """What identifies a fire and its attempt, exactly as the headers have it."""

    key: str
    run_id: str
    attempt: str
    fence: str


class SignedRequest(NamedTuple):
    """What is signed, besides the time."""

    method: str
    path: str  # with the query, exactly as it is sent
    body: bytes = b""
    identity: Identity | None = None  # None: there is no `v2`


def sign(message: SignedRequest, secret: Secret, at: datetime) -> str:
    """The value of the signature's header."""
    unix = str(int(at.timestamp()))
    digests = _digests(message, secret, unix)
    return ",".join([f"t={unix}", *(f"{name}={digest}" for name, digest in digests.items())])


def sign_webhook(id: str, body: bytes, secret: Secret, at: datetime) -> str:
    """The value of `webhook-signature`, as Standard Webhooks have it: the secret is in base 64."""
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
    message: SignedRequest,
    secrets: Sequence[Secret],
    now: datetime,
    tolerance_s: float = TOLERANCE_MAX_S,
) -> int:
    """The index of the secret that signed this message; a `SignatureError` if none did, or not lately.

    A message with an identity must be signed with `v2` as well.
    """
    if not TOLERANCE_MIN_S <= tolerance_s <= TOLERANCE_MAX_S:
        raise UsageError(f"bad tolerance {tolerance_s:g} s: allowed are 30 to 300 s")
    if not secrets:
        raise UsageError("no secret to verify a signature with: give at least one")
    names = ("v1",) if message.identity is None else ("v1", "v2")
    unix, given = _parse(header, names)
    if abs(now.timestamp() - int(unix)) > tolerance_s:
        raise StaleTimestamp(f"the signature's time is more than {tolerance_s:g} s away: check both clocks")
    for index, secret in enumerate(secrets):
        if hmac.compare_digest("".join(_digests(message, secret, unix).values()), given):
            return index
    covered = "method, path and body" if message.identity is None else "method, path, headers and body"
    raise SignatureMismatch(
        f"the signature fits none of the secrets: check the secret, and that {covered} are as sent"
    )


def fingerprint(header: str) -> str:
    """Names what `v1` signed in a header that was verified, without a secret and without the signature."""
    return sha256(_parse(header, ("v1",))[1].encode()).hexdigest()


def _digests(message: SignedRequest, secret: Secret, unix: str) -> dict[str, str]:
    """The signatures of a message by their names: `v1`, and `v2` if it has an identity."""
    head = f"{unix}.{message.method.upper()}.{message.path}.".encode("utf-8", "surrogatepass")
    found = {"v1": hmac.digest(secret.key(), head + message.body, "sha256").hex()}
    if message.identity is not None:
        rest = ".".join([*message.identity, sha256(message.body).hexdigest()])
        found["v2"] = hmac.digest(secret.key(), head + rest.encode("utf-8", "surrogatepass"), "sha256").hex()
    return found


def _parse(header: str | None, names: Sequence[str]) -> tuple[str, str]:
    """The time, and the digests of these names one after the other."""
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


def _only(name: str, values: list[str], form: re.Pattern[str]) -> str:
    if len(values) != 1:
        raise MalformedHeader(f"bad signature header: {len(values)} segments {name}=; there must be one")
    if not form.fullmatch(values[0]):
        expected = "Unix seconds" if name == "t" else "64 lowercase hex digits"
        raise MalformedHeader(f"bad signature header: {name} must be {expected}")
    return values[0]
