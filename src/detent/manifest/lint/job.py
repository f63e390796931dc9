"""Lints of one job: valid settings that its author probably did not intend.  Pure.

A lint has a stable code, a message that says what will happen, and advice.  It reports only what follows from
the manifest and the calendar.  Paths are relative to the job (`schedules/0`).
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import combinations, islice, pairwise
from typing import Any, NamedTuple

from detent.manifest.lint.cron_fields import lint_pattern
from detent.manifest.lint.dst import LintSpan, lint_dst
from detent.manifest.lint.work import lint_work
from detent.manifest.problems import Problem
from detent.schedules import timetable
from detent.schedules.wallclock import check_dst
from detent.schedules.zones import open_zone
from detent.text import plural, quote

OFTEN_S = 60.0  # jobs that fire more often are expected to overlap
INSTANTS_LOOKED_AT = 50  # to find the shortest interval
SCHEDULES_COMPARED = 20
MEETINGS_SOUGHT = 500  # steps of the search for an instant that two schedules share
DEADLINE_LOW_S = 5.0  # a busy store or a takeover by another node delays a start by about this much

_TICK = timedelta(seconds=1)
_CALENDAR = {timetable.DAY_S: "@daily", 7 * timetable.DAY_S: "@weekly"}


class LintedJob(NamedTuple):
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

    def timetables(self) -> list[timetable.Timetable]:
        zone = self.job["timezone"]
        return [
            timetable.parse_schedule(text, timezone=zone, dst=self.rule, version=self.version, seed=self.name)
            for text in self.texts
        ]


def lint_job(subject: LintedJob) -> list[Problem]:
    tables = subject.timetables()
    found = [*_expressions(subject, tables), *_together(tables, subject)]
    found += [*_policy(subject, tables), *lint_work(subject.job)]
    return found


def _expressions(subject: LintedJob, tables: list[timetable.Timetable]) -> Iterator[Problem]:
    for i, (text, table) in enumerate(zip(subject.texts, tables, strict=True)):
        path = f"schedules/{i}"
        for pattern in timetable.patterns_of(table):
            yield from lint_pattern(text, pattern, path, subject.version)
            if found := lint_dst(text, pattern, path, check_dst(subject.rule), _span(subject)):
                yield found
        if found := _every(text, table, path, subject.job["timezone"]):
            yield found


def _span(subject: LintedJob) -> LintSpan:
    given = {name: subject.job.get(name) for name in ("starts_at", "ends_at")}
    starts_at, ends_at = (timetable.parse_instant(at, name) if at else None for name, at in given.items())
    since = max(subject.now, starts_at) if starts_at else subject.now
    return LintSpan(open_zone(subject.job["timezone"]), since, ends_at)


def _every(text: str, table: timetable.Timetable, path: str, zone: str) -> Problem | None:
    """Find `@every 24h` in a zone other than UTC: its author probably expects midnight in that zone."""
    instead = _CALENDAR.get(table.instants.period_s) if isinstance(table.instants, timetable.Every) else None
    if instead is None or zone == "UTC":
        return None
    message = f"{quote(text)} counts from the Unix epoch: it fires at midnight UTC, not in {zone}"
    advice = f"for midnight in {zone} write {instead}"
    return Problem(path, message, code="every-in-utc", advice=advice)


def _together(tables: list[timetable.Timetable], subject: LintedJob) -> Iterator[Problem]:
    """Lint the schedules of the job in combination."""
    at_boot = any(text.strip().lower() == timetable.AT_BOOT for text in subject.texts)
    if not at_boot and (found := _nothing_left(tables, subject)):
        yield found
        return
    numbered = [(i, table) for i, table in enumerate(tables)][:SCHEDULES_COMPARED]
    for (i, one), (j, other) in combinations(numbered, 2):
        if at := shared_instant(one, other, subject.now):
            pair = f"{quote(subject.texts[i])} and {quote(subject.texts[j])}"
            message = f"{pair} are both due at {at:%Y-%m-%dT%H:%M:%SZ}, which is one fire, not two"
            advice = "remove one, or move it if you want two fires"
            yield Problem(f"schedules/{j}", message, code="overlapping-schedules", advice=advice)
            return


def _nothing_left(tables: list[timetable.Timetable], subject: LintedJob) -> Problem | None:
    job, now = subject.job, subject.now
    advice = "choose a later time, or remove the job"
    if "at" in job and timetable.parse_instant(job["at"], "at") <= now:
        message = f"{job['at']} is in the past: the job will not fire again"
        return Problem("at", message, code="past", advice=advice)
    bounds = {name: job[name] for name in ("starts_at", "ends_at") if name in job}
    if tables and timetable.combine(tables, **bounds).after(now) is None:
        name = "ends_at" if "ends_at" in job else "schedules"
        message = "the last instant is in the past: the job will not fire again"
        return Problem(name, message, code="past", advice=advice)
    return None


def shared_instant(one: timetable.Timetable, other: timetable.Timetable, now: datetime) -> datetime | None:
    """Return the first instant after now that both have, if a bounded search finds one."""
    since: datetime = now
    for _ in range(MEETINGS_SOUGHT):
        first, second = one.after(since), other.after(since)
        if first is None or second is None or first == second:
            return first if first == second else None
        since = max(first, second) - _TICK
    return None


def _policy(subject: LintedJob, tables: list[timetable.Timetable]) -> Iterator[Problem]:
    policy = subject.job["policy"]
    waits_s = total_wait_s(policy["retries"])
    if max(policy["timeout_seconds"], waits_s) > OFTEN_S and tables:
        interval_s = _shortest_s(timetable.combine(tables), subject.now)
        if interval_s >= OFTEN_S:
            yield from _too_long(policy, interval_s, waits_s, subject.version)
    deadline_s = policy.get("start_deadline_seconds", 0)
    if 0 < deadline_s < DEADLINE_LOW_S:
        message = f"a fire that cannot start within {deadline_s:g} s is missed; a busy store can take as long"
        advice = f"set {DEADLINE_LOW_S:g} or more"
        yield Problem("policy/start_deadline_seconds", message, code="short-deadline", advice=advice)


def _too_long(
    policy: Mapping[str, Any], interval_s: float, waits_s: float, version: int
) -> Iterator[Problem]:
    interval, timeout_s = timetable.period_text(int(interval_s)), policy["timeout_seconds"]
    forbids = policy["concurrency"] == "Forbid" and policy.get("max_running", 1) == 1
    if forbids and timeout_s > interval_s:
        takes = f"an attempt may take {timetable.period_text(timeout_s)}"
        message = f"{takes}, but the next fire is due {interval} later: Forbid skips it while one runs"
        wait = ", or let one fire wait with `concurrency: Queue`" if version > 1 else ""
        advice = f"choose a timeout below {int(interval_s)} s{wait}"
        yield Problem("policy/timeout_seconds", message, code="timeout-over-interval", advice=advice)
    if waits_s > interval_s:
        attempts, waits = (
            plural(policy["retries"]["max_attempts"], "attempt"),
            timetable.period_text(int(waits_s)),
        )
        message = f"{attempts} wait {waits} in total, but the next fire is due {interval} after the first"
        advice = "set fewer attempts or a smaller max_seconds: the next fire tries again anyway"
        yield Problem("policy/retries", message, code="retries-over-interval", advice=advice)


def total_wait_s(retries: Mapping[str, Any]) -> float:
    """Return the total wait between the attempts of a fire that always fails."""
    low, high = retries["min_seconds"], retries["max_seconds"]
    return float(sum(min(low * 2 ** min(n, 40), high) for n in range(retries["max_attempts"] - 1)))


def _shortest_s(schedule: timetable.Timetable, now: datetime) -> float:
    """Return the shortest interval between the next instants; infinity if there are fewer than two."""
    instants = islice(schedule.between(now, timetable.FOREVER), INSTANTS_LOOKED_AT)
    gaps = ((b - a).total_seconds() for a, b in pairwise(instants))
    return min(gaps, default=float("inf"))
