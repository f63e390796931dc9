"""The envelope of a message: what `Fire.payload` holds, sealed by who pushes it, opened by who runs it.

1. The text is one JSON object: `v`, `id` (the fire's key), `app`, `task`, `queue`, `pushed_at`, `args`; then
   `links` and `depth` where there are any, and `sig` last, where the app has a secret.
2. `sig` is HMAC-SHA256 over the very bytes before it, and over every field of the fire that is not its
   default: a message cannot be altered, nor its policy, its lane or its last instant to start by.  What is
   signed is the text and not what it means, so there is no second reading of it to be found.
3. The first secret signs, any of them opens: a new one is put first, and the old one taken away later.
4. Opening never raises.  What may not run is refused with one word and one sentence, in the order of
   `Fault`; a signature is looked at before anything that it covers is believed.
5. A field of a newer version is signed only where it is not the default, so that versions work side by
   side; a node that does not know such a field refuses the message, for it could not keep to it.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from detent.errors import UsageError
from detent.manifest.secret_refs import Secret
from detent.messages.strict_json import decode, decode_start, encode, encode_ascii
from detent.model import Fire
from detent.text import TOO_DEEP, did_you_mean, is_too_deep, listed, plural, quote, show

VERSION = 1
PAYLOAD_MAX = 262_144  # bytes: a message carries what to do; what to do it with belongs into a database
PUSHED_AT_MAX = 1e11  # seconds: the year 5138; a time in milliseconds is beyond it
DEPTH_MAX = 1_000_000  # no chain is so long: its own guard ends it much earlier

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
    """What a message asks for."""

    task: str
    args: str = "[]"  # JSON: a list for its positions, or an object for its names, as in `Call`
    pushed_at: float = 0.0  # seconds since the epoch
    links: Mapping[str, Any] = {}  # read only, a JSON object: what follows from it (then, catch, finally)
    depth: int = 0  # how many links led here


class Refusal(NamedTuple):
    """Why a message may not run."""

    fault: Fault
    detail: str  # a sentence for people; no secret in it, and little of the message


class MessageRules(NamedTuple):
    """Which messages may run."""

    secrets: Sequence[Secret]  # none: signatures are neither asked for nor looked at
    tasks: Mapping[str, frozenset[str] | None]  # a task -> the queues it may come from; None: any
    payload_max: int = PAYLOAD_MAX  # bytes
    max_age_s: float = 0.0  # since it was pushed or, if that is later, due; 0: no such limit
    now: float = float("inf")  # seconds since the epoch; not given, and with a max_age_s, all are stale


def seal(fire: Fire, body: MessageBody, secrets: Sequence[Secret], payload_max: int = PAYLOAD_MAX) -> str:
    """The payload for this fire, which must not be changed in any other field afterwards."""
    check_args(body.args)
    return Sealer(fire, body, secrets, payload_max).seal(fire.key, fire.run_id, body.args)


class Sealer:
    """Seals messages that differ in nothing but their keys, their run ids and their arguments."""

    def __init__(
        self, like: Fire, body: MessageBody, secrets: Sequence[Secret], payload_max: int = PAYLOAD_MAX
    ) -> None:
        self._middle = f"{_middle(_app_of(like), body.task, like.queue)}{body.pushed_at:.3f}{_ARGS}"
        links = f',"links":{_links_text(body.links)}' if body.links else ""
        self._end = links + (f',"depth":{body.depth}' if body.depth else "")
        self._covered = _covered(like._replace(run_id=""))
        self._key, self._payload_max = secrets[0].key() if secrets else b"", payload_max

    def seal(self, key: str, run_id: str, args: str) -> str:
        """`args` is known to be JSON, with a list or an object."""
        text = f"{_start(key)}{self._middle}{args}{self._end}"
        if self._key:
            text = f'{text}{_SIG}{_digest(text.encode(), self._covered + run_id, self._key)}"'
        sealed = text + "}"
        size = len(sealed) if sealed.isascii() else len(sealed.encode())
        if size > self._payload_max:
            told = _sizes(size, self._payload_max)
            raise UsageError(f"message {quote(key)} is too large: {told}; {_SMALLER}")
        if is_too_deep(sealed):
            raise UsageError(f"bad message {quote(key)}: its {TOO_DEEP}, the message's own included")
        return sealed


def _start(key: str) -> str:
    return f'{{"v":{VERSION},"id":{_quoted(key)}'


@lru_cache(maxsize=1024)
def _middle(app: str, task: str, queue: str) -> str:
    """Between its id and when it was pushed."""
    return f',"app":{_quoted(app)},"task":{_quoted(task)},"queue":{_quoted(queue)},"pushed_at":'


def open_envelope(fire: Fire, rules: MessageRules) -> MessageBody | Refusal:
    """What this fire's message asks for, or why it may not have it."""
    text = fire.payload
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    if size > rules.payload_max:
        return Refusal("oversized", f"the message has {_sizes(size, rules.payload_max)}; {_SMALLER}")
    is_trusted = not rules.secrets or _is_signed(fire, rules.secrets)
    body = (_usual_body(fire) if is_trusted else None) or _read_body(fire, rules, is_trusted)
    return body if isinstance(body, Refusal) else _check_rules(body, fire, rules) or body


def _usual_body(fire: Fire) -> MessageBody | None:
    """Most are what `Sealer` makes of their fire, which is told by comparing: only the arguments have to be
    read.  None: this one is to be read whole."""
    before, _, rest = fire.payload.partition(_ARGS)
    app, _, task = fire.job.partition(".")
    start = f"{_start(fire.key)}{_middle(app, task, fire.queue)}"
    pushed_at = _pushed_at(before[len(start) :]) if before.startswith(start) else None
    if pushed_at is None:
        return None
    try:
        value, end = decode_start(rest)
    except _UNREADABLE:
        return None
    args = rest[:end]  # on one line, and without half a character
    is_plain = type(value) in _CONTAINERS and "\\" not in args and args.isprintable()
    is_whole = rest[end:] == "}" or _SIGNED_END.fullmatch(rest, end)
    return MessageBody(task, args, pushed_at) if is_plain and is_whole else None


@lru_cache(maxsize=256)
def _pushed_at(text: str) -> float | None:
    """None: it is not written as we do."""
    return float(text) if _PUSHED_AT.fullmatch(text) else None


def _read_body(fire: Fire, rules: MessageRules, is_trusted: bool) -> MessageBody | Refusal:
    try:
        fire.payload.encode()
        fields = decode(fire.payload)
    except _UNREADABLE as error:
        return _malformed(f"it is no JSON that can be read ({_worded(error)})")
    if type(fields) is not dict:
        return _malformed("it is JSON, but not an object")
    version = fields.get("v")
    if type(version) is not int or version != VERSION:
        told = f"version {show(version)}" if "v" in fields else "no version"
        return Refusal("unknown-version", f"the message has {told}; this node reads version {VERSION}")
    refusal = None if is_trusted else _distrust(fields, rules.secrets)
    return refusal or _check_shape(fields) or _check_place(fields, fire) or _body(fields)


# The order of the checks.


def _is_signed(fire: Fire, secrets: Sequence[Secret]) -> bool:
    """By one of these, whatever it says."""
    signed, _, rest = fire.payload.encode("utf-8", "surrogatepass").rpartition(_SIG.encode())
    covered = _covered(fire)
    return any(
        hmac.compare_digest(rest, f'{_digest(signed, covered, secret.key())}"}}'.encode())
        for secret in secrets
    )


def _distrust(fields: Mapping[str, Any], secrets: Sequence[Secret]) -> Refusal:
    if "sig" not in fields:
        return Refusal("unsigned", "the message carries no signature, and this app has a secret")
    fits = "fits none of the secrets" if len(secrets) > 1 else "does not fit the secret"
    return Refusal(
        "forged",
        f"the signature {fits}; the message or its policy was altered, or its sender has another secret",
    )


def _check_shape(fields: Mapping[str, Any]) -> Refusal | None:
    names = fields.keys()
    if not names >= _REQUIRED:
        return _malformed(f"it lacks {listed(sorted(_REQUIRED - names), 'and')}")
    if not names <= _KNOWN:
        return _malformed(f"it has the unknown field {quote(min(names - _KNOWN))}")
    for name in _TEXTS:
        if type(fields[name]) is not str:
            return _malformed(f"{name} is not a text")
    pushed_at = fields["pushed_at"]
    if type(pushed_at) not in _NUMBERS or not 0 <= pushed_at < PUSHED_AT_MAX:
        return _malformed("pushed_at is not in seconds since the epoch")
    if type(fields["args"]) not in _CONTAINERS:
        return _malformed("args is neither a list nor an object")
    if type(fields.get("links", _NO_LINKS)) is not dict:
        return _malformed("links is not an object")
    depth = fields.get("depth", 0)
    if type(depth) is not int or not 0 <= depth <= DEPTH_MAX:
        return _malformed("depth is not a number of links")
    return None


def _check_place(fields: Mapping[str, Any], fire: Fire) -> Refusal | None:
    if fields["id"] != fire.key:
        name = "id"
    elif fields["queue"] != fire.queue:
        name = "queue"
    elif fields["app"] != _app_of(fire):
        name = "app"
    else:
        return None
    return Refusal(
        "misdirected",
        f"the message was sealed for another fire: its {name} is {quote(fields[name])}; it may be a copy",
    )


def _check_rules(body: MessageBody, fire: Fire, rules: MessageRules) -> Refusal | None:
    if rules.max_age_s and rules.now - body.pushed_at > rules.max_age_s:
        age_s = rules.now - max(body.pushed_at, fire.due_at.timestamp())
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
    links = fields.get("links", _NO_LINKS)
    try:
        args = encode(fields["args"])
        args.encode()
        if links:
            encode(links).encode()
    except _UNREADABLE as error:
        return _malformed(f"args or links hold what JSON cannot ({_worded(error)})")
    return MessageBody(fields["task"], args, float(fields["pushed_at"]), links, fields.get("depth", 0))


# What is signed.


def _digest(signed: bytes, covered: str, key: bytes) -> str:
    # The length says where the text ends and the fire begins; the first words, that this is no request.
    message = b"detent envelope %d\n%d\n%b%b" % (
        VERSION,
        len(signed),
        signed,
        covered.encode("utf-8", "surrogatepass"),
    )
    return hmac.digest(key, message, "sha256").hex()


def _covered(fire: Fire) -> str:
    """Everything of a fire that the text does not say anyway."""
    start_by = fire.start_by.timestamp() if fire.start_by else None
    return f"{fire.due_at.timestamp()!r} {start_by!r}\n{_steady_text(_steady(fire))}\n{fire.run_id}"


@lru_cache(maxsize=4096)  # most fires of a task have them all in common, but for a lane of their own
def _steady_text(values: tuple[Any, ...]) -> str:
    """Of the other fields those that are not as usual."""
    return encode_ascii(_changed(_STEADY, values, _USUAL))


def _changed(names: Iterable[str], values: Iterable[Any], usual: Iterable[Any]) -> list[Any]:
    triples = zip(names, values, usual, strict=True)
    return [[name, _plain(value)] for name, value, default in triples if value != default]


def _plain(value: Any) -> Any:
    """A value as JSON has it, the same whether or not it has been in a store."""
    match value:
        case str() | None:
            return value
        case int() | float():
            return float(value)  # 30 and 30.0 are one timeout
        case datetime():
            return value.timestamp()
    if hasattr(value, "_fields"):
        return _changed(value._fields, value, type(value)())
    return [_plain(one) for one in value]


def _app_of(fire: Fire) -> str:
    return fire.job.partition(".")[0]


# JSON, strictly.


def check_args(args: str) -> None:
    try:
        value = decode(args)
        if not args.isascii() or "\\u" in args:
            (args + encode(value)).encode()
    except _UNREADABLE as error:
        raise UsageError(f"bad arguments: they are no JSON ({_worded(error)})") from None
    if type(value) not in (list, dict):
        raise UsageError("bad arguments: JSON with a list or an object is wanted")


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
            return "half a character, a lone surrogate"
        case json.JSONDecodeError():
            return f"{error.msg} at character {error.pos}"
    return str(error).partition(";")[0]


def _malformed(what: str) -> Refusal:
    return Refusal("malformed", f"the message cannot be read: {what}")


def _sizes(size: int, most: int) -> str:
    return f"{plural(size, 'byte')}, {most:,} are allowed"


_ARGS, _SIG = ',"args":', ',"sig":"'
_PUSHED_AT = re.compile(r"[0-9]{1,11}\.[0-9]{3}")
_SIGNED_END = re.compile(_SIG + r'[0-9a-f]{64}"\}')
_SMALLER = "keep large data elsewhere and send its name"
_TASK_MAX = 200  # characters of a name that are compared with those of the tasks there are
_TEXTS = ("id", "app", "task", "queue")
_REQUIRED = frozenset({"v", "pushed_at", "args", *_TEXTS})
_KNOWN = _REQUIRED | {"links", "depth", "sig"}
_NUMBERS, _CONTAINERS = frozenset({int, float}), frozenset({list, dict})
_NO_LINKS: dict[str, Any] = {}
_ELSEWHERE = ("key", "queue", "payload", "due_at", "start_by", "run_id")  # the text has them, or `_covered`
_STEADY = tuple(name for name in Fire._fields if name not in _ELSEWHERE)
_USUAL = tuple(Fire._field_defaults.get(name) for name in _STEADY)
_steady = attrgetter(*_STEADY)
_UNREADABLE = (ValueError, TypeError, RecursionError)  # half a character, or too many digits: the first
