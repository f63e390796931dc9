"""ManualClaims of messages by a process that is no worker: asked for, opened, settled as a worker would."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from detent.clock import StoreClock
from detent.manifest.secret_refs import Secret
from detent.messages.envelope import Refusal
from detent.model import Ask, Call, Claim, End, Report, Verdict
from detent.node.claim_session import ClaimSession
from detent.observe.secrecy import mask_report
from detent.rules.settling import admit, refuse, report, return_claim
from detent.warden.instances import instance_name
from detent.worker.inbox import Inbox

if TYPE_CHECKING:
    from detent.app.app import Detent


class Granted(NamedTuple):
    """A message that may run."""

    claim: Claim
    call: Call
    sent: float  # when it was asked for: from then on it is trusted


class ClaimResult(NamedTuple):
    """What came of one ask."""

    granted: list[Granted]
    settled: list[tuple[Claim, Verdict]]  # those that may not run, or whose worker is gone
    next_in_s: float  # when asking again may pay
    verdicts: list[Verdict | None]  # that stand, of what was reported with the ask; None: another has it


class _Own(threading.local):
    """The session of one thread: a store ignores an ask that a newer one of the same instance overtook."""

    pid = 0
    session: ClaimSession | None = None


class ManualClaims:
    """Those of one app, by this process."""

    def __init__(self, app: Detent) -> None:
        self._app, self.rng = app, Random()
        self._own = _Own()
        self._unknown: set[str] = set()  # tasks, as app.task, that messages asked for and the app lacks
        self._made, self._made_of = Inbox({}), (-1, tuple[Secret, ...]())

    def claim(
        self, queues: Sequence[str], limit: int, ttl_s: float = 0.0, reports: Sequence[Report] = ()
    ) -> ClaimResult:
        """Claim what is due on these queues, at most so many; what may not run is settled.  Reports are told
        with it."""
        inbox, session, without = self._inbox(), self._session(), tuple(sorted(self._unknown))
        ask = session.ask._replace(queues=tuple(queues), limit=limit, ttl_s=ttl_s, without=without)
        grants, sent, verdicts = session.claim(ask, reports)
        taken = ClaimResult([], [], grants.next_in_s, verdicts)
        for claim in sorted(grants.claims, key=attrgetter("fence")):  # as they were granted
            verdict, call = admit(claim, self.rng), None
            if verdict is None:
                opened = inbox.open(claim.fire, grants.now)
                call = opened if isinstance(opened, Call) else None
                if isinstance(opened, Refusal):
                    verdict = self._refused(claim, opened)
                elif call is None:
                    verdict = return_claim("what it describes is run by workers only", "not-here")
            if verdict:
                self.finish(claim, verdict, End(verdict.outcome))
                taken.settled.append((claim, verdict))
            elif call:
                taken.granted.append(Granted(claim, call, sent))
        return taken

    def _refused(self, claim: Claim, why: Refusal) -> Verdict:
        """A message of a task that is unknown here waits for a worker that has it."""
        if why.fault != "unknown-task":
            return refuse(*why)
        self._unknown.add(claim.fire.job)
        return return_claim(why.detail, "not-here")

    def finish(self, claim: Claim, verdict: Verdict, end: End) -> Verdict | None:
        """Tell the store; the verdict that stands, or None: another has it."""
        return self._session().finish(self.report(claim, verdict, end))

    def report(self, claim: Claim, verdict: Verdict, end: End) -> Report:
        """What the store is to be told, with what follows."""
        now = self._app.sender.now()
        told = report(claim, verdict, end, now)
        if verdict.again_in_s is None:
            told = told._replace(follow=self._inbox().follow(claim.fire, verdict.outcome, now, end.result))
        return mask_report(self._app.mask, told)

    def _inbox(self) -> Inbox:
        """Another one where a task came, a queue allows more, or the secrets were read anew."""
        made_of = self._app.changes, self._app.sender.secrets()
        if self._made_of != made_of:
            self._made_of, self._made = made_of, self._app.inbox()
            self._unknown.clear()
        return self._made

    def _session(self) -> ClaimSession:
        """That of this thread.  A fork, or another store, gets a new one."""
        own, store = self._own, self._app.open_store()
        if own.session is None or own.session.store is not store or own.pid != os.getpid():
            ask = Ask(self._app.name, instance_name(socket.gethostname(), "hand"), number=0, hooks=0)
            own.pid, own.session = os.getpid(), ClaimSession(store, ask, StoreClock())
        return own.session
