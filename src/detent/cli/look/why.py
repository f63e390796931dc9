"""`detent why`: what became of a job's fire at a time, or why there was none, in plain words.

- A time without an offset is read on the wall clock of the job's own time zone.  One that the clock showed
  twice is two instants, and both are told of; one that it skipped is told of as such.
- What the store has on record comes first.  Where it has nothing, the manifest here says whether the job was
  due; and only if it was, the store's book-keeping why there is no record.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from detent import clock
from detent.cli.context import Context, add_store_options, open_context
from detent.cli.formatting import duration, iso
from detent.cli.job_text import canonical_job
from detent.cli.json_records import attempt_took_s, fire_record
from detent.cli.look.why_absent import why_absent
from detent.cli.look.why_outcome import outcome_sentences
from detent.cli.lookup import NOT_HOOKS, SCAN_MAX, find_fire, find_stored_job
from detent.cli.options import ALLOWED, parse_time
from detent.cli.tables import printable, write_json, write_table
from detent.errors import UsageError
from detent.model import Job, Query, Row
from detent.rules.chains import predecessor_of
from detent.schedules.explain import Answer, Reading, explain, explain_skipped, read_wall_clock
from detent.schedules.zones import open_zone
from detent.stores.base import find_all
from detent.text import listed

EXAMPLE = "detent why backup yesterday 02:30"
MINUTE = timedelta(minutes=1)
REPLACED_MAX = 20  # of the newest, to find those that a fire replaced


class Subject(NamedTuple):
    """The job that is asked about; without a manifest its definition is not known."""

    name: str  # as the store has it
    timezone: str = "UTC"
    job: Job | None = None
    is_disabled: bool = False


class Explanation(NamedTuple):
    """What there is to tell of one instant."""

    instant: datetime
    rows: Sequence[Row]
    answers: Sequence[Answer]
    reasons: Sequence[str]
    nearest: Sequence[datetime] = ()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="a job, or the key of a fire without a time")
    form = "02:00, yesterday 02:00, 2026-11-15 02:00, 2026-11-15T02:00:00Z or now"
    parser.add_argument("time", nargs="*", metavar="TIME", help=f"{form}; read in the job's time zone")
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context, now = open_context(args), clock.now()
    if not args.time:
        return _tell_of_fire(context, args, now)
    subject, text = _subject_of(context, find_stored_job(context, args.job)), " ".join(args.time)
    instants, width, lead = _read(subject, text, now)
    accounts = [_account(context, subject, instant, width, now) for instant in instants]
    if args.output == "json":
        write_json(_record(subject, text, lead, accounts))
        return 0
    _write_lines(lead)
    for account in accounts:
        _write(subject, account)
    return 0


def _tell_of_fire(context: Context, args: argparse.Namespace, now: datetime) -> int:
    if "@" not in args.job:
        raise UsageError(f"at what time? {ALLOWED}")
    row = find_fire(context, args.job)
    account = Explanation(row.fire.due_at, [row], (), [*_put_by(row), *outcome_sentences(row, now)])
    subject = _subject_of(context, row.fire.job)
    if args.output == "json":
        write_json(_record(subject, args.job, [], [account]))
    else:
        _write(subject, account)
    return 0


def _subject_of(context: Context, name: str) -> Subject:
    manifest, full = context.manifest, name.partition("/")[0]
    if manifest is None or full not in manifest.canonical:
        return Subject(name)
    job = next((job for job in manifest.jobs if job.name == full), None)
    timezone = str(canonical_job(manifest, full)["timezone"])
    return Subject(name, timezone, job, is_disabled=full in manifest.disabled)


# Which instants are meant.


def _read(subject: Subject, text: str, now: datetime) -> tuple[Sequence[datetime], timedelta, list[str]]:
    """The instants, how much of what follows each is meant too, and what is to be said of the time itself."""
    zone = open_zone(subject.timezone)
    said = parse_time(text, _wall(now, subject.timezone))
    width = timedelta(0) if said.has_seconds else MINUTE - timedelta(seconds=1)
    if said.shown.tzinfo:
        return (said.shown.astimezone(UTC),), width, []
    reading = read_wall_clock(said.shown, zone)
    if reading.resumes_at and reading.gap:
        return *_skipped(subject, said.shown, reading), _lead(subject, said.shown, reading)
    shown = f"{said.shown:%H:%M} was shown twice on that day in {subject.timezone}"
    return reading.instants, width, [shown] if len(reading.instants) > 1 else []


def _skipped(subject: Subject, shown: datetime, reading: Reading) -> tuple[Sequence[datetime], timedelta]:
    """A fire that was due in the gap is looked for right after it."""
    at = reading.resumes_at
    answers = explain_skipped(subject.job.schedule, shown, at) if subject.job and at else ()
    return ((at,) if at and any(answer.is_due for answer in answers) else ()), timedelta(0)


def _lead(subject: Subject, shown: datetime, reading: Reading) -> list[str]:
    assert reading.gap and reading.resumes_at
    before, after = reading.gap
    told = [
        f"{shown:%H:%M} did not exist on {shown:%Y-%m-%d} in {subject.timezone}:"
        f" the clock went from {before:%H:%M} to {after:%H:%M}"
    ]
    if subject.job:
        answers = explain_skipped(subject.job.schedule, shown, reading.resumes_at)
        told += [f"  {answer.schedule}: {answer.words}" for answer in answers]
    return told


def _wall(instant: datetime, timezone: str) -> datetime:
    """What a wall clock of the zone shows."""
    offset = open_zone(timezone).window(int(instant.timestamp())).offset
    return (instant + timedelta(seconds=offset)).replace(tzinfo=None)


# What is known of one.


def _account(
    context: Context, subject: Subject, instant: datetime, width: timedelta, now: datetime
) -> Explanation:
    answers = explain(subject.job.schedule, instant) if subject.job else ()
    is_due = any(answer.is_due for answer in answers)
    if rows := _find(context, subject, instant, width, is_due):
        reasons = [line for row in rows for line in (*_of(row, rows, subject, now), *_replaced(context, row))]
        return Explanation(instant, rows, answers, reasons)
    if subject.job is None:
        return Explanation(instant, (), answers, [_undefined(subject)])
    if is_due:
        return Explanation(instant, (), answers, why_absent(context, subject.name, subject.job, instant))
    said = "it is not due then" if instant > now else "it was not due then"
    reasons = [f"{said}:", *(f"  {answer.schedule}: {answer.words}" for answer in answers)]
    if after := subject.job.after:
        reasons.append(f"  after {listed(after)}: it is put when one of these succeeded; none was put then")
    return Explanation(instant, (), answers, reasons, _nearest(subject.job, instant))


def _find(context: Context, subject: Subject, instant: datetime, width: timedelta, is_due: bool) -> list[Row]:
    """The fires at the instant; else those a little later that may be meant; else the span it is part of."""
    if context.store is None:
        return []
    query = Query(job=subject.name, origins=NOT_HOOKS, since=instant, limit=SCAN_MAX)
    near_by = find_all(context.store, query._replace(until=instant + width))[::-1]
    single = [row for row in near_by if row.fire.instants == 1]
    exact = [row for row in single if row.fire.due_at == instant]
    if exact or single:
        return exact or single
    later = find_all(context.store, query) if is_due else []
    return [row for row in later if row.fire.first_at and row.fire.first_at <= instant][:1]


def _of(row: Row, rows: Sequence[Row], subject: Subject, now: datetime) -> list[str]:
    named = [f"{row.fire.key}:"] if len(rows) > 1 else []
    origin = {"manual": "it was fired by hand", "push": "it was pushed"}.get(row.fire.origin)
    said = [*named, *([origin] if origin else _put_by(row)), *outcome_sentences(row, now)]
    if subject.is_disabled:
        said.append("the job is disabled in the manifest by now")
    elif subject.job and row.fire.revision not in ("", subject.job.revision):
        said.append("the job was changed since: the manifest here is not the one it ran by")
    return said


def _replaced(context: Context, row: Row) -> list[str]:
    """Which fires had to end for this one."""
    if context.store is None or row.fire.policy.concurrency != "Replace":
        return []
    query = Query(job=row.fire.job, kinds=("replaced",), until=row.fire.due_at, limit=REPLACED_MAX)
    ended = [one for one in context.store.find(query) if one.outcome and one.outcome.by == row.fire.key]
    return [f"it replaced {one.fire.key}" for one in ended]


def _put_by(row: Row) -> list[str]:
    before = predecessor_of(row.fire)
    return [f"it was put by the success of {before}"] if before else []


def _undefined(subject: Subject) -> str:
    if subject.is_disabled:
        return "there is no fire on record, and the job is disabled in the manifest: it does not fire"
    return "there is no fire on record; whether it was due, only its manifest can tell: name it with -f"


def _nearest(job: Job, instant: datetime) -> list[datetime]:
    return [at for at in (job.schedule.before(instant), job.schedule.after(instant)) if at]


# Telling it.


def _write(subject: Subject, account: Explanation) -> None:
    print(f"{subject.name} at {_shown(account.instant, subject)}")
    _write_lines(account.reasons)
    if account.nearest:
        near_by = [_clock(at, account.instant, subject).removesuffix(":00") for at in account.nearest]
        print(f"the nearest {'is' if len(near_by) == 1 else 'are'} {listed(near_by, 'and')}")
    for row in account.rows:
        if row.attempts:
            heads = ("attempt", "started", "took", "node", "outcome", "reason")
            write_table(heads, _attempts(row, subject))
            print(f"`detent logs {row.fire.key}` shows what it wrote")


def _write_lines(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"  {printable(line)}" if line.startswith(" ") else printable(line))


def _attempts(row: Row, subject: Subject) -> Sequence[tuple[str, ...]]:
    told = []
    for one in row.attempts:
        started = _clock(one.started_at, row.fire.due_at, subject)
        took, outcome = duration(attempt_took_s(one)), one.outcome
        told.append((str(one.number), started, took, one.node, outcome.kind, outcome.reason))
    return told


def _shown(instant: datetime, subject: Subject) -> str:
    wall = f"{_wall(instant, subject.timezone):%Y-%m-%d %H:%M:%S} {subject.timezone}"
    return wall if subject.timezone == "UTC" else f"{wall} ({iso(instant)})"


def _clock(instant: datetime, beside: datetime, subject: Subject) -> str:
    """The time on the wall, without the day where it is the same."""
    wall, other = _wall(instant, subject.timezone), _wall(beside, subject.timezone)
    return f"{wall:%H:%M:%S}" if wall.date() == other.date() else f"{wall:%Y-%m-%d %H:%M:%S}"


def _record(
    subject: Subject, text: str, lead: Sequence[str], accounts: Sequence[Explanation]
) -> dict[str, Any]:
    app, _, job = subject.name.partition(".")
    return {
        "app": app,
        "job": job,
        "time": text,
        "timezone": subject.timezone,
        "remarks": [line.strip() for line in lead],
        "instants": [_account_record(account) for account in accounts],
    }


def _account_record(account: Explanation) -> dict[str, Any]:
    schedules = [
        {"schedule": answer.schedule, "due": answer.is_due, "reason": answer.words}
        for answer in account.answers
    ]
    return {
        "instant": iso(account.instant),
        "due": any(answer.is_due for answer in account.answers) if account.answers else None,
        "reasons": [line.strip() for line in account.reasons],
        "schedules": schedules,
        "nearest": [iso(at) for at in account.nearest],
        "fires": [fire_record(row) for row in account.rows],
    }
