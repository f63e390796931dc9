"""A queue of an app: its rate, its messages, its dead letters, and claims without a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from detent import clock
from detent.app.queue.ad_hoc import Runs, Sent, push_ad_hoc
from detent.app.queue.arguments import caller
from detent.app.queue.deliveries import Delivery
from detent.app.queue.handles import Handle, State, state_of
from detent.app.queue.limits import checked_rate
from detent.app.queue.options import checked
from detent.errors import UsageError
from detent.manifest.fields import DAY_S, NAME_SHAPE
from detent.manifest.shapes import Field, Integer, Number, Record
from detent.messages.ad_hoc import CALL, COMMAND, REQUEST
from detent.messages.envelope import MessageBody, Refusal, open_envelope
from detent.messages.message import MessageOptions, PushContext, message, message_rules
from detent.messages.strict_json import decode
from detent.model import DEAD, Cause, Fire, Query, Rate, Row, Size, Usage
from detent.rules.rates import charged_as, priority_of, rate_of, rate_text, with_priorities, without_priority
from detent.rules.trust import CLAIM_MIN_S
from detent.stores.base import RATE, find_all
from detent.text import quote

if TYPE_CHECKING:
    from detent.app.app import Detent

PAGE = 1_000
CLAIM_MAX = 10_000
TTL_S = 30.0
LOOK_S = 1.0  # a wake-up can be lost: the longest time between two asks
_CLAIM = Record((
    Field("n", Integer(1, CLAIM_MAX)),
    Field("ttl_seconds", Number(CLAIM_MIN_S, DAY_S)),
    Field("wait_seconds", Number(0, DAY_S)),
))  # fmt: skip
_NAME = Record((Field("queue", NAME_SHAPE),))


class Queued(NamedTuple):
    """A message on a queue."""

    key: str
    task: str
    args: Any  # None: unreadable
    state: State
    reason: str  # of its outcome, or of its last attempt
    cause: Cause | None
    attempts: int
    priority: str
    run_at: datetime | None
    over_at: datetime | None


class Queue:
    """Returned by `Detent.queue`."""

    def __init__(self, app: Detent, name: str) -> None:
        checked(_NAME, {"queue": name}, caller().removesuffix(": "))
        self._app, self.name = app, name
        self._levels = with_priorities([name])

    # Ad hoc messages, which describe their work themselves, where `Detent.allow` allows them.

    def push_command(self, words: str | Sequence[str], **runs: Unpack[Runs]) -> Handle[Any]:
        """Run a command: text for the shell, or a list of words that runs without a shell."""
        work = {"command": words} if isinstance(words, str) else {"words": [*words]}
        return push_ad_hoc(self._app, self.name, COMMAND, work, runs)

    def push_call(self, function: str, *args: Any, **runs: Unpack[Runs]) -> Handle[Any]:
        """Call a function, given as package.module:function."""
        return push_ad_hoc(self._app, self.name, CALL, {"function": function, "args": [*args]}, runs)

    def push_request(self, url: str, method: str = "POST", **sent: Unpack[Sent]) -> Handle[Any]:
        """Send an HTTP request, which is not signed."""
        work = {
            "url": url,
            "method": method,
            "body": sent.pop("body", ""),
            "headers": sent.pop("headers", {}),
        }
        return push_ad_hoc(self._app, self.name, REQUEST, work, sent)

    # Its rate.

    def limit(self, most: int, *, per: float = 60.0, smooth: bool = False, by_key: bool = False) -> None:
        """Grant all workers together at most `most` attempts in any window of `per` seconds, until `unlimit`.
        `smooth` spaces them evenly; `by_key` counts each `rate_key` separately."""
        rate = checked_rate(self.name, most=most, per=per, smooth=smooth, by_key=by_key)
        self._note(rate_text(rate))

    def unlimit(self) -> None:
        self._note("")

    def rate(self) -> Rate | None:
        """The rate limit; None if there is none."""
        notes = self._app.open_store().notes(self._app.name, RATE + self.name)
        return next((rate_of(note.text) for note in notes if note.name == RATE + self.name), None)

    def usage(self, key: str = "") -> Usage:
        """How much of the rate is used up; with a rate by key, for this key."""
        rate = self.rate()
        if rate is None:
            return Usage(0, 0.0)
        return self._app.open_store().charge(self._app.name, charged_as(self.name, rate, key), rate, 0)

    def reset(self, key: str = "") -> None:
        """Set the counted attempts back to zero."""
        rate = self.rate()
        name = charged_as(self.name, rate, key) if rate else self.name
        self._app.open_store().reset(self._app.name, name)

    def _note(self, text: str) -> None:
        self._app.open_store().note(self._app.name, RATE + self.name, text)

    # Its messages.

    def size(self) -> Size:
        """The number of messages in each state."""
        found = self._app.open_store().count(self._app.name, self._levels).values()
        return Size(*map(sum, zip(*found, strict=True))) if found else Size()

    def peek(self, n: int = 10) -> list[Queued]:
        """The next messages, in the order in which workers will get them.  None is claimed."""
        rows = [row for level in self._levels for row in self._find(n, queues=(level,), upcoming=True)]
        now = self._app.sender.exact_now().timestamp()
        places = {name: place for place, name in enumerate(self._levels)}

        def order(row: Row) -> tuple[float, int, float, str]:
            run_at = row.run_at.timestamp() if row.run_at else 0.0
            return run_at if run_at > now else 0.0, places[row.fire.queue], run_at, row.fire.key

        return self._listed(sorted(rows, key=order)[:n])

    def dead(self, limit: int = 50) -> list[Queued]:
        """The dead letters, the newest first, each with its last error."""
        return self._listed(self._find(limit, state="over", kinds=DEAD))

    def purge(self, *, dead: bool = False, pending: bool = False) -> int:
        """Delete the dead letters, cancel the pending messages; return how many."""
        if not dead and not pending:
            raise UsageError(
                f"{caller()}choose what to purge from {quote(self.name)}: dead=True, pending=True"
            )
        store, gone = self._app.open_store(), 0
        for rows in self._pages(state="pending") if pending else ():
            gone += sum(store.cancel(row.fire.key, "purged") for row in rows)
        for rows in self._pages(state="over", kinds=DEAD) if dead else ():
            gone += store.forget([row.fire.key for row in rows])
        return gone

    def _pages(self, **query: Any) -> Iterator[list[Row]]:
        """Find again until nothing is left, or nothing changes."""
        before: list[Row] = []
        while (rows := self._find(PAGE, **query)) and rows != before:
            yield rows
            before = rows

    def _find(self, limit: int, **query: Any) -> list[Row]:
        asked = Query(self._app.name, origins=("push",), queues=self._levels, limit=limit)._replace(**query)
        return find_all(self._app.open_store(), asked)

    def _listed(self, rows: Sequence[Row]) -> list[Queued]:
        now = self._app.sender.exact_now()
        return [_queued(row, now) for row in rows]

    # Retrying.

    def retry(self, *keys: str) -> list[Handle[Any]]:
        """Push dead letters again, as new messages with the current options of their tasks.  Retrying the
        same key twice pushes one message."""
        store = self._app.open_store()
        olds = [old for key in keys if (old := self._dead_row(key))]
        fires = [self._again(old.fire) for old in olds]
        fresh = store.put(fires)
        renamed = [old.fire.key for old, new in zip(olds, fires, strict=True) if old.fire.key != new.key]
        store.forget(renamed)
        tasks = self._app.tasks()
        keeps = [not tasks[fire.job.partition(".")[2]].policy.drop_result for fire in fires]
        made = zip(fires, fresh, keeps, strict=True)
        return [Handle(self._app, fire.key, is_new, keep) for fire, is_new, keep in made]

    def _dead_row(self, key: str) -> Row | None:
        """The row of a dead letter; None if it was retried before and deleted."""
        rows = self._app.open_store().find(Query(key=key, limit=1))
        if not rows:
            if self._app.open_store().find(Query(key=_next_key(key), limit=1)):
                return None
            raise UsageError(
                f"there is no message {quote(key)}; `dead` lists the messages that can be retried"
            )
        row, fire = rows[0], rows[0].fire
        if fire.origin != "push" or without_priority(fire.queue) != self.name:
            raise UsageError(f"{quote(key)} is not a message of the queue {quote(self.name)}")
        if row.state != "over" or row.outcome is None or row.outcome.kind not in DEAD:
            raise UsageError(f"{quote(key)} is not dead: it is {state_of(row, self._app.sender.exact_now())}")
        return row

    def _again(self, fire: Fire) -> Fire:
        """Verify the old signature first: a forged message must not be signed again."""
        tasks, secrets = self._app.tasks(), self._app.sender.secrets()
        body = open_envelope(fire, message_rules(tasks, secrets))
        if isinstance(body, Refusal):
            raise UsageError(f"{quote(fire.key)} cannot be retried: {body.fault}: {body.detail}")
        token = _next_key(fire.key).partition("#")[2]
        unique = fire.key.partition("#")[2] if fire.policy.unique_s else ""
        context = PushContext(self._app.name, self._app.sender.now(), token, body.depth, body.trace)
        return message(tasks[body.task], body.args, _options_of(fire, body, unique), context, secrets)

    # Claims without a worker.

    def claim(
        self,
        n: int = 1,
        *,
        ttl_seconds: float = TTL_S,
        wait_seconds: float = 0.0,
        done: Sequence[Delivery] = (),
    ) -> list[Delivery]:
        """Claim at most `n` due messages for `ttl_seconds` each, and wait up to `wait_seconds` for the first.
        The `done` deliveries are acknowledged in the same call of the store; a delivery that another process
        has claimed meanwhile `is_lost`."""
        given = {"n": n, "ttl_seconds": ttl_seconds, "wait_seconds": wait_seconds}
        checked(_CLAIM, given, caller().removesuffix(": "))
        store, until = self._app.open_store(), clock.monotonic() + wait_seconds
        if not isinstance(done, (list, tuple)) or any(not isinstance(one, Delivery) for one in done):
            raise UsageError(f"{caller()}bad done {done!r:.80}: it must be a list of deliveries from `claim`")
        reports = [delivery.done_report() for delivery in done]
        while True:
            taken = self._app.claims.claim(self._levels, n, ttl_seconds, reports)
            for delivery, accepted in zip(done, taken.verdicts, strict=False):
                delivery.answered("acked", accepted)
            reports = []
            left_s = until - clock.monotonic()
            if taken.granted or left_s <= 0:
                return [Delivery(self._app.claims, store, granted) for granted in taken.granted]
            store.wait(self._app.name, max(0.001, min(left_s, taken.next_in_s, LOOK_S)))


def _next_key(key: str) -> str:
    """The key of the message that a retry makes: always the same one."""
    base, _, count = key.rpartition("~")
    return f"{base}~{int(count) + 1}" if base and count.isdigit() else f"{key}~1"


def _options_of(fire: Fire, body: MessageBody, unique: str) -> MessageOptions:
    return MessageOptions(
        queue=without_priority(fire.queue),
        priority=priority_of(fire.queue),
        unique=unique,
        unique_s=fire.policy.unique_s,
        expires_s=(fire.start_by - fire.due_at) / timedelta(seconds=1) if fire.start_by else 0.0,
        rate_key=fire.policy.rate_key,
        links=body.links,
    )


def _queued(row: Row, now: datetime) -> Queued:
    task, args = _task_and_args(row.fire)
    return Queued(
        key=row.fire.key,
        task=task,
        args=args,
        state=state_of(row, now),
        reason=row.outcome.reason if row.outcome else "",
        cause=row.outcome.cause if row.outcome else None,
        attempts=row.attempt,
        priority=priority_of(row.fire.queue),
        run_at=row.run_at,
        over_at=row.over_at,
    )


def _task_and_args(fire: Fire) -> tuple[str, Any]:
    """The task and arguments in the payload, which is not verified."""
    try:
        payload = decode(fire.payload)
        return str(payload["task"]), payload["args"]
    except (ValueError, TypeError, KeyError):
        return fire.job.partition(".")[2], None
