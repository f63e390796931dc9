"""Opens messages: checks what a message may run, and creates the messages that follow from its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from detent.manifest.secret_refs import Secret
from detent.messages.ad_hoc import Allowed, ad_hoc_work, allowed_from
from detent.messages.envelope import MessageBody, Refusal, open_envelope
from detent.messages.message import (
    MAX_AGE_S,
    MessageOptions,
    PushContext,
    Task,
    follow,
    links_fault,
    message,
    message_rules,
)
from detent.model import Call, Fire, Outcome, Work

NOTHING: Mapping[str, Allowed] = {}


class Inbox:
    def __init__(
        self,
        tasks: Mapping[str, Task],
        secrets: Sequence[Secret] = (),
        allowed: Mapping[str, Allowed] = NOTHING,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        self._tasks, self._secrets, self._allowed = tasks, secrets, allowed
        rules = message_rules(tasks, secrets)
        may_come = {**rules.tasks, **allowed_from(allowed)}
        self._rules = rules._replace(tasks=may_come, max_age_s=min(max_age_s, MAX_AGE_S))

    def open(self, fire: Fire, now: datetime) -> Work | Refusal:
        """Return the work of a message, or why it is refused.  `now` is the store's time."""
        body = self._read(fire, now.timestamp())
        if isinstance(body, Refusal):
            return body
        if body.task.startswith("!"):
            return ad_hoc_work(fire.queue, body, self._allowed)
        return self._tasks[body.task].call._replace(args=body.args)

    def follow(self, fire: Fire, outcome: Outcome, now: datetime, result: str = "") -> tuple[Fire, ...]:
        """Return the messages that follow from the end of this one.  `result` is its return value in JSON."""
        if '"links"' not in fire.payload:
            return ()
        body = self._read(fire, now=0.0)  # after it has run, its age does not matter
        return () if isinstance(body, Refusal) else follow(fire, body, (outcome, now, result), self._make)

    @property
    def tasks(self) -> list[str]:
        """The names of the known tasks, for the heartbeat."""
        return sorted(self._rules.tasks)

    @property
    def secrets(self) -> Sequence[Secret]:
        """The secrets that verify and decrypt messages."""
        return self._secrets

    def _read(self, fire: Fire, now: float) -> MessageBody | Refusal:
        body = open_envelope(fire, self._rules, now)
        fault = links_fault(body.links) if isinstance(body, MessageBody) and body.links else ""
        return Refusal("malformed", f"the links of the message cannot be read: {fault}") if fault else body

    def _make(self, name: str, args: str, options: MessageOptions, context: PushContext) -> Fire:
        """Create a message.  Another node may know a task that this one does not."""
        task = self._tasks.get(name) or Task(name, Call(""))
        return message(task, args, options, context, self._secrets)
