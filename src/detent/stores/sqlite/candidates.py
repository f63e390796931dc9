"""Finds the due fires of a queue in the SQLite store, with a bound on the rows that one ask reads.

An ask that may start no more fires skips those that would only start.  An ask that may settle no more fires
skips those that would only be settled.  In doubt, a fire is returned, and the lane rules decide.

One ask reads `LOOKS_MAX` rows from the oldest on.  If these give it too little, it reads two more ranges
further on, so that fires that cannot run do not block the fires behind them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from detent.model import Ask
from detent.rules.lanes import LATE_S
from detent.stores.sqlite.rows import Kept
from detent.stores.sqlite.transaction import Transaction

DOUBT_S = 0.001  # decisions compare microseconds; within this margin, do not skip
LOOKS_MAX = 1000  # rows of one range; takes a few milliseconds
GLANCE_MAX = 200  # the same, for an ask that can neither start nor settle any more
VAIN_MAX = 300  # decisions of one range that may have no effect

Place = tuple[float, str]  # `run_at` and key of a fire: fires are due in this order
HEAD: Place = (float("-inf"), "")


class Wants(NamedTuple):
    """What the ask can still use."""

    runs: bool
    hooks: bool
    settles: bool


class Due:
    """The due fires of one queue, in order, from one or more ranges."""

    def __init__(self, transaction: Transaction, ask: Ask, queue: str) -> None:
        self._transaction, self._ask = transaction, ask
        self.values: dict[str, Any] = {  # the parameters of the conditions below
            "app": ask.app,
            "queue": queue,
            "now": transaction.wall,
            "monotonic": transaction.monotonic,
            "before": transaction.wall - DOUBT_S,
            "after": transaction.wall + DOUBT_S,
            "late_before": transaction.wall - DOUBT_S - LATE_S,
            "late_after": transaction.wall + DOUBT_S - LATE_S,
            "paused": json.dumps(list(transaction.notes.pauses(ask.app))),
            "graces": json.dumps(list(transaction.fires.graces())),
            "without": json.dumps(ask.without),
        }
        self.continue_at(HEAD)

    def continue_at(self, start: Place) -> None:
        """Continue with the range after this place."""
        self._place, self._vain = start, VAIN_MAX
        self._for: Wants | None = None
        self._rest: Iterator[Kept] = iter(())
        self._end: Place | None = None
        self.values |= {"since": start[0], "since_key": start[1]}

    @property
    def young(self) -> Place:
        """The place after which no fire is late."""
        return self._transaction.wall - LATE_S, ""

    @property
    def stop(self) -> Place | None:
        """The end of the range; None: the range had all due fires."""
        return self._end if self._vain else self._place

    def next(self, wants: Wants) -> Kept | None:
        """The next fire that may be of use to the ask."""
        if not self._vain:
            return None
        if wants != self._for:
            self._for, self._rest = wants, self._look(wants)
        for entry in self._rest:
            self._place = entry.run_at, entry.fire.key
            if not self._transaction.fires.is_forgotten(entry):
                return entry
        return None

    def stop_reading(self) -> None:
        """Read no more of this range."""
        self._vain = 0

    def had_no_effect(self) -> None:
        """The decision on the last fire had no effect."""
        self._vain -= 1

    def query_again(self) -> None:
        """Query again, because later rows were changed or a lane is now full."""
        self._for = None

    def _look(self, wants: Wants) -> Iterator[Kept]:
        self._transaction.save()  # the conditions read which lanes are taken
        source, where = READY, [AFTER]
        if not wants.runs:
            source, where = DOUBTFUL, [AFTER, IS_DOUBTFUL]
        self.values |= {"since": self._place[0], "since_key": self._place[1]}
        most = LOOKS_MAX if wants.runs or wants.settles else GLANCE_MAX
        where.append(self._limit(source, where, most))
        where += [f"NOT ({_GOES_ON_WAITING})", f"NOT ({IS_HELD})"]
        if useless := self._useless(wants):
            where.append(f"NOT (({useless}) AND NOT ({MAY_BE_SETTLED}) AND {IS_FREE})")
        if not wants.settles:
            where.append(f"NOT ({_IS_SETTLED})")
        return self._transaction.fires.select(
            " AND ".join(where) + " ORDER BY run_at, key", self.values, source
        )

    def limit(self) -> str:
        """The condition that ends the range."""
        return self._limit(READY, [AFTER], LOOKS_MAX)

    def _limit(self, source: str, where: list[str], most: int) -> str:
        last = f"SELECT run_at, key FROM {source} WHERE {' AND '.join([*where, BY_NOW])} {_LAST}"
        self._end = self._transaction.db.execute(last, {**self.values, "others": most - 1}).fetchone()
        if not self._end:
            return BY_NOW
        self.values |= {"until": self._end[0], "until_key": self._end[1]}
        return "(run_at, key) <= (:until, :until_key)"

    def _useless(self, wants: Wants) -> str:
        """The condition of fires that are of no use if they would only start."""
        kinds = [] if wants.runs else ["origin <> 'hook'"]
        kinds += [] if wants.hooks else ["origin = 'hook'"]
        kinds += [IS_ELSEWHERE] if self._ask.without else []
        return " OR ".join(kinds)


READY, DOUBTFUL = "fires INDEXED BY fires_ready", "fires INDEXED BY fires_doubtful"
# The index supports one bound on each side.
AFTER = "state = 'pending' AND app = :app AND queue = :queue AND (run_at, key) > (:since, :since_key)"
BY_NOW = "run_at <= :now"
_LAST = "ORDER BY run_at, key LIMIT 1 OFFSET :others"
IS_DOUBTFUL = """
(lane <> '' OR origin IN ('schedule', 'hook') OR start_by IS NOT NULL OR sentence IS NOT NULL)
""".strip()  # must be the text of the index's condition
IS_ELSEWHERE = "job IN (SELECT value FROM json_each(:without))"
_HAS_NO_JOB = "(origin = 'schedule' AND NOT EXISTS (SELECT 1 FROM marks WHERE marks.job = fires.job))"
_IS_PAUSED = "(origin = 'schedule' AND job IN (SELECT value FROM json_each(:paused)))"
MAY_BE_SETTLED = (
    f"sentence IS NOT NULL OR {_HAS_NO_JOB} OR attempt = 0 AND ({_IS_PAUSED}"
    " OR coalesce(start_by < :after, 0) OR (origin = 'schedule' AND due < :late_after))"
)
# `lane <> ''` and `state <> 'over'` are the condition of the index.
_IN_LANE = """
SELECT 1 FROM fires AS other WHERE other.lane = fires.lane AND other.lane <> '' AND other.state <> 'over'
""".strip()
IS_IN_GRACE = "lane IN (SELECT value FROM json_each(:graces))"
IS_TAKEN = f"""
EXISTS ({_IN_LANE} AND other.state = 'claimed' AND other.sentence IS NULL AND other.expires > :monotonic)
""".strip()
_HAS_RIVALS = (
    f"EXISTS ({_IN_LANE} AND other.state = 'pending' AND other.run_at <= :now AND other.id <> fires.id)"
)
# No claim holds the lane, and it does not replace older fires by newer ones.
IS_FREE = f"""
(lane = '' OR NOT {IS_IN_GRACE} AND NOT {IS_TAKEN}
    AND NOT ({_HAS_RIVALS} AND instr(policy, '"concurrency":"Replace"') > 0))
""".strip()
_IS_FULL = f"instr(policy, '\"max_running\":') = 0 AND {IS_TAKEN}"
# Late, and nothing else prevents its start.
_IS_LATE = f"""
origin = 'schedule' AND due < :late_before AND attempt = 0 AND sentence IS NULL AND NOT {_IS_PAUSED}
AND coalesce(start_by > :after, 1) AND waits = 0
""".strip()
_IS_LATEST = "instr(policy, '\"catch_up\":') = 0"
_WATERMARK = "coalesce((SELECT at FROM marks WHERE marks.job = fires.job), 0)"  # 0: the job was removed
IS_HELD = f"{_IS_LATE} AND {_WATERMARK} > 0 AND ({_IS_LATEST} AND {_WATERMARK} < :before OR {_IS_FULL})"
IS_OUTDATED = f"""
{_IS_LATE} AND {_IS_LATEST} AND {_WATERMARK} > :after
AND (lane = '' OR NOT {IS_IN_GRACE} AND NOT {IS_TAKEN})
AND EXISTS (
    SELECT 1 FROM fires AS newer
    WHERE newer.job = fires.job AND newer.due > fires.due AND newer.due <= :now AND newer.state <> 'over'
        AND newer.origin = 'schedule'
)
""".strip()
IS_MISSED = f"""
start_by IS NOT NULL AND start_by < :before AND attempt = 0 AND sentence IS NULL AND NOT {_IS_PAUSED}
AND NOT {_HAS_NO_JOB}
""".strip()
_IS_SETTLED = f"""
sentence IS NOT NULL OR {_HAS_NO_JOB} OR attempt = 0 AND ({_IS_PAUSED} OR coalesce(start_by < :before, 0))
OR {IS_OUTDATED} OR lane <> '' AND instr(policy, '"concurrency":') = 0 AND {_IS_FULL}
""".strip()
# A message that waits for a taken lane with one place.  There may be thousands.
_GOES_ON_WAITING = f"""
origin = 'push' AND start_by IS NULL AND sentence IS NULL AND waits = 1
AND instr(policy, '"concurrency":"Queue"') > 0 AND {_IS_FULL}
"""
