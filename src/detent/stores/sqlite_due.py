"""What is due on a queue of the SQLite store: asks without end must not read fires without end.

An ask that has no place left to run passes over the fires that would surely just run: those that are never
sentenced and have no lane are not even looked at, the others by an index alone.  One that has no sentence
left passes over those that would surely be sentenced.  In doubt a fire is found, and judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from detent import jsontext as json
from detent.core.lanes import LATE_S
from detent.model import Ask
from detent.stores.sqlite_call import Call
from detent.stores.sqlite_rows import Kept
from detent.values import Any, NamedTuple

DOUBT_S = 0.001  # instants are compared in microseconds when they are judged; pass over none too many


class Wants(NamedTuple):
    """What an asker can still use."""

    runs: bool
    hooks: bool
    settles: bool


class Due:
    """The fires that are due on one queue, in order."""

    def __init__(self, call: Call, ask: Ask, queue: str) -> None:
        self._call, self._ask, self._queue = call, ask, queue
        self._after = (float("-inf"), "")
        self._for: Wants | None = None
        self._rest: Iterator[Kept] = iter(())

    def next(self, wants: Wants) -> Kept | None:
        """The next one.  One that is surely of no use to the asker may be passed over."""
        if wants != self._for:
            self._for, self._rest = wants, self._look(wants)
        for entry in self._rest:
            self._after = entry.run_at, entry.fire.key
            if not self._call.is_forgotten(entry):
                return entry
        return None

    def look_again(self) -> None:
        """Rows after the last one were written, or a lane is full now."""
        self._call.save()
        self._for = None

    def _look(self, wants: Wants) -> Iterator[Kept]:
        source, where = ("fires INDEXED BY fires_ready", [_AFTER])
        values: list[Any] = [self._ask.app, self._queue, self._call.wall, *self._after]
        if not wants.runs:
            source, where = "fires INDEXED BY fires_doubtful", [_AFTER, _IS_DOUBTFUL]
            if self._call.one(f"SELECT 1 FROM {source} WHERE {' AND '.join(where)} LIMIT 1", *values) is None:
                return iter(())
        if full := [lane for (lane,) in self._call.db.execute(_FULL, (self._ask.app, self._call.monotonic))]:
            where.append(f"NOT ({_GOES_ON_WAITING})")
            values.append(json.dumps(full))
        if useless := self._useless(wants):
            where.append(f"NOT (({useless}) AND NOT ({MAY_BE_SENTENCED}) AND NOT ({IS_CONTESTED}))")
            values += [json.dumps(self._ask.without)] if self._ask.without else []
            values += [self._paused(), *late(self._call), self._contested()]
        if not wants.settles:
            where.append(f"NOT ({_IS_SENTENCED})")
            values += [self._paused(), self._call.wall - DOUBT_S]
        return self._call.select(" AND ".join(where) + " ORDER BY run_at, key", tuple(values), source)

    def _useless(self, wants: Wants) -> str:
        """Which fires are of no use if they just run."""
        kinds = [] if wants.runs else ["origin <> 'hook'"]
        kinds += [] if wants.hooks else ["origin = 'hook'"]
        kinds += ["job IN (SELECT value FROM json_each(?))"] if self._ask.without else []
        return " OR ".join(kinds)

    def _paused(self) -> str:
        return json.dumps(list(self._call.pauses(self._ask.app)))

    def _contested(self) -> str:
        """Lanes in which a fire that is due might not just run."""
        rows = self._call.db.execute(_CONTESTED, (self._call.wall,))
        return json.dumps([*self._call.graces(), *(lane for (lane,) in rows)])


def late(call: Call) -> tuple[float, float]:
    """What should start before the first of these, or was due before the other, may be too late."""
    return call.wall + DOUBT_S, call.wall + DOUBT_S - LATE_S


_AFTER = "state = 'pending' AND app = ? AND queue = ? AND run_at <= ? AND (run_at, key) > (?, ?)"
_IS_DOUBTFUL = """
(lane <> '' OR origin IN ('schedule', 'hook') OR start_by IS NOT NULL OR sentence IS NOT NULL)
""".strip()  # word for word as in the index
HAS_NO_JOB = "(origin = 'schedule' AND NOT EXISTS (SELECT 1 FROM marks WHERE marks.job = fires.job))"
IS_PAUSED = "(origin = 'schedule' AND job IN (SELECT value FROM json_each(?)))"
MAY_BE_SENTENCED = (
    f"sentence IS NOT NULL OR {HAS_NO_JOB} OR attempt = 0 AND ({IS_PAUSED} OR coalesce(start_by < ?, 0)"
    " OR (origin = 'schedule' AND due < ?))"
)
IS_CONTESTED = "lane IN (SELECT value FROM json_each(?))"
_IS_SENTENCED = (
    f"sentence IS NOT NULL OR {HAS_NO_JOB} OR attempt = 0 AND ({IS_PAUSED} OR coalesce(start_by < ?, 0))"
)
# Messages that wait for a lane of one place which is held: there may be thousands, and of lanes in which
# nobody waits as well.
_FULL = """
SELECT DISTINCT lane FROM fires AS waiting INDEXED BY fires_waiting
WHERE state = 'pending' AND waits = 1 AND EXISTS (
    SELECT 1 FROM fires WHERE lane = waiting.lane AND lane <> '' AND state = 'claimed' AND state <> 'over'
        AND app = ? AND sentence IS NULL AND expires > ?
)
"""
_GOES_ON_WAITING = """
waits = 1 AND lane IN (SELECT value FROM json_each(?)) AND origin = 'push' AND start_by IS NULL
AND sentence IS NULL AND instr(policy, '"concurrency":"Queue"') > 0 AND instr(policy, '"max_running":') = 0
"""
_CONTESTED = """
SELECT lane FROM fires WHERE state <> 'over' AND lane <> '' AND (state = 'claimed' OR run_at <= ?)
GROUP BY lane HAVING count(*) > 1
"""
