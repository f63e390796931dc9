"""What this node has launched of late, to be compared with a store that may have forgotten some of it.

After a failover or a restore a store may not know any more what it acknowledged, and what it forgot is
launched again, by whichever node.  Whoever launched it first is the only one who can tell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from detent.events import Emit
from detent.model import Claim, Query, Report, Row, Verdict
from detent.node.reporting import fields_of

LAUNCHES_MAX = 500  # more can hardly be forgotten, and each is looked up


class ForgottenLaunches:
    def __init__(self) -> None:
        self._launches = deque[Claim](maxlen=LAUNCHES_MAX)
        self._doubtful: list[Claim] = []  # launches to be looked up, newest last

    def remember(self, report: Report, stands: Verdict | None) -> None:
        """The store has acknowledged the end of an attempt."""
        if stands and stands.counts and report.claim.disposition is None:
            self._launches.append(report.claim)

    def suspect_all(self) -> None:
        """The store is in another epoch."""
        self._doubtful = list(self._launches)

    async def report_forgotten(
        self, app: str, find: Callable[[Query], Awaitable[list[Row]]], emit: Emit
    ) -> None:
        """Say which launches the store of a new epoch does not know."""
        while self._doubtful:
            launch = self._doubtful[-1]
            found = await find(Query(app=app, key=launch.fire.key))
            self._doubtful.pop()
            if _is_forgotten(launch, found):
                emit("forgotten", **fields_of(launch))


def _is_forgotten(launch: Claim, found: list[Row]) -> bool:
    """Is the fire there without this attempt?  One that is not there at all is not launched again."""
    return any(launch.fence not in (one.fence for one in row.attempts) for row in found)
