"""Explains why a schedule is or is not due at an instant, for `detent why`.

- Each expression gives one answer.  If it is not due, the answer names every field that does not match, or
  another reason: a bound, a period, a repeated time.
- If day of month and day of week are both restricted, either would match, so they are named only if both
  fail.
- A time that the wall clock skipped has no instant: see `read_wall_clock` and `explain_skipped`.
"""

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from detent.model import Schedule
from detent.schedules import timetable
from detent.schedules.cron import AT_SECOND_0, Fields
from detent.schedules.cronfields import DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, SECOND, Field, Range
from detent.schedules.host_fields import bits
from detent.schedules.wallclock import WallClock
from detent.schedules.yeardays import DayRule, days_of_month
from detent.schedules.zones import DAY_S, Zone
from detent.text import listed

ANY_DAY = Field(text="*", mask=(1 << 32) - 1)
FAR_S = 2 * DAY_S  # more than any UTC offset
SHOWN_MAX = 6  # values of an `H` field
MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
DAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_HASHED = re.compile("(?<![A-Z])H")  # not the H of THU


class Mismatch(NamedTuple):
    field: str  # name in `cronfields`
    value: int
    words: str


class Answer(NamedTuple):
    """Whether and why one expression is due."""

    schedule: str
    is_due: bool
    mismatches: tuple[Mismatch, ...] = ()
    detail: str = ""  # another reason

    @property
    def words(self) -> str:
        return "; ".join([*(miss.words for miss in self.mismatches), *([self.detail] if self.detail else [])])


class Reading(NamedTuple):
    """The instants of a local time: one, two if it is repeated, none in a gap."""

    instants: tuple[datetime, ...]
    gap: tuple[datetime, datetime] | None = None  # local times before and after it
    resumes_at: datetime | None = None  # the first instant after the gap


def explain(schedule: Schedule, instant: datetime) -> tuple[Answer, ...]:
    return (
        tuple(_answers(schedule.instants, timetable.floor(instant)))
        if isinstance(schedule, timetable.Timetable)
        else ()
    )


def _answers(instants: timetable.Instants, at: int) -> Iterator[Answer]:
    is_due = instants.next(at - 1) == at
    match instants:
        case timetable.Bounded() if at < instants.first:
            yield Answer("starts_at", False, detail=f"the job starts at {_utc(instants.first)}")
        case timetable.Bounded() if at > instants.last:
            yield Answer("ends_at", False, detail=f"the job ended at {_utc(instants.last)}")
        case timetable.Bounded():
            yield from _answers(instants.part, at)
        case timetable.Merged():
            for part in instants.parts:
                yield from _answers(part, at)
        case WallClock():
            yield _wall_clock(instants, at, is_due)
        case _:
            yield Answer(text_of(instants), is_due, detail="" if is_due else _why_not_due(instants, at))


def _why_not_due(instants: timetable.Instants, at: int) -> str:
    match instants:
        case timetable.Every():
            late_s = at % instants.period_s
            return f"it counts from 1970-01-01T00:00:00Z; this is {late_s} s after one of its instants"
        case timetable.Once():
            return f"it is due only once, at {_utc(instants.at)}"
        case timetable.AtBoot():
            return "it is due only when its host has booted"
    return "it has no such time"


def _wall_clock(clock: WallClock, at: int, is_due: bool) -> Answer:
    shown = _shown(at + clock.zone.window(at).offset)
    mismatches = tuple(find_mismatches(clock.pattern.fields, shown))
    if is_due:
        note = clock.note(at)
        return Answer(text_of(clock), True, () if note else mismatches, note)
    repeated = (
        f"{f'{shown:%H:%M:%S}'.removesuffix(':00')} happened twice that day in {clock.zone.name}, and this is"
        f" the second time; under dst: {clock.rule} it fires the first time only"
    )
    return Answer(text_of(clock), False, mismatches, "" if mismatches else repeated)


def read_wall_clock(shown: datetime, zone: Zone) -> Reading:
    """Return when the wall clock of the zone shows this local time."""
    local = timetable.floor(shown.replace(tzinfo=UTC))
    found, at, gap = [], local - FAR_S, None
    while at < local + FAR_S:
        window = zone.window(at)
        if window.start <= local - window.offset < window.until:
            found.append(_instant(local - window.offset))
        elif window.high <= local < window.start + window.offset:
            gap = window
        at = window.until
    if found or gap is None:
        return Reading(tuple(sorted(set(found))))
    return Reading((), (_shown(gap.high), _shown(gap.start + gap.offset)), _instant(gap.start))


def explain_skipped(schedule: Schedule, shown: datetime, resumes_at: datetime) -> tuple[Answer, ...]:
    """Return one answer per expression about a local time that was skipped."""
    if not isinstance(schedule, timetable.Timetable):
        return ()
    return tuple(
        _skipped(part, shown, timetable.floor(resumes_at)) for part in timetable.parts_of(schedule.instants)
    )


def _skipped(part: timetable.Instants, shown: datetime, resumes: int) -> Answer:
    is_due = False
    mismatches: tuple[Mismatch, ...] = ()
    if not isinstance(part, WallClock):
        detail = "it does not follow the wall clock: give an instant in UTC"
    elif part.rule == "utc":
        detail = "under dst: utc its fields are read in UTC: give the time in UTC"
    elif mismatches := tuple(find_mismatches(part.pattern.fields, shown)):
        detail = ""
    elif is_due := part.next(resumes - 1) == resumes:
        detail = f"under dst: {part.rule} it is due right after the gap instead"
    elif part.rule == "skip":
        detail = "under dst: skip it does not fire"
    else:
        hour = part.pattern.fields.hour.text
        detail = f"its hour field is {hour}: it follows real time and does not catch up"
    return Answer(text_of(part), is_due, mismatches, detail)


def find_mismatches(fields: Fields, shown: datetime) -> Iterator[Mismatch]:
    """Yield every field that does not match the local time."""
    values = (shown.second, shown.minute, shown.hour)
    ranges = ((fields.second, SECOND), (fields.minute, MINUTE), (fields.hour, HOUR))
    for value, (field, within) in zip(values, ranges, strict=True):
        if not field.mask >> value & 1:
            yield Mismatch(within.name, value, f"{within.name} {value:02} is not in {_allowed(field)}")
    yield from _mismatched_days(fields, shown)
    if not fields.month.mask >> shown.month & 1:
        name = MONTH_NAMES[shown.month - 1]
        yield Mismatch(MONTH.name, shown.month, f"month: {name} is not in {_allowed(fields.month)}")


def _mismatched_days(fields: Fields, shown: datetime) -> Iterator[Mismatch]:
    weekday = shown.isoweekday() % 7
    by_date = _matches_day(fields.day_of_month, DAY_OF_MONTH, shown)
    by_weekday = _matches_day(fields.day_of_week, DAY_OF_WEEK, shown)
    either = not (fields.day_of_month.is_open or fields.day_of_week.is_open)
    if either and (by_date or by_weekday):
        return
    if not by_date:
        words = f"day of month {shown.day} is not in {_allowed(fields.day_of_month)}"
        yield Mismatch(DAY_OF_MONTH.name, shown.day, words)
    if not by_weekday:
        words = f"day of week: {DAY_NAMES[weekday]} is not in {_allowed(fields.day_of_week)}"
        yield Mismatch(DAY_OF_WEEK.name, weekday, words + (" (either day would do)" if either else ""))


def _matches_day(field: Field, within: Range, shown: datetime) -> bool:
    of_month, of_week = (field, ANY_DAY) if within is DAY_OF_MONTH else (ANY_DAY, field)
    first, length = monthrange(shown.year, shown.month)
    days = days_of_month(DayRule(of_month, ANY_DAY, of_week), (first + 1) % 7, length)
    return bool(days >> shown.day - 1 & 1)


def _allowed(field: Field) -> str:
    """Return the text of the field; for an `H` field also its values, which the text does not show."""
    if not _HASHED.search(field.text.upper()):
        return field.text
    values = [str(value) for value in bits(field.mask)]
    shown = values[:SHOWN_MAX] + (["…"] if len(values) > SHOWN_MAX else [])
    return f"{field.text} (here {listed(shown, 'and')})"


def text_of(part: timetable.Instants) -> str:
    """Return the expression as its author wrote it."""
    match part:
        case WallClock():
            fields = part.pattern.fields
            shown = fields[1:] if fields.second is AT_SECOND_0 else fields
            return " ".join(field.text for field in shown)
        case timetable.Every():
            return f"@every {timetable.period_text(part.period_s)}"
        case timetable.Once():
            return f"at {_utc(part.at)}"
        case timetable.AtBoot():
            return timetable.AT_BOOT
    return "its schedule"


def _instant(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _shown(local: int) -> datetime:
    return _instant(local).replace(tzinfo=None)


def _utc(at: int) -> str:
    return f"{_instant(at):%Y-%m-%dT%H:%M:%SZ}"
