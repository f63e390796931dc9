"""`detent why`: explains what happened to a fire at a given time, or why there was none.

- A time without an offset is in the job's time zone.  A time that the clock showed twice is two instants, and
  both are explained.  A time that the clock skipped is explained as such.
- A fire in the store is explained by its outcome.  If there is none, the manifest says whether the job was
  due; if it was, the store's watermark says why there is no fire.
"""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from detent import clock
from detent.cli.context import add_store_options, open_context
from detent.cli.options import ALLOWED, parse_time
from detent.cli.tables import Table, write_json, write_table
from detent.errors import UsageError
from detent.model import Attempt, Job, Query, Row
from detent.schedules.explain import Answer, explain, explain_skipped, read_wall_clock
from detent.schedules.zones import open_zone
from detent.stores.base import find_all
from detent.text import listed
from detent.views.context import Context
from detent.views.formatting import duration, iso, printable
from detent.views.job_text import canonical_job
from detent.views.json_records import attempt_took_s, fire_record, names_record
from detent.views.lookup import NOT_HOOKS, SCAN_MAX, find_fire, find_stored_job
from detent.views.why_reasons import absence_sentences, fire_sentences

EXAMPLE = "detent why backup yesterday 02:30"
MINUTE = timedelta(minutes=1)
NO_MANIFEST = "only the manifest says whether it was due: name it with -f"
REPLACED_MAX = 20  # replaced fires that are read to find those that a fire replaced


class Subject(NamedTuple):
    """The job; its definition is known only from a manifest."""

    name: str  # in the store
    timezone: str = "UTC"
    job: Job | None = None
    is_disabled: bool = False


class Explanation(NamedTuple):
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
    remarks: list[str] = []
    if args.time:
        subject, text = _subject_of(context, find_stored_job(context, args.job)), " ".join(args.time)
        instants, width, remarks = _read(subject, text, now)
        explanations = [_explain(context, subject, instant, width, now) for instant in instants]
    elif "@" in args.job:
        row, text = find_fire(context, args.job), args.job
        subject = _subject_of(context, row.fire.job)
        explanations = [Explanation(row.fire.due_at, [row], (), fire_sentences(row, now))]
    else:
        raise UsageError(f"the time is missing: {ALLOWED}")
    if args.output == "json":
        write_json(_record(subject, text, remarks, explanations))
        return 0
    _write_lines(remarks)
    for explanation in explanations:
        _write(subject, explanation)
    return 0


def _subject_of(context: Context, name: str) -> Subject:
    manifest, full = context.manifest, name.partition("/")[0]
    if manifest is None or full not in manifest.canonical:
        return Subject(name)
    job = next((job for job in manifest.jobs if job.name == full), None)
    timezone = str(canonical_job(manifest, full)["timezone"])
    return Subject(name, timezone, job, is_disabled=full in manifest.disabled)


def _read(subject: Subject, text: str, now: datetime) -> tuple[Sequence[datetime], timedelta, list[str]]:
    """The instants of a time, how long after each a fire still matches, and remarks on the time."""
    time = parse_time(text, _wall(now, subject.timezone))
    width = timedelta(0) if time.has_seconds else MINUTE - timedelta(seconds=1)
    if time.at.tzinfo:
        return (time.at.astimezone(UTC),), width, []
    reading = read_wall_clock(time.at, open_zone(subject.timezone))
    if reading.resumes_at and reading.gap:
        return _read_gap(subject, time.at, reading.gap, reading.resumes_at)
    remark = f"{time.at:%H:%M} was shown twice on that day in {subject.timezone}"
    return reading.instants, width, [remark] if len(reading.instants) > 1 else []


def _read_gap(
    subject: Subject, wall: datetime, gap: tuple[datetime, datetime], resumes_at: datetime
) -> tuple[Sequence[datetime], timedelta, list[str]]:
    """A fire that was due in the gap runs right after it."""
    answers = explain_skipped(subject.job.schedule, wall, resumes_at) if subject.job else ()
    remarks = [
        f"{wall:%H:%M} did not exist on {wall:%Y-%m-%d} in {subject.timezone}:"
        f" the clock went from {gap[0]:%H:%M} to {gap[1]:%H:%M}",
        *(f"  {answer.schedule}: {answer.words}" for answer in answers),
    ]
    return (resumes_at,) if any(answer.is_due for answer in answers) else (), timedelta(0), remarks


def _wall(instant: datetime, timezone: str) -> datetime:
    """What a wall clock of the zone shows."""
    offset = open_zone(timezone).window(int(instant.timestamp())).offset
    return (instant + timedelta(seconds=offset)).replace(tzinfo=None)


def _explain(
    context: Context, subject: Subject, instant: datetime, width: timedelta, now: datetime
) -> Explanation:
    answers = explain(subject.job.schedule, instant) if subject.job else ()
    is_due = any(answer.is_due for answer in answers)
    if rows := _find(context, subject, instant, width, is_due):
        reasons = [line for row in rows for line in (*_of(row, rows, subject, now), *_replaced(context, row))]
        return Explanation(instant, rows, answers, reasons)
    if subject.job is None:
        why = "the job is disabled in the manifest" if subject.is_disabled else NO_MANIFEST
        return Explanation(instant, (), answers, [f"there is no fire in the store; {why}"])
    if is_due:
        return Explanation(
            instant, (), answers, absence_sentences(context, subject.name, subject.job, instant)
        )
    reasons = [
        "it is not due then:" if instant > now else "it was not due then:",
        *(f"  {answer.schedule}: {answer.words}" for answer in answers),
    ]
    if after := subject.job.after:
        reasons.append(f"  after {listed(after)}: it runs when one of them succeeds, and none did then")
    schedule = subject.job.schedule
    nearest = [at for at in (schedule.before(instant), schedule.after(instant)) if at]
    return Explanation(instant, (), answers, reasons, nearest)


def _find(context: Context, subject: Subject, instant: datetime, width: timedelta, is_due: bool) -> list[Row]:
    """The fires at the instant; else those within `width`; else the recorded outage that includes it."""
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
    title = [f"{row.fire.key}:"] if len(rows) > 1 else []
    origin = {"manual": "it was fired by hand", "push": "it was pushed to a queue"}.get(row.fire.origin)
    found = [*title, *([origin] if origin else []), *fire_sentences(row, now)]
    if subject.is_disabled:
        found.append("the job is now disabled in the manifest")
    elif subject.job and row.fire.revision not in ("", subject.job.revision):
        found.append("the job has changed since: it ran with another version of this manifest")
    return found


def _replaced(context: Context, row: Row) -> list[str]:
    if context.store is None or row.fire.policy.concurrency != "Replace":
        return []
    query = Query(job=row.fire.job, kinds=("replaced",), until=row.fire.due_at, limit=REPLACED_MAX)
    found = context.store.find(query)
    return [f"it replaced {one.fire.key}" for one in found if one.outcome and one.outcome.by == row.fire.key]


def _write(subject: Subject, explanation: Explanation) -> None:
    instant = explanation.instant
    shown = f"{_wall(instant, subject.timezone):%Y-%m-%d %H:%M:%S} {subject.timezone}"
    print(f"{subject.name} at {shown}{'' if subject.timezone == 'UTC' else f' ({iso(instant)})'}")
    _write_lines(explanation.reasons)
    if nearest := [_time(at, instant, subject).removesuffix(":00") for at in explanation.nearest]:
        print(f"the nearest due {'time is' if len(nearest) == 1 else 'times are'} {listed(nearest, 'and')}")
    for row in explanation.rows:
        if row.attempts:
            heads = ("attempt", "started", "took", "node", "outcome", "reason")
            write_table(Table(heads, [_attempt(one, row, subject) for one in row.attempts]))
            print(f"`detent logs {row.fire.key}` shows its output")


def _write_lines(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"  {printable(line)}" if line.startswith(" ") else printable(line))


def _attempt(one: Attempt, row: Row, subject: Subject) -> tuple[str, ...]:
    started, took = _time(one.started_at, row.fire.due_at, subject), duration(attempt_took_s(one))
    return str(one.number), started, took, one.node, one.outcome.kind, one.outcome.reason


def _time(instant: datetime, reference: datetime, subject: Subject) -> str:
    """The wall-clock time, with the date if it differs from that of `reference`."""
    wall, other = _wall(instant, subject.timezone), _wall(reference, subject.timezone)
    return f"{wall:%H:%M:%S}" if wall.date() == other.date() else f"{wall:%Y-%m-%d %H:%M:%S}"


def _record(
    subject: Subject, text: str, remarks: Sequence[str], explanations: Sequence[Explanation]
) -> dict[str, Any]:
    return {
        **names_record(subject.name),
        "time": text,
        "timezone": subject.timezone,
        "remarks": [line.strip() for line in remarks],
        "instants": [_instant_record(explanation) for explanation in explanations],
    }


def _instant_record(explanation: Explanation) -> dict[str, Any]:
    answers = explanation.answers
    return {
        "instant": iso(explanation.instant),
        "due": any(answer.is_due for answer in answers) if answers else None,
        "reasons": [line.strip() for line in explanation.reasons],
        "schedules": [
            {"schedule": answer.schedule, "due": answer.is_due, "reason": answer.words} for answer in answers
        ],
        "nearest": [iso(at) for at in explanation.nearest],
        "fires": [fire_record(row) for row in explanation.rows],
    }
