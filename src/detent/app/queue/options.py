"""The options of a task and of a push: their names, their allowed values, and the values built from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypedDict

from detent.app.declarations import Location
from detent.errors import UsageError
from detent.manifest.fields import BACKOFF_S, DAY_S, NAME_SHAPE, YEAR_S
from detent.manifest.jobs import model_fields
from detent.manifest.problems import INVALID, Findings
from detent.manifest.shapes import Boolean, Choice, Field, Integer, ListOf, Number, Record, Shape, Text
from detent.messages.message import WITH_RESULT, MessageOptions, Task, check_links, task_policy
from detent.model import Call, Isolation, OnLost, Policy, Retries
from detent.rules.rates import PRIORITIES
from detent.rules.trust import CLAIM_MIN_S
from detent.text import listed, quote, show

Priority = Literal["high", "normal", "low"]
RETRIES_MAX = 1000
UNIQUE_S = MessageOptions().unique_s


class TaskOptions(TypedDict, total=False):
    name: str  # default: the function's name, with hyphens
    queue: str
    also_from: Sequence[str]  # further queues that it may be pushed to
    max_retries: int  # attempts after the first one
    backoff: float | tuple[float, float]  # seconds between attempts: constant, or doubled up to the second
    jitter: float  # the wait varies at random by this fraction
    timeout_seconds: float
    claim_seconds: float
    on_lost: OnLost  # after a worker died: as max_retries says, or one more attempt in any case
    expires_seconds: float  # a message that has not started this long after it was due is dropped
    single: str | bool  # messages with one name never run at once; True: the task's own name
    on_contention: Literal["requeue", "fail"]
    breaker: str
    breaker_threshold: int
    breaker_cooldown_seconds: float
    keep_result: bool
    result_ttl: float  # seconds that a result is kept in spite of node.keep_fires
    isolation: Isolation


class PushOptions(TypedDict, total=False):
    delay: float
    at: datetime
    priority: Priority
    unique: str | int
    unique_for: float
    expires: float
    rate_key: str
    queue: str
    then: Message | Sequence[Message]
    catch: Message | Sequence[Message]
    finally_: Message | Sequence[Message]
    connection: Any


class Message(NamedTuple):
    """A message that follows another one: `then=audit.message(7)`."""

    app: str
    link: Mapping[str, Any]


class PushSpec(NamedTuple):
    """The options of one push, checked."""

    options: MessageOptions = MessageOptions()
    at: datetime | None = None
    connection: Any = None  # the user's own PostgreSQL connection


# Shapes of values.


class _Value(NamedTuple):
    """A value that only Python code can give, with the function that checks it."""

    rule: Callable[[Any, str, Findings], Any]

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        return self.rule(value, path, findings)


def _backoff(value: Any, path: str, findings: Findings) -> Any:
    pair = (value, value) if isinstance(value, int | float) else value
    if isinstance(pair, tuple | list) and len(pair) == 2:
        low, high = (Number(0, DAY_S).check(one, path, findings) for one in pair)
        if INVALID in (low, high) or low <= high:
            return (low, high)
        return findings.problem(path, f"the first wait is longer than the last: write ({high:g}, {low:g})")
    shown = show(tuple(value)) if isinstance(value, list) else show(value)
    return findings.problem(path, f"{shown} is not a number of seconds, nor a pair (least, most) of them")


def _single(value: Any, path: str, findings: Findings) -> Any:
    return value if isinstance(value, bool) else _label("a name").check(value, path, findings)


def _instant(value: Any, path: str, findings: Findings) -> Any:
    if isinstance(value, datetime) and value.tzinfo:
        return value
    kind = "has no time zone" if isinstance(value, datetime) else f"is of type {type(value).__name__}"
    return findings.problem(path, f"it {kind}: give an aware datetime, like datetime.now(UTC)")


def _unique(value: Any, path: str, findings: Findings) -> Any:
    text = str(value) if type(value) is int else value
    return _label("a text or a whole number").check(text, path, findings)


def _messages(value: Any, path: str, findings: Findings) -> Any:
    messages = [value] if isinstance(value, Message) else value
    if isinstance(messages, tuple | list) and all(isinstance(one, Message) for one in messages):
        return tuple(messages)
    return findings.problem(path, f"{show(value)} is neither a `task.message(…)` nor a list of them")


def _connection(value: Any, path: str, findings: Findings) -> Any:
    outside = "it is None, so the message would not be part of your transaction"
    if value is not None:
        return value
    return findings.problem(path, f"{outside}: give a connection, or remove the option")


def _label(allowed: str) -> Shape:
    rule = "without blanks, ~ and control characters, 200 long at most"
    return Text(high=200, low=1, pattern=r"[^\s~\x00-\x1f\x7f]+", allowed=f"{allowed} {rule}", expands=False)


_SECONDS = Number(0, YEAR_S)
_QUEUES = ListOf(NAME_SHAPE, low=0, high=100, noun="queue")
_TASK: dict[str, Shape] = {
    "name": NAME_SHAPE,
    "queue": NAME_SHAPE,
    "also_from": _QUEUES,
    "max_retries": Integer(0, RETRIES_MAX),
    "backoff": _Value(_backoff),
    "jitter": Number(0, 1),
    "timeout_seconds": Number(0, 7 * DAY_S),
    "claim_seconds": Number(CLAIM_MIN_S, DAY_S),
    "on_lost": Choice(("skip", "rerun")),
    "expires_seconds": _SECONDS,
    "single": _Value(_single),
    "on_contention": Choice(("requeue", "fail")),
    "breaker": _label("a name"),
    "breaker_threshold": Integer(1, 1_000_000),
    "breaker_cooldown_seconds": Number(0.001, YEAR_S),
    "keep_result": Boolean(),
    "result_ttl": _SECONDS,
    "isolation": Choice(("process", "thread", "loop")),
}
_PUSH: dict[str, Shape] = {
    "delay": _SECONDS,
    "at": _Value(_instant),
    "priority": Choice(PRIORITIES),
    "unique": _Value(_unique),
    "unique_for": Number(0.001, YEAR_S),
    "expires": Number(0.001, YEAR_S),
    "rate_key": _label("a text"),
    "queue": NAME_SHAPE,
    "then": _Value(_messages),
    "catch": _Value(_messages),
    "finally_": _Value(_messages),
    "connection": _Value(_connection),
}
_BREAKER = ("breaker", "breaker_threshold", "breaker_cooldown_seconds")
_OF_POLICY = ("timeout_seconds", "claim_seconds", "on_lost", *_BREAKER)  # options that a policy has, too
TASK = Record(Field(name, shape) for name, shape in _TASK.items())
RUNS = Record(Field(name, _TASK[name]) for name in ("max_retries", "timeout_seconds"))
PUSH = Record(Field(name, shape) for name, shape in _PUSH.items())


def checked(record: Record, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the checked options, or raise `UsageError` with every problem and its location."""
    findings = Findings({}, None)
    lists = {name: [*value] if type(value) is tuple else value for name, value in options.items()}
    clean: dict[str, Any] = record.check(lists, "", findings)
    try:
        findings.raise_problems()
    except UsageError as error:
        lines = [
            f"{where}: {one.path}: {one.text.replace('unknown key', 'unknown option')}"
            for one in getattr(error, "problems", ())
        ]
        raise UsageError("\n".join(lines)) from None
    return clean


# Values from options.


def task_of(name: str, path: str, options: Mapping[str, Any], where: Location) -> Task:
    """Build the task; `path` is the import path of its function."""
    single = options.get("single", "")
    if not single and "on_contention" in options:
        raise UsageError(f"{where}: task {quote(name)}: on_contention has no effect without single=")
    if "result_ttl" in options and not options.get("keep_result"):
        raise UsageError(f"{where}: task {quote(name)}: result_ttl needs a kept result: add keep_result=True")
    return Task(
        name=name,
        call=Call(function=path, isolation=options.get("isolation", "process")),
        queue=options.get("queue", "default"),
        queues=frozenset(options.get("also_from", ())),
        policy=_policy_of(options, bool(single)),
        lane=name if single is True else single or "",
        expires_s=options.get("expires_seconds", 0.0),
    )


def _policy_of(options: Mapping[str, Any], is_single: bool) -> Policy:
    least, most = options.get("backoff", BACKOFF_S)
    return task_policy(
        options.get("max_retries", 0),
        Retries(min_s=least, max_s=most, jitter=options.get("jitter", 0.0)),
        options.get("on_contention", "requeue") if is_single else "",
        drop_result=not options.get("keep_result", False),
        result_s=options.get("result_ttl", Policy().result_s),
        **model_fields({name: options[name] for name in _OF_POLICY if name in options}),
    )


def push_spec_of(app: str, task: Task, options: Mapping[str, Any], where: str) -> PushSpec:
    given = checked(PUSH, options, where)
    if "delay" in given and "at" in given:
        raise UsageError(f"{where}: delay and at are both given: remove one of them")
    if "unique_for" in given and "unique" not in given:
        raise UsageError(f"{where}: unique_for has no effect without unique=")
    queue = given.get("queue", "")
    if queue and queue not in (task.queue, *task.queues):
        allowed = listed(sorted({task.queue, *task.queues}))
        raise UsageError(f"{where}: queue: {quote(queue)} is not {allowed}; add it to also_from= of the task")
    message = MessageOptions(
        queue=queue,
        priority=given.get("priority", "normal"),
        delay_s=given.get("delay", 0.0),
        unique=given.get("unique", ""),
        unique_s=given.get("unique_for", UNIQUE_S),
        expires_s=given.get("expires", 0.0),
        rate_key=given.get("rate_key", ""),
        links=_links_of(app, task, given, where),
    )
    return PushSpec(message, given.get("at"), given.get("connection"))


def _links_of(app: str, task: Task, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    links: dict[str, Any] = {}
    for word in ("then", "catch", "finally_"):
        messages = given.get(word, ())
        for one in messages:
            fault = ""
            if one.app != app:
                fault = f"a task of {quote(one.app)} cannot follow one of {quote(app)}"
            elif WITH_RESULT in one.link and task.policy.drop_result:
                fault = "message_with_result needs the result of this task: declare it with keep_result=True"
            if fault:
                raise UsageError(f"{where}: {word}: {fault}")
        if messages:
            links[word.rstrip("_")] = [dict(one.link) for one in messages]
    try:
        check_links(links)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    return links
