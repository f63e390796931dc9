"""Claims of messages by a process that is no worker: asked for, opened, settled as a worker would."""

from __future__ import annotations

import math
import os
import re
import secrets
import socket
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
from detent.model import Ask, Call, Claim, End, Report, Verdict
from detent.node.desk import Desk
from detent.observe.secrecy import masked
from detent.queueing.together import Kind, Together, Told

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


class Claims:
    """Those of one app, by this process."""

    def __init__(self, app: Detent) -> None:
        self._app, self.rng = app, Random()
        self._pid, self._life, self._numbers = 0, "", count(1)
        self._asks = Together(self._carry)
        self._unknown: set[str] = set()  # tasks, as app.task, that messages asked for and the app lacks
        self._made, self._made_of = Desk({}), (-1, tuple[Secret, ...]())

    def take(
        self, queues: Sequence[str], limit: int, ttl_s: float = 0.0, reports: Sequence[Report] = ()
    ) -> Taken:
        """Claim what is due on these queues, at most so many; what may not run is settled.  Reports are told
        with it."""
        desk, told = self._desk(), self._ask(Kind(tuple(queues), ttl_s), limit, reports)
        assert told.now
        taken = Taken([], [], told.next_in_s, told.verdicts)
        for claim in told.claims:
            verdict, call = admit(claim, self.rng), None
            if verdict is None:
                opened = desk.open(claim.fire, told.now)
                call = opened if isinstance(opened, Call) else None
                if isinstance(opened, Refusal):
                    verdict = self._refused(claim, opened)
                elif call is None:
                    verdict = give_back("what it describes is run by workers only")
            if verdict:
                self.finish(claim, verdict, End(verdict.outcome))
                taken.settled.append((claim, verdict))
            elif call:
                taken.granted.append(Granted(claim, call, told.sent))
        return taken

    def _refused(self, claim: Claim, why: Refusal) -> Verdict:
        """A message of a task that is unknown here waits for a worker that has it."""
        if why.reason != "unknown-task":
            return refuse(why)
        self._unknown.add(claim.fire.job)
        return give_back(why.detail)

    def finish(self, claim: Claim, verdict: Verdict, end: End) -> Verdict | None:
        """Tell the store; the verdict that stands, or None: another has it."""
        return self._ask(None, 0, [self.report(claim, verdict, end)]).verdicts[0]

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

    def _ask(self, kind: Kind | None, limit: int, reports: Sequence[Report]) -> Told:
        if self._pid != os.getpid():  # a fork has none of the threads that may be asking
            host = re.sub("[^A-Za-z0-9_-]+", "-", socket.gethostname())[:50]
            self._asks, self._numbers = Together(self._carry), count(1)
            self._pid, self._life = os.getpid(), f"{host}.hand-{secrets.token_hex(4)}"
        return self._asks.ask(kind, limit, reports)

    def _carry(self, kind: Kind | None, limit: int, reports: list[Report]) -> Told:
        """One call of the store."""
        store, sent = self._app.open_store(), clock.boottime()
        if kind is None:
            return Told(repeated(lambda: store.finish(reports)), [], None, math.inf, sent)
        ask = Ask(
            app=self._app.name,
            node=self._life,
            number=next(self._numbers),
            limit=limit,
            queues=kind.queues,
            ttl_s=kind.ttl_s,
            without=tuple(sorted(self._unknown)),
            hooks=0,
        )
        if reports:
            verdicts, grants = repeated(lambda: store.finish_and_claim(reports, ask))
        else:
            verdicts, grants = [], repeated(lambda: store.claim(ask))
        claims = sorted(grants.claims, key=attrgetter("fence"))  # as they were granted
        return Told(verdicts, claims, grants.now, grants.next_in_s, sent)


def repeated(call: Callable[[], T]) -> T:
    """Once more where the store did not answer: it may have done it, and says then what it said."""
    try:
        return call()
    except StoreUnavailable:
        return call()
