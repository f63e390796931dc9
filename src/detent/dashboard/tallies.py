"""Numbers of ended fires by minute, for timelines with too many fires to show each.

A minute that is over never changes, so each is read once.  The newest minutes are read first; older ones
follow in steps, because one call must not read much.  Minutes older than an hour are kept as quarters of an
hour.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from detent import clock
from detent.model import Tally

MINUTE_S, QUARTER_S, DAY_S = 60, 900, 86_400
FINE_S = 2 * 3_600  # how long single minutes are kept
STEPS_S = (60, 300, 900, 1_800, 3_600, 7_200, 14_400, 86_400)
NOTHING: Mapping[str, Counter[str]] = {}
Cells = dict[int, dict[str, Counter[str]]]  # by start and job: fires by outcome
Buckets = dict[str, list[list[object]]]  # by job: [start, {outcome: fires}]


class Tallies:
    def __init__(self) -> None:
        self._fine: Cells = {}
        self._coarse: Cells = defaultdict(dict)
        self._first = self._last = 0  # the minutes from `_first` to `_last` are known; both 0: none
        self._wanted_s = 0

    def want(self, window_s: int) -> None:
        """Extend the part of the past that is read."""
        self._wanted_s = max(self._wanted_s, window_s)

    def missing(self, now: datetime) -> tuple[datetime, datetime] | None:
        """The next minutes to read; None: nothing is missing."""
        if not self._wanted_s:
            return None
        minute = int(now.timestamp()) // MINUTE_S * MINUTE_S
        if not self._last or minute - self._last > DAY_S:
            self._fine, self._coarse = {}, defaultdict(dict)
            self._first = self._last = minute // QUARTER_S * QUARTER_S
        if self._last < minute:
            return clock.instant(self._last), clock.instant(min(minute, self._last + QUARTER_S))
        if self._first > minute - self._wanted_s:
            return clock.instant(self._first - QUARTER_S), clock.instant(self._first)
        return None

    def take(self, since: datetime, until: datetime, found: Iterable[Tally]) -> None:
        start, end = int(since.timestamp()), int(until.timestamp())
        for one in found:
            at = int(one.at.timestamp())
            for cells, step_s in ((self._fine, MINUTE_S), (self._coarse, QUARTER_S)):
                jobs = cells.setdefault(at // step_s * step_s, {})
                jobs.setdefault(one.job, Counter())[one.kind] += one.fires
        self._first, self._last = min(self._first, start), max(self._last, end)
        for cells, keep_s in ((self._fine, FINE_S), (self._coarse, DAY_S + QUARTER_S)):
            for at in [at for at in cells if at < self._last - keep_s]:
                del cells[at]

    @property
    def until(self) -> datetime:
        """The end of the minutes that are known."""
        return clock.instant(self._last)

    def buckets(
        self, now: datetime, window_s: int, cells_max: int, newest: Mapping[str, Counter[str]] = NOTHING
    ) -> tuple[int, Buckets]:
        """The numbers of each job in at most so many cells, and the length of a cell in seconds.

        `newest`: the numbers since `until`, by job."""
        cells, least_s = (self._fine, MINUTE_S) if window_s <= FINE_S else (self._coarse, QUARTER_S)
        since = int((now - timedelta(seconds=window_s)).timestamp())
        inside = {at: jobs for at, jobs in cells.items() if at + least_s > since}
        names = {name for jobs in inside.values() for name in jobs} | {*newest}
        fits = [step for step in STEPS_S if step >= least_s and len(names) * window_s / step <= cells_max]
        step_s = fits[0] if fits else STEPS_S[-1]
        found: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        for at, jobs in inside.items():
            for name, counts in jobs.items():
                found[name][at // step_s * step_s] += counts
        at = int(now.timestamp()) // step_s * step_s
        for name, counts in newest.items():
            found[name][at] += counts
        return step_s, {name: [[at, {**of[at]}] for at in sorted(of)] for name, of in found.items()}
