"""Signatures of fires: `t=<unix>,v1=<hex>`, and how a receiver checks one.

- `v1` is HMAC-SHA256, keyed with the secret, over `<t>.<METHOD>.<path?query as sent>.<body>`.
- Segments come in any order; unknown ones are ignored; `t` and `v1` come once each.
- A signature is stale beyond 300 s either way; a verifier may tighten that, to no less than 30 s.
- A verifier accepts any of its secrets, and says which one it was.
- Version 2 can sign by Standard Webhooks instead: `v1,<base64>` over `<id>.<unix>.<body>`.
"""

import re
from collections.abc import Sequence
from datetime import datetime

from detent.core.digest import hmac_sha256
from detent.core.secrets import Secret
from detent.errors import SignatureError, UsageError
from detent.values import NamedTuple

TOLERANCE_MAX_S = 300.0
TOLERANCE_MIN_S = 30.0
HEADER_MAX = 1024  # characters: ours has 80, and nobody's needs many times that

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


class Message(NamedTuple):
    """What is signed, besides the time."""

    method: str
    path: str  # with the query, exactly as it is sent
    body: bytes = b""


class _Parts(NamedTuple):
    unix: str
    digest: str


def sign(message: Message, secret: Secret, at: datetime) -> str:
    """The value of the signature's header."""
    unix = str(int(at.timestamp()))
    return f"t={unix},v1={_digest(message, secret, unix)}"


def sign_webhook(id: str, body: bytes, secret: Secret, at: datetime) -> str:
    """The value of `webhook-signature`, as Standard Webhooks have it: the secret is in base 64."""
    from base64 import b64decode, b64encode

    unix = str(int(at.timestamp()))
    try:
        key = b64decode(secret.key().removeprefix(b"whsec_"), validate=True)
    except ValueError:
        raise UsageError("a secret for standard-webhooks must be in base 64, like whsec_…") from None
    return f"v1,{b64encode(hmac_sha256(key, f'{id}.{unix}.'.encode() + body)).decode()}"


def verify(
    header: str | None,
    message: Message,
    secrets: Sequence[Secret],
    now: datetime,
    tolerance_s: float = TOLERANCE_MAX_S,
) -> int:
    """The index of the secret that signed this message; a `SignatureError` if none did, or not lately."""
    if not TOLERANCE_MIN_S <= tolerance_s <= TOLERANCE_MAX_S:
        raise UsageError(f"bad tolerance {tolerance_s:g} s: allowed are 30 to 300 s")
    if not secrets:
        raise UsageError("no secret to verify a signature with: give at least one")
    parts = _parse(header)
    if abs(now.timestamp() - int(parts.unix)) > tolerance_s:
        raise StaleTimestamp(f"the signature's time is more than {tolerance_s:g} s away: check both clocks")
    from hmac import compare_digest  # late: who only signs does without

    for index, secret in enumerate(secrets):
        if compare_digest(_digest(message, secret, parts.unix), parts.digest):
            return index
    raise SignatureMismatch(
        "the signature fits none of the secrets: check the secret, and that method, path and body are as sent"
    )


def _digest(message: Message, secret: Secret, unix: str) -> str:
    head = f"{unix}.{message.method.upper()}.{message.path}.".encode("utf-8", "surrogatepass")
    return hmac_sha256(secret.key(), head + message.body).hex()


def _parse(header: str | None) -> _Parts:
    if header is None or not header.strip():
        raise MissingSignature(
            "the request has no signature: the header X-Cron-Signature is missing or empty"
        )
    if len(header) > HEADER_MAX:
        raise MalformedHeader(f"bad signature header: {len(header)} characters; allowed are {HEADER_MAX}")
    found: dict[str, list[str]] = {"t": [], "v1": []}
    for segment in header.split(","):
        name, equals, value = segment.strip().partition("=")
        if not equals:
            raise MalformedHeader("bad signature header: a segment without =; it reads t=<unix>,v1=<hex>")
        if name in found:
            found[name].append(value)
    return _Parts(_only("t", found["t"], _TIME), _only("v1", found["v1"], _DIGEST))


def _only(name: str, values: list[str], form: re.Pattern[str]) -> str:
    if len(values) != 1:
        raise MalformedHeader(f"bad signature header: {len(values)} segments {name}=; there must be one")
    if not form.fullmatch(values[0]):
        expected = {"t": "Unix seconds", "v1": "64 lowercase hex digits"}[name]
        raise MalformedHeader(f"bad signature header: {name} must be {expected}")
    return values[0]
