"""A message: a fire that was pushed to a queue, made of a task, its arguments and what was wished for it.

1. Its key is its task's name and a token: a growing one, in part random or, where it is unique, what makes
   it so.
2. Its policy is its task's; runs are the retries and one more, also where a worker is lost.
3. What follows from it (`then`, `catch`, `finally`) goes with it, and is made of it when it is over, under
   keys of its own: whoever settles it twice puts the same messages.  A chain has an end: `DEPTH_MAX`.
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

DEPTH_MAX = 20  # links of a chain, one after the other
OPTION_MAX_S = 366 * 86_400.0

MAX_AGE_S = 30 * 86_400.0  # or, if that is less, `keep_days`: a copy of one that is pruned is not noticed
WITH_RESULT = "with_result"  # in a link: the first argument is what the message before returned
LINKS: dict[str, tuple[Kind, ...]] = {
    "then": ("succeeded",),
    "catch": DEAD,
}


class Task(NamedTuple):
    """A function that messages may ask for, as its app declared it."""

    name: str  # within its app
    call: Call  # its arguments come with the message
    queue: str = "default"
    queues: frozenset[str] = frozenset()  # further ones that it may come from
    policy: Policy = Policy(concurrency="Allow")
    lane: str = ""  # messages of one name never run at once; "": they may
    expires_s: float = 0.0  # not begun so long after it was due, it is missed; 0: no such limit


class MessageOptions(NamedTuple):
    """What is said of one message, on top of what its task says."""

    queue: str = ""  # "": its task's
    priority: str = "normal"
    delay_s: float = 0.0
    unique: str = ""  # with this, only one of its task within `unique_s`
    unique_s: float = 86_400.0
    expires_s: float = 0.0  # 0: as its task says
    rate_key: str = ""
    links: Mapping[str, Any] = {}  # then, catch, finally -> a list, as `link` makes one


class PushContext(NamedTuple):
    """When and as which a message is made."""

    app: str
    at: datetime  # by the store's clock, as far as that is known
    token: str
    depth: int = 0


def message(
    task: Task, args: str, options: MessageOptions, context: PushContext, secrets: Sequence[Secret]
) -> Fire:
    """`args` is JSON: a list for the function's positions, or an object for its names."""
    check_args(args)
    return messages(task, [(context.token, args)], options, context, secrets)[0]


def messages(
    task: Task,
    letters: Iterable[tuple[str, str]],
    options: MessageOptions,
    context: PushContext,
    secrets: Sequence[Secret],
) -> list[Fire]:
    """One for each token and its arguments, which are known to be JSON; the stamp's own token is not used."""
    like, pushed_at = _like(task, options, context)
    job, due_at, prefix = like.job, like.due_at, f"{like.job}#"
    sealer = Sealer(like, MessageBody(task.name, "[]", pushed_at, options.links, context.depth), secrets)
    made = []
    for token, args in letters:
        key = prefix + (options.unique or token)
        run = run_id(due_at, key + token if options.unique else key)
        made.append(
            Fire(
                key,
                job,
                due_at,
                run,
                like.queue,
                like.lane,
                like.start_by,
                like.policy,
                "push",
                "",
                sealer.seal(key, run, args),
            )
        )
    return made


def _like(task: Task, options: MessageOptions, context: PushContext) -> tuple[Fire, float]:
    """What they all have in common, and when they are pushed."""
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
    """How often a task's messages are run, and what they do where their lane is full.  Where nothing else is
    said, a lost worker is a run like any other."""
    further.setdefault("on_lost", "rerun" if max_retries else "skip")
    return Policy(
        concurrency={"": "Allow", "requeue": "Queue", "fail": "Forbid"}[on_contention],  # type: ignore[arg-type]
        retries=backoff._replace(max_attempts=max_retries + 1),
        **further,
    )


def message_rules(tasks: Mapping[str, Task], secrets: Sequence[Secret]) -> MessageRules:
    """Which messages may run where these are the tasks."""
    may_come = {name: frozenset(with_priorities([task.queue, *task.queues])) for name, task in tasks.items()}
    return MessageRules(secrets, may_come)


# What follows.


def link(task: str, args: str, options: MessageOptions) -> dict[str, Any]:
    """A message to be, in the links of another."""
    said = {
        name: value
        for name, value in options._asdict().items()
        if value != MessageOptions._field_defaults[name]
    }
    return {"task": task, "args": json.loads(args), **said}


def follow(
    fire: Fire,
    body: MessageBody,
    ended: tuple[Outcome, datetime, str],
    make: Callable[[str, str, MessageOptions, PushContext], Fire],
) -> tuple[Fire, ...]:
    """The messages that its end brings about.  It ended so, then, with this result in JSON.  `make` makes one
    of a task's name."""
    (outcome, at, result), app = ended, fire.job.partition(".")[0]
    due = [name for name, kinds in LINKS.items() if outcome.kind in kinds]
    due += ["finally"] if due else []  # what was skipped or cancelled ends nothing
    made = []
    for name in due:
        for number, one in enumerate(body.links.get(name, ())):
            options = MessageOptions(
                **{field: one[field] for field in MessageOptions._fields if field in one}
            )
            context = PushContext(app, at, f"{fire.run_id}.{name}.{number}", body.depth + 1)
            args = one["args"]
            if one.get(WITH_RESULT):
                args = [json.loads(result) if result else None, *args[1:]]
            made.append(make(one["task"], json.dumps(args), options, context))
    return tuple(made)


def links_fault(links: Mapping[str, Any], depth: int = 1) -> str:
    """Why nothing can follow from these links, which may be anybody's; "": they are sound."""
    if depth > DEPTH_MAX:
        return f"more than {DEPTH_MAX} follow one another"
    for name, follows in links.items():
        if name not in (*LINKS, "finally") or type(follows) is not list:
            return f"{quote(name)} is no list of what follows"
        for one in follows:
            if type(one) is not dict or type(one.get("task")) is not str:
                return "one has no task"
            if type(one.get("args")) not in (list, dict):
                return "the args of one are neither a list nor an object"
            if not one.keys() <= {"task", "args", WITH_RESULT, *MessageOptions._fields} or not _are_options(
                one
            ):
                return "one says what cannot be said of a message"
            if WITH_RESULT in one and (one[WITH_RESULT] is not True or type(one["args"]) is not list):
                return "one cannot be given a result"
            if fault := links_fault(one.get("links", {}), depth + 1):
                return fault
    return ""


def _are_options(one: Mapping[str, Any]) -> bool:
    """Is each thing that it says of its kind?"""
    for name, usual in MessageOptions._field_defaults.items():
        said = one.get(name, usual)
        if isinstance(usual, float):
            if type(said) not in (int, float) or not 0 <= said <= OPTION_MAX_S:
                return False
        elif type(said) is not type(usual) or (name == "priority" and said not in PRIORITIES):
            return False
    return True


def check_links(links: Mapping[str, Any], depth: int = 1) -> None:
    """Is the chain short enough?  It is looked at when it is pushed: a letter carries all of it."""
    if depth > DEPTH_MAX:
        raise UsageError(f"a chain of more than {DEPTH_MAX} messages; let one push the next instead")
    for follows in links.values():
        for one in follows:
            check_links(one.get("links", {}), depth + 1)
