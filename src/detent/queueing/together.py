"""What the threads of a process ask of the store at once, in one call of it.

While a call is under way, whoever comes waits for the next, which goes for all of them together: to claim ten
messages, or to report ten, takes little longer than one.  Who comes alone is not kept waiting.  And the asks
of one life go out one by one: the store takes one that was overtaken by a newer for a late copy, and grants
it nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from detent.model import Claim, Report, Verdict

CLAIMS_MAX = 10_000  # in one call


class Kind(NamedTuple):
    """What asks have in common that can be one."""

    queues: tuple[str, ...]
    ttl_s: float


class Told(NamedTuple):
    verdicts: list[Verdict | None]  # that stand, of what was reported; None: another has it
    claims: list[Claim]  # as they were granted
    now: datetime | None  # by the store's clock; None: nothing was asked for
    next_in_s: float  # when asking again may pay
    sent: float  # when the store was called


Carry = Callable[[Kind | None, int, list[Report]], Told]


class _Wanted:
    """What one thread asks for, and what it is told."""

    def __init__(self, kind: Kind | None, limit: int, reports: Sequence[Report]) -> None:
        self.kind, self.limit, self.reports = kind, limit, reports
        self.told: Told | None = None
        self.error: Exception | None = None
        self.turn = threading.Lock()
        self.turn.acquire()  # until it is answered, or ours to call for those who wait


class Together:
    def __init__(self, carry: Carry) -> None:
        self._carry, self._lock = carry, threading.Lock()
        self._waiting: list[_Wanted] = []
        self._is_calling = False

    def ask(self, kind: Kind | None, limit: int, reports: Sequence[Report]) -> Told:
        """Without a kind, only to report."""
        mine = _Wanted(kind, limit, reports)
        with self._lock:
            self._waiting.append(mine)
            is_ours, self._is_calling = not self._is_calling, True
        if not is_ours:
            mine.turn.acquire()
        if mine.told is None and mine.error is None:
            self._call_for(mine)
        if mine.error:
            raise mine.error
        assert mine.told
        return mine.told

    def _call_for(self, caller: _Wanted) -> None:
        """For all who wait and can be told in one call; then it is another's turn."""
        kind, group = self._gather()
        try:
            limit = min(sum(one.limit for one in group), CLAIMS_MAX)
            _share(group, self._carry(kind, limit, [report for one in group for report in one.reports]))
        except Exception as error:
            for one in group:
                one.error = error
        finally:
            self._go_on(caller, group)

    def _gather(self) -> tuple[Kind | None, list[_Wanted]]:
        with self._lock:
            kind = next((one.kind for one in self._waiting if one.kind), None)
            group = [one for one in self._waiting if one.kind in (kind, None)]
            self._waiting = [one for one in self._waiting if one.kind not in (kind, None)]
        return kind, group

    def _go_on(self, caller: _Wanted, group: list[_Wanted]) -> None:
        """Who has no answer, as the caller was interrupted, waits for the next call."""
        others = [one for one in group if one is not caller]
        with self._lock:
            self._waiting[:0] = [one for one in others if one.told is None and one.error is None]
            self._is_calling = bool(self._waiting)
            following = self._waiting[0] if self._waiting else None
        for one in others:
            if one.told or one.error:
                one.turn.release()
        if following:
            following.turn.release()


def _share(group: Sequence[_Wanted], told: Told) -> None:
    """Each its own verdicts.  The first to ask get what there is to run; what is only to be settled comes on
    top, for the very first of them."""
    runs, verdicts = iter([claim for claim in told.claims if not claim.sentence]), iter(told.verdicts)
    sentenced = [claim for claim in told.claims if claim.sentence]
    for one in group:
        claims = list(islice(runs, one.limit))
        if one.kind:
            claims, sentenced = sentenced + claims, []
        one.told = told._replace(verdicts=list(islice(verdicts, len(one.reports))), claims=claims)
