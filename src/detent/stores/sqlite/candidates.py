"""What is due on a queue of the SQLite store: asks without end must not read fires without end.

An ask that has no place left to run passes over the fires that would surely just run: those that are never
sentenced and have no lane are not even looked at, the others by an index alone.  One that has no sentence
left passes over those that would surely be sentenced.  In doubt a fire is found, and judged.

However much is due, one ask looks at a stretch of `LOOKS_MAX` rows from the oldest on and, if it is not
served by them, at two others further on: what is stuck at the head hides nothing for long, and costs no more
the more there is of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from detent.model import Ask
from detent.rules.lanes import LATE_S
from detent.stores.sqlite.rows import Kept
from detent.stores.sqlite.transaction import Transaction

DOUBT_S = 0.001  # instants are compared in microseconds when they are judged; pass over none too many
LOOKS_MAX = 1000  # rows of one stretch: a few milliseconds
GLANCE_MAX = 200  # by one who can neither run nor settle any more, and may only tell some to wait or to stop
VAIN_MAX = 300  # of them judged for nothing

Place = tuple[float, str]  # in the order in which fires are due
HEAD: Place = (float("-inf"), "")


class Wants(NamedTuple):
    """What an asker can still use."""

    runs: bool
    hooks: bool
    settles: bool


class Due:
    """The fires that are due on one queue, in order: a stretch of them, and perhaps others further on."""

    def __init__(self, transaction: Transaction, ask: Ask, queue: str) -> None:
        self._transaction, self._ask = transaction, ask
        self.values: dict[str, Any] = {  # what the conditions below depend on
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
        self._stretch(HEAD)

    def _stretch(self, start: Place) -> None:
        self._place, self._vain = start, VAIN_MAX
        self._for: Wants | None = None
        self._rest: Iterator[Kept] = iter(())
        self._end: Place | None = None
        self.values |= {"since": start[0], "since_key": start[1]}

    def go_on(self, start: Place) -> None:
        """Look at another stretch, behind this place."""
        self._stretch(start)

    @property
    def young(self) -> Place:
        """Behind it, nothing is an instant of an outage."""
        return self._transaction.wall - LATE_S, ""

    @property
    def stop(self) -> Place | None:
        """Behind which nothing was looked at; None: that was all."""
        return self._end if self._vain else self._place

    def next(self, wants: Wants) -> Kept | None:
        """The next one.  One that is surely of no use to the asker may be passed over."""
        if not self._vain:
            return None
        if wants != self._for:
            self._for, self._rest = wants, self._look(wants)
        for entry in self._rest:
            self._place = entry.run_at, entry.fire.key
            if not self._transaction.fires.is_forgotten(entry):
                return entry
        return None

    def leave(self) -> None:
        """Look at no more of this stretch."""
        self._vain = 0

    def was_vain(self) -> None:
        """Nothing became of the last one."""
        self._vain -= 1

    def look_again(self) -> None:
        """Rows after the last one were written, or a lane is full now."""
        self._for = None

    def _look(self, wants: Wants) -> Iterator[Kept]:
        self._transaction.save()  # of lanes that were taken, the rows tell
        source, where = READY, [AFTER]
        if not wants.runs:
            source, where = DOUBTFUL, [AFTER, IS_DOUBTFUL]
        self.values |= {"since": self._place[0], "since_key": self._place[1]}
        most = LOOKS_MAX if wants.runs or wants.settles else GLANCE_MAX
        where.append(self._limit(source, where, most))
        where += [f"NOT ({_GOES_ON_WAITING})", f"NOT ({IS_HELD})"]
        if useless := self._useless(wants):
            where.append(f"NOT (({useless}) AND NOT ({MAY_BE_SENTENCED}) AND {IS_FREE})")
        if not wants.settles:
            where.append(f"NOT ({_IS_SENTENCED})")
        return self._transaction.fires.select(
            " AND ".join(where) + " ORDER BY run_at, key", self.values, source
        )

    def limit(self) -> str:
        """Until where the stretch goes."""
        return self._limit(READY, [AFTER], LOOKS_MAX)

    def _limit(self, source: str, where: list[str], most: int) -> str:
        last = f"SELECT run_at, key FROM {source} WHERE {' AND '.join([*where, BY_NOW])} {_LAST}"
        self._end = self._transaction.db.execute(last, {**self.values, "others": most - 1}).fetchone()
        if not self._end:
            return BY_NOW
        self.values |= {"until": self._end[0], "until_key": self._end[1]}
        return "(run_at, key) <= (:until, :until_key)"

    def _useless(self, wants: Wants) -> str:
        """Which fires are of no use if they just run."""
        kinds = [] if wants.runs else ["origin <> 'hook'"]
        kinds += [] if wants.hooks else ["origin = 'hook'"]
        kinds += [IS_ELSEWHERE] if self._ask.without else []
        return " OR ".join(kinds)


READY, DOUBTFUL = "fires INDEXED BY fires_ready", "fires INDEXED BY fires_doubtful"
# The index serves for one limit on each side.
AFTER = "state = 'pending' AND app = :app AND queue = :queue AND (run_at, key) > (:since, :since_key)"
BY_NOW = "run_at <= :now"
_LAST = "ORDER BY run_at, key LIMIT 1 OFFSET :others"
IS_DOUBTFUL = """
(lane <> '' OR origin IN ('schedule', 'hook') OR start_by IS NOT NULL OR sentence IS NOT NULL)
""".strip()  # word for word as in the index
IS_ELSEWHERE = "job IN (SELECT value FROM json_each(:without))"
_HAS_NO_JOB = "(origin = 'schedule' AND NOT EXISTS (SELECT 1 FROM marks WHERE marks.job = fires.job))"
_IS_PAUSED = "(origin = 'schedule' AND job IN (SELECT value FROM json_each(:paused)))"
MAY_BE_SENTENCED = (
    f"sentence IS NOT NULL OR {_HAS_NO_JOB} OR attempt = 0 AND ({_IS_PAUSED}"
    " OR coalesce(start_by < :after, 0) OR (origin = 'schedule' AND due < :late_after))"
)
# Of its lane: `lane <> ''` and `state <> 'over'`, so that the index serves.
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
# Nobody holds it, and it does not belong to the newest of several.
IS_FREE = f"""
(lane = '' OR NOT {IS_IN_GRACE} AND NOT {IS_TAKEN}
    AND NOT ({_HAS_RIVALS} AND instr(policy, '"concurrency":"Replace"') > 0))
""".strip()
_IS_FULL = f"instr(policy, '\"max_running\":') = 0 AND {IS_TAKEN}"
# Surely an instant of an outage, with nothing else to say against it.
_IS_LATE = f"""
origin = 'schedule' AND due < :late_before AND attempt = 0 AND sentence IS NULL AND NOT {_IS_PAUSED}
AND coalesce(start_by > :after, 1) AND waits = 0
""".strip()
_IS_LATEST = "instr(policy, '\"catch_up\":') = 0"
_MARK = "coalesce((SELECT at FROM marks WHERE marks.job = fires.job), 0)"  # 0: there is no such job
IS_HELD = f"{_IS_LATE} AND {_MARK} > 0 AND ({_IS_LATEST} AND {_MARK} < :before OR {_IS_FULL})"
IS_OUTDATED = f"""
{_IS_LATE} AND {_IS_LATEST} AND {_MARK} > :after
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
_IS_SENTENCED = f"""
sentence IS NOT NULL OR {_HAS_NO_JOB} OR attempt = 0 AND ({_IS_PAUSED} OR coalesce(start_by < :before, 0))
OR {IS_OUTDATED} OR lane <> '' AND instr(policy, '"concurrency":') = 0 AND {_IS_FULL}
""".strip()
# A message that waits for a lane of one place which is held: there may be thousands.
_GOES_ON_WAITING = f"""
origin = 'push' AND start_by IS NULL AND sentence IS NULL AND waits = 1
AND instr(policy, '"concurrency":"Queue"') > 0 AND {_IS_FULL}
"""
