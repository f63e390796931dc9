"""Pushes ad hoc messages, which describe their work themselves: a command, a function call, a request.

Only work that `app.allow` allows for the queue is pushed.  A worker checks it again.
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

ANY = "*"  # every public host


def allowed_of(command: bool, call: Sequence[str], request: Sequence[str], where: str) -> Allowed:
    hosts = (request,) if isinstance(request, str) else tuple(request)
    try:
        check_reach(Reach(tuple(host for host in hosts if host != ANY)))
    except UsageError as error:
        raise UsageError(f"{where}: request: {error}") from None
    return Allowed(command, (call,) if isinstance(call, str) else tuple(call), hosts)


class Runs(TypedDict, total=False):
    max_retries: int
    timeout_seconds: float


class Sent(Runs, total=False):
    body: str
    headers: dict[str, str]


def push_ad_hoc(app: Detent, queue: str, kind: str, args: dict[str, Any], runs: Runs) -> Handle[Any]:
    text = json.dumps(args)
    given = checked(RUNS, dict(runs), f"queue {quote(queue)}")
    if queue not in {name.partition("^")[0] for name in allowed_from(app.allowed())[kind]}:
        raise UsageError(
            f"queue {quote(queue)} allows no {kind[1:]} from a message: allow it with app.allow({queue!r}, …)"
        )
    work = ad_hoc_work(queue, MessageBody(kind, text), app.allowed())
    if isinstance(work, Refusal):
        raise UsageError(f"queue {quote(queue)}: {work.detail}")
    further = {"timeout_s": float(given.get("timeout_seconds", 0)), "drop_result": True}
    policy = task_policy(given.get("max_retries", 0), Retries(), "", **further)
    task = Task(kind, Call(""), queue=queue, policy=policy)
    return app.sender.push(task, [text], PushSpec())[0]
