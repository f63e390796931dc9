"""Lints: what a manifest may say, and its author probably did not mean.  Pure.

- Every lint has a code that stays the same, a message that says what will happen, and advice.
- It speaks of what is certain from the manifest and the calendar; an ordinary manifest has none.
- Paths are those within the job (`schedules/0`); whoever knows the file puts the rest before them.
- Jobs that are due more often than every minute expect to find themselves still running: no word of it.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import combinations, islice, pairwise
from typing import Any, NamedTuple

from detent.manifest.lint.cron_fields import every_text, lint_pattern
from detent.manifest.lint.dst import LintSpan, lint_dst
from detent.manifest.lint.work import lint_work
from detent.manifest.problems import Problem
from detent.schedules.timetable import (
    AT_BOOT,
    DAY_S,
    Every,
    Timetable,
    combine,
    parse_instant,
    parse_schedule,
    patterns_of,
)
from detent.schedules.wallclock import check_dst
from detent.schedules.zones import open_zone
from detent.text import plural, quote

OFTEN_S = 60.0
INSTANTS_LOOKED_AT = 50  # for the shortest time between two
SCHEDULES_COMPARED = 20  # with each other
MEETINGS_SOUGHT = 500  # steps in looking for an instant that two schedules share
DEADLINE_LOW_S = 5.0  # a store that is busy, or a node that takes over, needs about so long

_TICK = timedelta(seconds=1)
_CALENDAR = {DAY_S: "@daily", 7 * DAY_S: "@weekly"}


class LintedJob(NamedTuple):
    """A job to look at."""

    name: str  # app.job
    job: Mapping[str, Any]  # canonical
    version: int
    now: datetime

    @property
    def texts(self) -> list[str]:
        return [*self.job.get("schedules", ())]

    @property
    def rule(self) -> str:
        rule: str = self.job["policy"].get("dst", "vixie")
        return rule

    def timetables(self) -> list[Timetable]:
        """The schedules, one by one."""
        zone = self.job["timezone"]
        return [
            parse_schedule(text, timezone=zone, dst=self.rule, version=self.version, seed=self.name)
            for text in self.texts
        ]


def lint_job(subject: LintedJob) -> list[Problem]:
    """All that is doubtful about a job."""
    tables = subject.timetables()
    found = [*_expressions(subject, tables), *_together(tables, subject)]
    found += [*_policy(subject, tables), *lint_work(subject.job)]
    return found


# When.


def _expressions(subject: LintedJob, tables: list[Timetable]) -> Iterator[Problem]:
    for i, (text, table) in enumerate(zip(subject.texts, tables, strict=True)):
        path = f"schedules/{i}"
        for pattern in patterns_of(table):
            yield from lint_pattern(text, pattern, path, subject.version)
            if told := lint_dst(text, pattern, path, check_dst(subject.rule), _span(subject)):
                yield told
        if told := _every(text, table, path, subject.job["timezone"]):
            yield told


def _span(subject: LintedJob) -> LintSpan:
    given = {name: subject.job.get(name) for name in ("starts_at", "ends_at")}
    starts_at, ends_at = (parse_instant(at, name) if at else None for name, at in given.items())
    since = max(subject.now, starts_at) if starts_at else subject.now
    return LintSpan(open_zone(subject.job["timezone"]), since, ends_at)


def _every(text: str, table: Timetable, path: str, zone: str) -> Problem | None:
    """A day or a week in a zone was probably meant to begin at its midnight."""
    instead = _CALENDAR.get(table.instants.period_s) if isinstance(table.instants, Every) else None
    if instead is None or zone == "UTC":
        return None
    message = f"{quote(text)} counts from the Unix epoch: it fires at midnight UTC, not in {zone}"
    advice = f"for midnight in {zone} write {instead}"
    return Problem(path, message, code="every-in-utc", advice=advice)


def _together(tables: list[Timetable], subject: LintedJob) -> Iterator[Problem]:
    """What the job's schedules come to, all together."""
    at_boot = any(text.strip().lower() == AT_BOOT for text in subject.texts)
    if not at_boot and (told := _nothing_left(tables, subject)):
        yield told
        return
    numbered = [(i, table) for i, table in enumerate(tables)][:SCHEDULES_COMPARED]
    for (i, one), (j, other) in combinations(numbered, 2):
        if at := shared_instant(one, other, subject.now):
            pair = f"{quote(subject.texts[i])} and {quote(subject.texts[j])}"
            message = f"{pair} are both due at {at:%Y-%m-%dT%H:%M:%SZ}: that is one fire, not two"
            advice = "take one away if the other covers it, or move it if you want two fires"
            yield Problem(f"schedules/{j}", message, code="overlapping-schedules", advice=advice)
            return


def _nothing_left(tables: list[Timetable], subject: LintedJob) -> Problem | None:
    job, now = subject.job, subject.now
    advice = "give a later one, or take the job away"
    if "at" in job and parse_instant(job["at"], "at") <= now:
        return Problem("at", f"{job['at']} is past: it is not due again", code="past", advice=advice)
    bounds = {name: job[name] for name in ("starts_at", "ends_at") if name in job}
    if tables and combine(tables, **bounds).after(now) is None:
        name = "ends_at" if "ends_at" in job else "schedules"
        return Problem(name, "its last instant is past: it is not due again", code="past", advice=advice)
    return None


def shared_instant(one: Timetable, other: Timetable, now: datetime) -> datetime | None:
    """The first instant after now that both name, if a bounded search finds it."""
    since: datetime = now
    for _ in range(MEETINGS_SOUGHT):
        first, second = one.after(since), other.after(since)
        if first is None or second is None or first == second:
            return first if first == second else None
        since = max(first, second) - _TICK
    return None


# Policy.


def _policy(subject: LintedJob, tables: list[Timetable]) -> Iterator[Problem]:
    policy = subject.job["policy"]
    waits_s = total_wait_s(policy["retries"])
    if max(policy["timeout_seconds"], waits_s) > OFTEN_S and tables:
        interval_s = _shortest_s(combine(tables), subject.now)
        if interval_s >= OFTEN_S:
            yield from _too_long(policy, interval_s, waits_s, subject.version)
    deadline_s = policy.get("start_deadline_seconds", 0)
    if 0 < deadline_s < DEADLINE_LOW_S:
        message = f"a fire that cannot start within {deadline_s:g} s is missed: a busy store takes as long"
        advice = f"give it {DEADLINE_LOW_S:g} s or more"
        yield Problem("policy/start_deadline_seconds", message, code="short-deadline", advice=advice)


def _too_long(
    policy: Mapping[str, Any], interval_s: float, waits_s: float, version: int
) -> Iterator[Problem]:
    interval, timeout_s = every_text(int(interval_s)), policy["timeout_seconds"]
    forbids = policy["concurrency"] == "Forbid" and policy.get("max_running", 1) == 1
    if forbids and timeout_s > interval_s:
        message = f"an attempt may take {every_text(timeout_s)}, and the next fire is due {interval} after: "
        message += "under Forbid it is skipped while one runs"
        wait = ", or let one fire wait with `concurrency: Queue`" if version > 1 else ""
        advice = f"choose a timeout below {int(interval_s)} s{wait}"
        yield Problem("policy/timeout_seconds", message, code="timeout-over-interval", advice=advice)
    if waits_s > interval_s:
        attempts, waits = plural(policy["retries"]["max_attempts"], "attempt"), every_text(int(waits_s))
        message = f"{attempts} have waits of {waits} in all, and the next fire is due {interval} after"
        advice = "make fewer attempts, or a smaller max_seconds: the next fire is another try anyway"
        yield Problem("policy/retries", message, code="retries-over-interval", advice=advice)


def total_wait_s(retries: Mapping[str, Any]) -> float:
    """How long a fire that always fails waits between its attempts, all together."""
    low, high = retries["min_seconds"], retries["max_seconds"]
    return float(sum(min(low * 2 ** min(n, 40), high) for n in range(retries["max_attempts"] - 1)))


def _shortest_s(schedule: Timetable, now: datetime) -> float:
    """The shortest time between two of the coming instants; endless where there are not two."""
    instants = list(islice(_coming(schedule, now), INSTANTS_LOOKED_AT))
    gaps = ((b - a).total_seconds() for a, b in pairwise(instants))
    return min(gaps, default=float("inf"))


def _coming(schedule: Timetable, since: datetime) -> Iterator[datetime]:
    while (at := schedule.after(since)) is not None:
        yield at
        since = at
