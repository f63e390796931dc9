"""Where messages are opened: what one asks for, whether it may have it, and what follows from its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from detent.manifest.secret_refs import Secret
from detent.messages.ad_hoc import Allowed, ad_hoc_work, allowed_from
from detent.messages.envelope import Letter, Refusal, Rules, open_envelope
from detent.messages.message import MAX_AGE_S, Stamp, Task, Wish, follow, links_fault, message, rules_of
from detent.model import Call, Fire, Outcome, Work

NOTHING: Mapping[str, Allowed] = {}


class Desk:
    """The tasks that a worker serves, and what else its queues allow."""

    def __init__(
        self,
        tasks: Mapping[str, Task],
        secrets: Sequence[Secret] = (),
        allowed: Mapping[str, Allowed] = NOTHING,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        self._tasks, self._secrets, self._allowed = tasks, secrets, allowed
        rules = rules_of(tasks, secrets)
        self._rules = rules._replace(tasks={**rules.tasks, **allowed_from(allowed)})
        self._max_age_s = min(max_age_s, MAX_AGE_S)

    def open(self, fire: Fire, now: datetime) -> Work | Refusal:
        """What this message is to carry out; `now` by the store's clock."""
        letter = self._read(fire, self._rules._replace(max_age_s=self._max_age_s, now=now.timestamp()))
        if isinstance(letter, Refusal):
            return letter
        if letter.task.startswith("!"):
            return ad_hoc_work(fire.queue, letter, self._allowed)
        return self._tasks[letter.task].call._replace(args=letter.args)

    def follow(self, fire: Fire, outcome: Outcome, now: datetime, result: str = "") -> tuple[Fire, ...]:
        """The messages that the end of this one brings about; `result` is what it returned, in JSON."""
        if '"links"' not in fire.payload:
            return ()
        letter = self._read(fire, self._rules)  # it has run: its age does not matter any more
        return () if isinstance(letter, Refusal) else follow(fire, letter, (outcome, now, result), self._make)

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks it knows, as heartbeats list them."""
        return sorted(self._rules.tasks)

    @property
    def secrets(self) -> Sequence[Secret]:
        """That open messages."""
        return self._secrets

    def _read(self, fire: Fire, rules: Rules) -> Letter | Refusal:
        letter = open_envelope(fire, rules)
        fault = links_fault(letter.links) if isinstance(letter, Letter) and letter.links else ""
        said = f"what should follow from the message cannot be read: {fault}"
        return Refusal("malformed", said) if fault else letter

    def _make(self, name: str, args: str, wish: Wish, stamp: Stamp) -> Fire:
        """A task that is not known here may be another node's: who gets the message says so."""
        task = self._tasks.get(name) or Task(name, Call(""))
        return message(task, args, wish, stamp, self._secrets)
