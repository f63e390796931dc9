"""Claims of messages by a process that is no worker: asked for, opened, settled as a worker would."""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from itertools import count
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from detent import clock
from detent.core.envelope import Refusal
from detent.core.secrets import Secret
from detent.core.settle import admit, give_back, refuse, report
from detent.errors import StoreUnavailable
from detent.model import Ask, Call, Claim, End, Grants, Report, Verdict
from detent.node.desk import Desk
from detent.observe.secrecy import masked

if TYPE_CHECKING:
    from detent.app import Detent

T = TypeVar("T")


class Granted(NamedTuple):
    """A message that may run."""

    claim: Claim
    call: Call
    sent: float  # when it was asked for: from then on it is trusted


class Taken(NamedTuple):
    """What came of one ask."""

    granted: list[Granted]
    settled: list[tuple[Claim, Verdict]]  # those that may not run, or whose worker is gone
    next_in_s: float  # when asking again may pay
    verdicts: list[Verdict | None]  # that stand, of what was reported with the ask; None: another has it


class _Asker(threading.local):
    """Whom the store knows a thread by.  A store ignores an ask that arrives after a newer one of the same
    life, so threads share no life, and neither do processes after a fork."""

    pid, life = 0, ""
    numbers = count(1)

    def next_ask(self) -> tuple[str, int]:
        """The life, and the number of its next ask."""
        if self.pid != os.getpid():
            host = re.sub("[^A-Za-z0-9_-]+", "-", socket.gethostname())[:50]
            self.pid, self.life = os.getpid(), f"{host}.hand-{secrets.token_hex(4)}"
            self.numbers = count(1)
        return self.life, next(self.numbers)


class Claims:
    """Those of one app, by this process."""

    def __init__(self, app: Detent) -> None:
        self._app, self.rng = app, Random()
        self._asker = _Asker()
        self._unknown: set[str] = set()  # tasks, as app.task, that messages asked for and the app lacks
        self._made, self._made_of = Desk({}), (-1, tuple[Secret, ...]())

    def take(
        self, queues: Sequence[str], limit: int, ttl_s: float = 0.0, reports: Sequence[Report] = ()
    ) -> Taken:
        """Claim what is due on these queues, at most so many; what may not run is settled.  Reports are told
        with it."""
        desk, sent = self._desk(), clock.boottime()
        verdicts, grants = self._ask(queues, limit, ttl_s, reports)
        taken = Taken([], [], grants.next_in_s, verdicts)
        for claim in sorted(grants.claims, key=attrgetter("fence")):  # as they were granted
            verdict, call = admit(claim, self.rng), None
            if verdict is None:
                opened = desk.open(claim.fire, grants.now)
                call = opened if isinstance(opened, Call) else None
                if isinstance(opened, Refusal):
                    verdict = self._refused(claim, opened)
                elif call is None:
                    verdict = give_back("what it describes is run by workers only")
            if verdict:
                self.finish(claim, verdict, End(verdict.outcome))
                taken.settled.append((claim, verdict))
            elif call:
                taken.granted.append(Granted(claim, call, sent))
        return taken

    def _refused(self, claim: Claim, why: Refusal) -> Verdict:
        """A message of a task that is unknown here waits for a worker that has it."""
        if why.reason != "unknown-task":
            return refuse(why)
        self._unknown.add(claim.fire.job)
        return give_back(why.detail)

    def finish(self, claim: Claim, verdict: Verdict, end: End) -> Verdict | None:
        """Tell the store; the verdict that stands, or None: another has it."""
        reports = [self.report(claim, verdict, end)]
        return repeated(lambda: self._app.open_store().finish(reports))[0]

    def report(self, claim: Claim, verdict: Verdict, end: End) -> Report:
        """What the store is to be told, with what follows."""
        now = self._app.post.now()
        told = report(claim, verdict, end, now)
        if verdict.again_in_s is None:
            told = told._replace(follow=self._desk().follow(claim.fire, verdict.outcome, now, end.result))
        return masked(self._app.mask, told)

    def _desk(self) -> Desk:
        """Another one where a task came, a queue allows more, or the secrets were read anew."""
        made_of = self._app.changes, self._app.post.secrets()
        if self._made_of != made_of:
            self._made_of, self._made = made_of, self._app.desk()
            self._unknown.clear()
        return self._made

    def _ask(
        self, queues: Sequence[str], limit: int, ttl_s: float, reports: Sequence[Report]
    ) -> tuple[list[Verdict | None], Grants]:
        """One call of the store."""
        store, (life, number) = self._app.open_store(), self._asker.next_ask()
        ask = Ask(
            app=self._app.name,
            node=life,
            number=number,
            limit=limit,
            queues=tuple(queues),
            ttl_s=ttl_s,
            without=tuple(sorted(self._unknown)),
            hooks=0,
        )
        if reports:
            return repeated(lambda: store.finish_and_claim(reports, ask))
        return [], repeated(lambda: store.claim(ask))


def repeated(call: Callable[[], T]) -> T:
    """Once more where the store did not answer: it may have done it, and says then what it said."""
    try:
        return call()
    except StoreUnavailable:
        return call()
