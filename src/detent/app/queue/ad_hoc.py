"""Messages that describe their work themselves: a command, a call of any function, a request.

Only what `app.allow` allows a queue is put there; a worker refuses all else, whoever put it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypedDict

from detent.app.queue.handles import Handle
from detent.app.queue.options import RUNS, PushSpec, checked
from detent.errors import UsageError
from detent.messages.ad_hoc import Allowed, ad_hoc_work, allowed_from
from detent.messages.addresses import Reach, check_reach
from detent.messages.envelope import MessageBody, Refusal
from detent.messages.message import Task, task_policy
from detent.model import Call, Retries
from detent.text import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detent.app.app import Detent

ANY = "*"  # of hosts: every public one


def allowed_of(command: bool, call: Sequence[str], request: Sequence[str], where: str) -> Allowed:
    """What a queue is to allow, checked."""
    hosts = (request,) if isinstance(request, str) else tuple(request)
    try:
        check_reach(Reach(tuple(host for host in hosts if host != ANY)))
    except UsageError as error:
        raise UsageError(f"{where}: request: {error}") from None
    return Allowed(command, (call,) if isinstance(call, str) else tuple(call), hosts)


class Runs(TypedDict, total=False):
    """How such a message is run."""

    max_retries: int
    timeout_seconds: float


class Sent(Runs, total=False):
    """How a request is made and run."""

    body: str
    headers: dict[str, str]


def push_ad_hoc(app: Detent, queue: str, kind: str, args: dict[str, Any], runs: Runs) -> Handle[Any]:
    """Put such a message."""
    text = json.dumps(args)
    given = checked(RUNS, dict(runs), f"queue {quote(queue)}")
    if queue not in {name.partition("^")[0] for name in allowed_from(app.allowed())[kind]}:
        raise UsageError(
            f"queue {quote(queue)} allows no {kind[1:]} from a message: say so with app.allow({queue!r}, …)"
        )
    work = ad_hoc_work(queue, MessageBody(kind, text), app.allowed())
    if isinstance(work, Refusal):
        raise UsageError(f"queue {quote(queue)}: {work.detail}")
    further = {"timeout_s": float(given.get("timeout_seconds", 0)), "drop_result": True}
    policy = task_policy(given.get("max_retries", 0), Retries(), "", **further)
    task = Task(kind, Call(""), queue=queue, policy=policy)
    return app.sender.push(task, [text], PushSpec())[0]
