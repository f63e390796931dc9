"""Remembers what this node launched lately, and reports what the store forgot of it.

After a failover or a restore, a store may have lost what it acknowledged, and any node may launch it again.
Only the node that launched it first can tell.
"""

from __future__ import annotations

from collections import deque

from detent.model import Claim, Query, Report, Verdict
from detent.node.reporting import fields_of
from detent.node.store_calls import StoreCalls

LAUNCHES_MAX = 500  # each of them is looked up after a failover


class ForgottenLaunches:
    def __init__(self, call: StoreCalls) -> None:
        self._call = call
        self._launches = deque[Claim](maxlen=LAUNCHES_MAX)
        self._suspects: list[Claim] = []  # launches to look up, the newest last

    def remember(self, report: Report, verdict: Verdict | None) -> None:
        """Remember an attempt whose end the store acknowledged."""
        if verdict and verdict.counts and report.claim.disposition is None:
            self._launches.append(report.claim)

    def suspect_all(self) -> None:
        self._suspects = list(self._launches)

    async def report(self) -> None:
        """Look up the suspected launches.  A fire that the store forgot altogether is not launched again."""
        while self._suspects:
            launch = self._suspects[-1]
            query = Query(app=self._call.app, key=launch.fire.key)
            rows = await self._call("look", self._call.ports.store.find, query)
            self._suspects.pop()
            if any(launch.fence not in (attempt.fence for attempt in row.attempts) for row in rows):
                self._call.ports.emit("forgotten", **fields_of(launch))
