"""Messages: fires that are pushed to a queue, made of a task, its arguments and options.

1. The key is the name of the task and a token, or the text that makes the message unique.
2. The policy comes from the task.
3. `then`, `catch` and `finally` list messages to send when this one is over.  They are part of the message,
   and their keys are derived from it, so settling twice sends the same messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.manifest.secret_refs import Secret
from detent.messages.envelope import MessageBody, MessageRules, Sealer, check_args
from detent.model import DEAD, Call, Fire, Kind, Outcome, Policy, Retries
from detent.rules.planning import run_id
from detent.rules.rates import PRIORITIES, with_priorities, with_priority
from detent.text import quote

DEPTH_MAX = 20  # messages in a chain
OPTION_MAX_S = 366 * 86_400.0  # longest duration that an option may have
MAX_AGE_S = 30 * 86_400.0  # older messages are refused: a copy of a pruned message would not be noticed
WITH_RESULT = "with_result"  # in a link: the first argument is the result of the message before
LINKS: dict[str, tuple[Kind, ...]] = {"then": ("succeeded",), "catch": DEAD}


class Task(NamedTuple):
    """A function that messages may call."""

    name: str  # without the app
    call: Call  # its arguments come from the message
    queue: str = "default"
    queues: frozenset[str] = frozenset()  # further queues that it may come from
    policy: Policy = Policy(concurrency="Allow")
    lane: str = ""  # messages with the same lane never run at once; "": they may
    expires_s: float = 0.0  # a message that has not started this long after it was due is missed; 0: no limit


class MessageOptions(NamedTuple):
    """The options of one push.  They take precedence over those of the task."""

    queue: str = ""  # "": the queue of the task
    priority: str = "normal"
    delay_s: float = 0.0
    unique: str = ""  # at most one message with this text per task within `unique_s`
    unique_s: float = 86_400.0
    expires_s: float = 0.0  # 0: as for the task
    rate_key: str = ""
    links: Mapping[str, Any] = {}  # then, catch, finally → lists of what `link` returns


class PushContext(NamedTuple):
    app: str
    at: datetime  # estimate of the store's clock
    token: str
    depth: int = 0
    trace: str = ""  # the `traceparent` of the span that pushes


def message(
    task: Task, args: str, options: MessageOptions, context: PushContext, secrets: Sequence[Secret]
) -> Fire:
    """Build one message; `args` is JSON with a list or an object."""
    check_args(args)
    return messages(task, [(context.token, args)], options, context, secrets)[0]


def messages(
    task: Task,
    calls: Iterable[tuple[str, str]],
    options: MessageOptions,
    context: PushContext,
    secrets: Sequence[Secret],
) -> list[Fire]:
    """Build a message for each token and its arguments, which must be valid JSON."""
    like, pushed_at = _like(task, options, context)
    body = MessageBody(task.name, "[]", pushed_at, options.links, context.depth, context.trace)
    sealer = Sealer(like, body, secrets)
    made = []
    for token, args in calls:
        key = f"{like.job}#{options.unique or token}"
        run = run_id(like.due_at, key + token if options.unique else key)
        made.append(like._replace(key=key, run_id=run, payload=sealer.seal(key, run, args)))
    return made


def _like(task: Task, options: MessageOptions, context: PushContext) -> tuple[Fire, float]:
    """Return what all messages of one push have in common, and when they are pushed."""
    pushed_at = context.at.replace(microsecond=context.at.microsecond // 1000 * 1000)
    due_at = pushed_at + timedelta(seconds=round(options.delay_s, 3))
    policy = task.policy
    if options.unique:
        policy = policy._replace(unique_s=options.unique_s)
    if options.rate_key:
        policy = policy._replace(rate_key=options.rate_key)
    expires_s = options.expires_s or task.expires_s
    fire = Fire(
        key="",
        job=f"{context.app}.{task.name}",
        due_at=due_at,
        queue=with_priority(options.queue or task.queue, options.priority),
        lane=f"{context.app}#{task.lane}" if task.lane else "",
        start_by=due_at + timedelta(seconds=expires_s) if expires_s else None,
        policy=policy,
        origin="push",
    )
    return fire, pushed_at.timestamp()


def task_policy(max_retries: int, backoff: Retries, on_contention: str, **further: Any) -> Policy:
    """Build the policy of a task.  By default, messages of a lost worker run again if there are retries."""
    further.setdefault("on_lost", "rerun" if max_retries else "skip")
    return Policy(
        concurrency={"": "Allow", "requeue": "Queue", "fail": "Forbid"}[on_contention],  # type: ignore[arg-type]
        retries=backoff._replace(max_attempts=max_retries + 1),
        **further,
    )


def message_rules(tasks: Mapping[str, Task], secrets: Sequence[Secret]) -> MessageRules:
    may_come = {name: frozenset(with_priorities([task.queue, *task.queues])) for name, task in tasks.items()}
    return MessageRules(secrets, may_come)


# Links: messages to send afterwards.


def link(task: str, args: str, options: MessageOptions) -> dict[str, Any]:
    """Return a message for the links of another."""
    usual = MessageOptions._field_defaults
    given = {name: value for name, value in options._asdict().items() if value != usual[name]}
    return {"task": task, "args": json.loads(args), **given}


def follow(
    fire: Fire,
    body: MessageBody,
    ended: tuple[Outcome, datetime, str],
    make: Callable[[str, str, MessageOptions, PushContext], Fire],
) -> tuple[Fire, ...]:
    """Return the messages to send after this one.  `ended`: its outcome, the time, and the result as JSON."""
    (outcome, at, result), app = ended, fire.job.partition(".")[0]
    due = [name for name, kinds in LINKS.items() if outcome.kind in kinds]
    due += ["finally"] if due else []  # not after a skipped or cancelled message
    made = []
    for name in due:
        for number, one in enumerate(body.links.get(name, ())):
            options = MessageOptions(
                **{field: one[field] for field in MessageOptions._fields if field in one}
            )
            context = PushContext(app, at, f"{fire.run_id}.{name}.{number}", body.depth + 1, body.trace)
            args = one["args"]
            if one.get(WITH_RESULT):
                args = [json.loads(result) if result else None, *args[1:]]
            made.append(make(one["task"], json.dumps(args), options, context))
    return tuple(made)


def links_fault(links: Mapping[str, Any], depth: int = 1) -> str:
    """Return what is wrong with the links of a message from outside, or ""."""
    if depth > DEPTH_MAX:
        return f"a chain of more than {DEPTH_MAX} messages; let one push the next instead"
    for name, follows in links.items():
        if name not in (*LINKS, "finally") or type(follows) is not list:
            return f"{quote(name)} is not then, catch or finally with a list"
        for one in follows:
            if type(one) is not dict or type(one.get("task")) is not str:
                return "a link has no task"
            if type(one.get("args")) not in (list, dict):
                return "the args of a link are not a list or an object"
            if not one.keys() <= {"task", "args", WITH_RESULT, *MessageOptions._fields} or not _are_options(
                one
            ):
                return "a link has an unknown option or a wrong value"
            if WITH_RESULT in one and (one[WITH_RESULT] is not True or type(one["args"]) is not list):
                return "a link cannot receive a result"
            if fault := links_fault(one.get("links", {}), depth + 1):
                return fault
    return ""


def _are_options(one: Mapping[str, Any]) -> bool:
    for name, default in MessageOptions._field_defaults.items():
        value = one.get(name, default)
        if isinstance(default, float):
            if type(value) not in (int, float) or not 0 <= value <= OPTION_MAX_S:
                return False
        elif type(value) is not type(default) or (name == "priority" and value not in PRIORITIES):
            return False
    return True


def check_links(links: Mapping[str, Any]) -> None:
    if fault := links_fault(links):
        raise UsageError(fault)
