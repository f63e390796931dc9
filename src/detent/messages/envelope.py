"""The envelope of a message: the JSON text in `Fire.payload`.  The sender seals it, the worker opens it.

1. The fields are `v`, `id` (the key of the fire), `app`, `task`, `queue`, `pushed_at` and `args`; optionally
   `trace` (the W3C `traceparent` of the span that pushed it; right before `args`), `links` and `depth`; and
   `sig` last, if the app has a secret.
2. `sig` is HMAC-SHA256 over the exact bytes before it and over every field of the fire that is not its
   default.  So the message, its policy, its lane and its deadline cannot be altered.
3. The first secret signs; any of the secrets verifies.  To rotate, put the new secret first and remove the
   old one later.
4. Opening never raises.  A message that must not run is refused with a `Fault`, checked in the order of that
   list.  The signature is verified before any field that it covers is used.
5. A newer version signs its new fields only if they are not the default, so that versions work side by side.
   A node that does not know a field refuses the message, because it could not honour it.
"""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from detent.errors import UsageError
from detent.manifest.secret_refs import Secret
from detent.messages.strict_json import decode, encode, encode_ascii
from detent.messages.trace_context import parse_trace
from detent.model import Fire
from detent.text import TOO_DEEP, did_you_mean, is_too_deep, listed, plural, quote, show

VERSION = 1
PAYLOAD_MAX = 262_144  # bytes; larger data belongs into a database
PUSHED_AT_MAX = 1e11  # seconds: the year 5138; detects times in milliseconds
DEPTH_MAX = 1_000_000  # no chain gets this long

Fault = Literal[
    "oversized",
    "malformed",
    "unknown-version",
    "unsigned",
    "forged",
    "misdirected",
    "stale",
    "unknown-task",
    "not-allowed",
]


class MessageBody(NamedTuple):
    """The content of a message: which task to run, with which arguments."""

    task: str
    args: str = "[]"  # JSON: a list of positional or an object of keyword arguments
    pushed_at: float = 0.0  # seconds since the epoch
    links: Mapping[str, Any] = {}  # then, catch, finally: messages to send afterwards; never changed
    depth: int = 0  # number of links before this message
    trace: str = ""  # the `traceparent` of the span that pushed it


class Refusal(NamedTuple):
    fault: Fault
    detail: str  # for people; contains no secret and little of the message


class MessageRules(NamedTuple):
    """Which messages a worker accepts."""

    secrets: Sequence[Secret]  # empty: signatures are not checked
    tasks: Mapping[str, frozenset[str] | None]  # task → queues it may come from; None: any
    payload_max: int = PAYLOAD_MAX  # bytes
    max_age_s: float = 0.0  # since it was pushed or due, whichever is later; 0: no limit


def seal(fire: Fire, body: MessageBody, secrets: Sequence[Secret], payload_max: int = PAYLOAD_MAX) -> str:
    """Return the payload for this fire.  Its other fields must not change afterwards."""
    check_args(body.args)
    return Sealer(fire, body, secrets, payload_max).seal(fire.key, fire.run_id, body.args)


class Sealer:
    """Seals messages that differ only in key, run id and arguments."""

    def __init__(
        self, like: Fire, body: MessageBody, secrets: Sequence[Secret], payload_max: int = PAYLOAD_MAX
    ) -> None:
        names = f'"app":{_quoted(_app_of(like))},"task":{_quoted(body.task)},"queue":{_quoted(like.queue)}'
        trace = f',"trace":{_quoted(body.trace)}' if body.trace else ""
        self._middle = f',{names},"pushed_at":{body.pushed_at:.3f}{trace},"args":'
        links = f',"links":{_links_text(body.links)}' if body.links else ""
        self._end = links + (f',"depth":{body.depth}' if body.depth else "")
        self._covered = _covered(like._replace(run_id=""))
        self._key, self._payload_max = secrets[0].key() if secrets else b"", payload_max

    def seal(self, key: str, run_id: str, args: str) -> str:
        """Seal one message; `args` must be valid JSON with a list or an object."""
        text = f'{{"v":{VERSION},"id":{_quoted(key)}{self._middle}{args}{self._end}'
        if self._key:
            text = f'{text}{_SIG}{_digest(text.encode(), self._covered + run_id, self._key)}"'
        sealed = text + "}"
        size = len(sealed) if sealed.isascii() else len(sealed.encode())
        if size > self._payload_max:
            raise UsageError(
                f"message {quote(key)} is too large: {_sizes(size, self._payload_max)}; {_SMALLER}"
            )
        if is_too_deep(sealed):
            raise UsageError(f"bad message {quote(key)}: its {TOO_DEEP}, including the message's own")
        return sealed


def open_envelope(fire: Fire, rules: MessageRules, now: float = math.inf) -> MessageBody | Refusal:
    """Return the content of this fire's message, or why it must not run.  `now`, in seconds since the epoch,
    is required with a limit of its age."""
    text = fire.payload
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > rules.payload_max:
        return Refusal("oversized", f"the message has {_sizes(size, rules.payload_max)}; {_SMALLER}")
    is_trusted = not rules.secrets or _is_signed(fire, rules.secrets)
    body = _read_body(fire, rules, is_trusted)
    return body if isinstance(body, Refusal) else _check_rules(body, fire, rules, now) or body


def _read_body(fire: Fire, rules: MessageRules, is_trusted: bool) -> MessageBody | Refusal:
    try:
        fire.payload.encode()
        fields = decode(fire.payload)
    except _UNREADABLE as error:
        return _malformed(f"it is not valid JSON ({_worded(error)})")
    if type(fields) is not dict:
        return _malformed("it is JSON, but not an object")
    version = fields.get("v")
    if type(version) is not int or version != VERSION:
        found = f"version {show(version)}" if "v" in fields else "no version"
        return Refusal("unknown-version", f"the message has {found}; this node reads version {VERSION}")
    refusal = None if is_trusted else _distrust(fields, rules.secrets)
    return refusal or _check_shape(fields) or _check_place(fields, fire) or _body(fields)


# Checks, in their order.


def _is_signed(fire: Fire, secrets: Sequence[Secret]) -> bool:
    signed, _, rest = fire.payload.encode("utf-8", "surrogatepass").rpartition(_SIG.encode())
    covered = _covered(fire)
    return any(
        hmac.compare_digest(rest, f'{_digest(signed, covered, secret.key())}"}}'.encode())
        for secret in secrets
    )


def _distrust(fields: Mapping[str, Any], secrets: Sequence[Secret]) -> Refusal:
    if "sig" not in fields:
        return Refusal("unsigned", "the message has no signature, but this app has a secret")
    fits = "fits none of the secrets" if len(secrets) > 1 else "does not fit the secret"
    return Refusal(
        "forged",
        f"the signature {fits} (the message or its policy was altered, or the sender has another secret)",
    )


def _check_shape(fields: Mapping[str, Any]) -> Refusal | None:
    names = fields.keys()
    if not names >= _REQUIRED:
        return _malformed(f"it lacks {listed(sorted(_REQUIRED - names), 'and')}")
    if not names <= _KNOWN:
        return _malformed(f"it has the unknown field {quote(min(names - _KNOWN))}")
    for name, (types, what) in _SHAPE.items():
        if name in fields and type(fields[name]) not in types:
            return _malformed(f"{name} is not {what}")
    if not 0 <= fields["pushed_at"] < PUSHED_AT_MAX or not 0 <= fields.get("depth", 0) <= DEPTH_MAX:
        return _malformed("pushed_at or depth is out of range")
    if "trace" in fields and not parse_trace(fields["trace"]):
        return _malformed("trace is not a traceparent of W3C Trace Context")
    return None


def _check_place(fields: Mapping[str, Any], fire: Fire) -> Refusal | None:
    for name, expected in (("id", fire.key), ("queue", fire.queue), ("app", _app_of(fire))):
        if fields[name] != expected:
            detail = f"the message was sealed for another fire: its {name} is {quote(fields[name])}"
            return Refusal("misdirected", f"{detail}; it may be a copy")
    return None


def _check_rules(body: MessageBody, fire: Fire, rules: MessageRules, now: float) -> Refusal | None:
    if rules.max_age_s and now - body.pushed_at > rules.max_age_s:
        age_s = now - max(body.pushed_at, fire.due_at.timestamp())
        if age_s > rules.max_age_s:
            return Refusal("stale", f"the message is {age_s:.0f} s old; allowed are {rules.max_age_s:g} s")
    task = body.task
    if task not in rules.tasks:
        return Refusal(
            "unknown-task",
            f"this node has no task {quote(task)}{did_you_mean(task[:_TASK_MAX], rules.tasks)}",
        )
    queues = rules.tasks[task]
    if queues is not None and fire.queue not in queues:
        allowed = listed(sorted(queues)) or "none"
        return Refusal(
            "not-allowed",
            f"task {quote(task)} may not come from queue {quote(fire.queue)}; allowed: {allowed}",
        )
    return None


def _body(fields: Mapping[str, Any]) -> MessageBody | Refusal:
    links = fields.get("links", {})
    try:
        args = encode(fields["args"])
        args.encode()
        if links:
            encode(links).encode()
    except _UNREADABLE as error:
        return _malformed(f"args or links contain text that is not Unicode ({_worded(error)})")
    depth, trace = fields.get("depth", 0), fields.get("trace", "")
    return MessageBody(fields["task"], args, float(fields["pushed_at"]), links, depth, trace)


# Signatures.


def _digest(signed: bytes, covered: str, key: bytes) -> str:
    # The length separates the text from the fire; the first words separate messages from signed requests.
    rest = covered.encode("utf-8", "surrogatepass")
    message = b"detent envelope %d\n%d\n%b%b" % (VERSION, len(signed), signed, rest)
    return hmac.digest(key, message, "sha256").hex()


def _covered(fire: Fire) -> str:
    """Return the fields of a fire that the JSON text does not contain."""
    start_by = fire.start_by.timestamp() if fire.start_by else None
    return f"{fire.due_at.timestamp()!r} {start_by!r}\n{_steady_text(_steady(fire))}\n{fire.run_id}"


@lru_cache(maxsize=4096)  # most fires of a task have the same values
def _steady_text(values: tuple[Any, ...]) -> str:
    return encode_ascii(_changed(_STEADY, values, _USUAL))


def _changed(names: Iterable[str], values: Iterable[Any], usual: Iterable[Any]) -> list[Any]:
    triples = zip(names, values, usual, strict=True)
    return [[name, _plain(value)] for name, value, default in triples if value != default]


def _plain(value: Any) -> Any:
    """Convert to JSON values, so that a round trip through a store does not change the signature."""
    match value:
        case str() | None:
            return value
        case int() | float():
            return float(value)  # 30 and 30.0 are the same timeout
        case datetime():
            return value.timestamp()
    if hasattr(value, "_fields"):
        return _changed(value._fields, value, type(value)())
    return [_plain(one) for one in value]


def _app_of(fire: Fire) -> str:
    return fire.job.partition(".")[0]


# Arguments and links.


def check_args(args: str) -> None:
    try:
        value = decode(args)
        if not args.isascii() or "\\u" in args:
            (args + encode(value)).encode()
    except _UNREADABLE as error:
        raise UsageError(f"bad arguments: they are not valid JSON ({_worded(error)})") from None
    if type(value) not in (list, dict):
        raise UsageError("bad arguments: write a JSON list or object")


def _links_text(links: Mapping[str, Any]) -> str:
    try:
        text = encode_ascii(dict(links))
        encode(decode(text)).encode()
    except _UNREADABLE as error:
        raise UsageError(f"bad links: they cannot be written as JSON ({_worded(error)})") from None
    return text


def _worded(error: Exception) -> str:
    match error:
        case RecursionError():
            return TOO_DEEP
        case UnicodeError():
            return "a lone surrogate"
        case json.JSONDecodeError():
            return f"{error.msg} at character {error.pos}"
    return str(error).partition(";")[0]


def _malformed(what: str) -> Refusal:
    return Refusal("malformed", f"the message cannot be read: {what}")


def _sizes(size: int, most: int) -> str:
    return f"{plural(size, 'byte')}, {most:,} are allowed"


_SIG = ',"sig":"'
_SMALLER = "store large data elsewhere and send a reference"
_TASK_MAX = 200  # characters of an unknown name that are compared with known tasks
_SHAPE: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("id", "app", "task", "queue"), ((str,), "a text")),
    "pushed_at": ((int, float), "in seconds since the epoch"),
    "trace": ((str,), "a text"),
    "args": ((list, dict), "a list or an object"),
    "links": ((dict,), "an object"),
    "depth": ((int,), "a number of links"),
}
_KNOWN = _SHAPE.keys() | {"v", "sig"}
_REQUIRED = _KNOWN - {"trace", "links", "depth", "sig"}
_ELSEWHERE = ("key", "queue", "payload", "due_at", "start_by", "run_id")  # in the text or in `_covered`
_STEADY = tuple(name for name in Fire._fields if name not in _ELSEWHERE)
_USUAL = tuple(Fire._field_defaults.get(name) for name in _STEADY)
_steady = attrgetter(*_STEADY)
_UNREADABLE = (ValueError, TypeError, RecursionError)  # lone surrogates and too many digits raise ValueError
