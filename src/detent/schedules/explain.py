"""Why is a schedule due at an instant, or why not?  Pure; `detent why` words the rest.

- Each expression of a schedule gives one answer.  One that is not due names every field that the time on
  its wall clock does not fit, or says in words what else kept it: a bound, a period, a repeated time.
- Day of month and day of week both restricted: either would do, so both are named only if both fail.
- A time that the wall clock skipped has no instant: `read_wall_clock` says so, `explain_skipped` why.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import NamedTuple

from detent.model import Schedule
from detent.schedules.cron import AT_SECOND_0, Fields, lowest
from detent.schedules.cronfields import DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, SECOND, Field, Range
from detent.schedules.timetable import (
    AT_BOOT,
    AtBoot,
    Bounded,
    Every,
    Instants,
    Merged,
    Once,
    Timetable,
    floor,
    parts_of,
)
from detent.schedules.wallclock import WallClock
from detent.schedules.yeardays import MONTH_LENGTHS, DayRule, days_of_month, is_leap
from detent.schedules.zones import DAY_S, Zone
from detent.text import listed

ANY_DAY = Field(text="*", mask=(1 << 32) - 1)
FAR_S = 2 * DAY_S  # no wall clock is further from UTC, before and after any change
BOOT = "it is due at no time, but once when its host has started"
SHOWN_MAX = 6  # values of a hashed field
MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
DAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_HASHED = re.compile("(?<![A-Z])H")  # and not the one in THU


class Mismatch(NamedTuple):
    """A field that does not have the value of the wall clock."""

    field: str  # as `cronfields` calls it
    value: int
    words: str


class Answer(NamedTuple):
    """What one expression says of an instant."""

    schedule: str
    is_due: bool
    mismatches: tuple[Mismatch, ...] = ()
    detail: str = ""  # what else there is to know

    @property
    def words(self) -> str:
        return "; ".join([*(miss.words for miss in self.mismatches), *([self.detail] if self.detail else [])])


class Reading(NamedTuple):
    """What a time on a wall clock means: one instant, two where it is shown twice, none in a gap."""

    instants: tuple[datetime, ...]
    gap: tuple[datetime, datetime] | None = None  # the wall clock's times before and after it
    resumes_at: datetime | None = None  # the first instant after the gap


# An instant.


def explain(schedule: Schedule, instant: datetime) -> tuple[Answer, ...]:
    """One answer for each expression; none for a schedule of another kind."""
    return tuple(_answers(schedule.instants, floor(instant))) if isinstance(schedule, Timetable) else ()


def _answers(instants: Instants, at: int) -> Iterator[Answer]:
    is_due = instants.next(at - 1) == at
    match instants:
        case Bounded():
            yield from _bounded(instants, at)
        case Merged():
            for part in instants.parts:
                yield from _answers(part, at)
        case WallClock():
            yield _wall_clock(instants, at, is_due)
        case Every():
            yield Answer(text_of(instants), is_due, detail="" if is_due else _period(instants, at))
        case Once():
            detail = "" if is_due else f"it is due only once, at {_utc(instants.at)}"
            yield Answer(text_of(instants), is_due, detail=detail)
        case AtBoot():
            yield Answer(text_of(instants), False, detail=BOOT)
        case _:
            yield Answer("its schedule", is_due, detail="" if is_due else "it names no such time")


def _bounded(bounded: Bounded, at: int) -> Iterator[Answer]:
    if at < bounded.first:
        yield Answer("starts_at", False, detail=f"the job starts at {_utc(bounded.first)}")
    elif at > bounded.last:
        yield Answer("ends_at", False, detail=f"the job ended at {_utc(bounded.last)}")
    else:
        yield from _answers(bounded.part, at)


def _wall_clock(clock: WallClock, at: int, is_due: bool) -> Answer:
    window = clock.zone.window(at)
    mismatches = tuple(find_mismatches(clock.pattern.fields, _shown(at + window.offset)))
    if is_due:
        note = clock.note(at)
        return Answer(text_of(clock), True, () if note else mismatches, note)
    detail = "" if mismatches else _second_time(clock, at + window.offset)
    return Answer(text_of(clock), False, mismatches, detail)


def _second_time(clock: WallClock, local: int) -> str:
    return (
        f"{_time(local)} was shown twice that day in {clock.zone.name}, and this is the second time;"
        f" under dst: {clock.rule} it fires the first time only"
    )


def _period(every: Every, at: int) -> str:
    over = at % every.period_s
    return f"it counts from 1970-01-01T00:00:00Z, and this is {over} s after one of its instants"


# A time that did not exist.


def read_wall_clock(shown: datetime, zone: Zone) -> Reading:
    """When a wall clock of the zone shows this time, which has no offset of its own."""
    local = floor(shown.replace(tzinfo=UTC))
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
    """What each expression makes of a time that its wall clock skipped."""
    if not isinstance(schedule, Timetable):
        return ()
    return tuple(_skipped(part, shown, floor(resumes_at)) for part in parts_of(schedule.instants))


def _skipped(part: Instants, shown: datetime, resumes: int) -> Answer:
    if not isinstance(part, WallClock):
        return Answer(text_of(part), False, detail="it does not go by the wall clock: give an instant in UTC")
    name = text_of(part)
    if part.rule == "utc":
        return Answer(name, False, detail="under dst: utc its fields are read in UTC: give the time in UTC")
    if mismatches := tuple(find_mismatches(part.pattern.fields, shown)):
        return Answer(name, False, mismatches)
    if part.next(resumes - 1) == resumes:
        return Answer(name, True, detail=f"under dst: {part.rule} it is due right after the gap instead")
    if part.rule == "skip":
        return Answer(name, False, detail="under dst: skip such a time is left out")
    detail = (
        f"its hour field is {part.pattern.fields.hour.text}: it follows real time, and makes up for nothing"
    )
    return Answer(name, False, detail=detail)


# Fields.


def find_mismatches(fields: Fields, shown: datetime) -> Iterator[Mismatch]:
    """Every field that the time on the wall clock does not fit."""
    values = (shown.second, shown.minute, shown.hour)
    ranges = ((fields.second, SECOND), (fields.minute, MINUTE), (fields.hour, HOUR))
    for value, (field, within) in zip(values, ranges, strict=True):
        if not field.mask >> value & 1:
            yield Mismatch(within.name, value, f"{within.name} {value:02} is not in {_allowed(field)}")
    yield from _missed_days(fields, shown)
    if not fields.month.mask >> shown.month & 1:
        name = MONTH_NAMES[shown.month - 1]
        yield Mismatch(MONTH.name, shown.month, f"month: {name} is not in {_allowed(fields.month)}")


def _missed_days(fields: Fields, shown: datetime) -> Iterator[Mismatch]:
    weekday = shown.isoweekday() % 7
    by_date = _names_day(fields.day_of_month, DAY_OF_MONTH, shown)
    by_weekday = _names_day(fields.day_of_week, DAY_OF_WEEK, shown)
    either = not (fields.day_of_month.is_open or fields.day_of_week.is_open)
    if either and (by_date or by_weekday):
        return
    if not by_date:
        words = f"day of month {shown.day} is not in {_allowed(fields.day_of_month)}"
        yield Mismatch(DAY_OF_MONTH.name, shown.day, words)
    if not by_weekday:
        words = f"day of week: {DAY_NAMES[weekday]} is not in {_allowed(fields.day_of_week)}"
        yield Mismatch(DAY_OF_WEEK.name, weekday, words + (" (either day would do)" if either else ""))


def _names_day(field: Field, within: Range, shown: datetime) -> bool:
    """Does this one of the two day fields name the day?"""
    of_month, of_week = (field, ANY_DAY) if within is DAY_OF_MONTH else (ANY_DAY, field)
    first = date(shown.year, shown.month, 1).isoweekday() % 7
    days = days_of_month(DayRule(of_month, ANY_DAY, of_week), first, _length(shown))
    return bool(days >> shown.day - 1 & 1)


def _length(shown: datetime) -> int:
    """How many days the month has."""
    return MONTH_LENGTHS[shown.month - 1] + (shown.month == 2 and is_leap(shown.year))


def _allowed(field: Field) -> str:
    """The field's text; of a hashed one its values too, which nobody can see in the text."""
    if not _HASHED.search(field.text.upper()):
        return field.text
    values, mask = [], field.mask
    while mask:
        values.append(str(lowest(mask)))
        mask &= mask - 1
    shown = values[:SHOWN_MAX] + (["…"] if len(values) > SHOWN_MAX else [])
    return f"{field.text} (here {listed(shown, 'and')})"


# Words.


def text_of(part: Instants) -> str:
    """An expression as its author would recognise it."""
    match part:
        case WallClock():
            fields = part.pattern.fields
            shown = fields[1:] if fields.second is AT_SECOND_0 else fields
            return " ".join(field.text for field in shown)
        case Every():
            return f"@every {_every(part.period_s)}"
        case Once():
            return f"at {_utc(part.at)}"
        case AtBoot():
            return AT_BOOT
    return "its schedule"


def _every(period_s: int) -> str:
    amounts = ((period_s // 3600, "h"), (period_s // 60 % 60, "m"), (period_s % 60, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in amounts if amount)


def _instant(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _shown(local: int) -> datetime:
    """What a wall clock shows: without an offset."""
    return _instant(local).replace(tzinfo=None)


def _utc(at: int) -> str:
    return f"{_instant(at):%Y-%m-%dT%H:%M:%SZ}"


def _time(local: int) -> str:
    return f"{_shown(local):%H:%M:%S}".removesuffix(":00")
