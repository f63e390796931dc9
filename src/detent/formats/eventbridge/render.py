"""Renders a schedule as EventBridge expressions, which fire at every instant and rarely at others.  Pure.

- `cron(minute hour day month weekday year)` has weekdays 1 to 7 from Sunday, and one day field is `?`.  If
  either day field may match, there are two schedules; if both must, the field with fewer days is used.
- The service skips times in a gap, and fires once in a fold.  So another schedule covers the hours around
  clock changes.
- `@every` counts from 1970 and becomes `cron()`: `rate()` counts from the creation of the schedule.
- `L` as a date and `#` are kept.  Other special days become all days that they can mean.
- Seconds are refused, because the service fires at most once a minute.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from detent.errors import UsageError
from detent.formats.cloud_schedules import EVERY_DAY, EVERY_WEEKDAY, UtcTimes, is_whole, render
from detent.schedules.cronfields import Field
from detent.schedules.host_fields import bits, check_whole_minutes, ranges_text, wider_days, wider_weekdays
from detent.schedules.timetable import Instants, Once
from detent.schedules.wallclock import WallClock

EXPRESSION_MAX = 256  # characters
ANY = "?"


class Expression(NamedTuple):
    text: str
    timezone: str = "UTC"


def schedule_expressions(instants: Instants) -> list[Expression]:
    """Return the expressions of a schedule, or raise a `UsageError` if it is not supported."""
    if isinstance(instants, Once):
        check_whole_minutes(instants.at)
        found = [Expression(f"at({datetime.fromtimestamp(instants.at, UTC):%Y-%m-%dT%H:%M:%S})")]
    else:
        found = render(instants, _in_zone, _in_utc)
    if any(len(expression.text) > EXPRESSION_MAX for expression in found):
        raise UsageError(f"its expression has more than {EXPRESSION_MAX} characters; use several schedules")
    return found


def _in_zone(clock: WallClock) -> Iterator[Expression]:
    fields = clock.pattern.fields
    time = f"{_values(fields.minute.mask, 0, 59)} {_values(fields.hour.mask, 0, 23)}"
    month = _values(fields.month.mask, 1, 12)
    for day, weekday in _days(fields.day_of_month, fields.day_of_week):
        yield Expression(f"cron({time} {day} {month} {weekday} *)", clock.zone.name)


def _days(days: Field, weekdays: Field) -> Iterator[tuple[str, str]]:
    """Yield the two day fields of each expression."""
    by_date, by_weekday = (_date(days), ANY), (ANY, _weekday(weekdays))
    if not days.is_open and not weekdays.is_open:
        yield by_date
        yield by_weekday
    elif is_whole(weekdays, EVERY_WEEKDAY):
        yield by_date
    elif is_whole(days, EVERY_DAY):
        yield by_weekday
    else:
        dates = wider_days(days).bit_count() / 31
        yield by_date if dates <= wider_weekdays(weekdays).bit_count() / 7 else by_weekday


def _date(field: Field) -> str:
    if not field.mask and [special.kind for special in field.specials] == ["last"]:
        return "L"
    return _values(wider_days(field), 1, 31)


def _weekday(field: Field) -> str:
    if not field.mask and len(field.specials) == 1 and field.specials[0].kind == "nth":
        return f"{field.specials[0].day + 1}#{field.specials[0].nth}"
    return _values(wider_weekdays(field) << 1, 1, 7)


def _in_utc(times: UtcTimes) -> Expression:
    return Expression(f"cron({times.written(_values)} ? *)")


def _values(mask: int, low: int, high: int) -> str:
    """Render a mask; `0/5` continues to the end of the field."""
    values = bits(mask)
    if len(values) == high - low + 1:
        return "*"
    steps = {after - before for before, after in pairwise(values)}
    if len(values) > 2 and len(steps) == 1 and (step := steps.pop()) > 1 and values[-1] + step > high:
        return f"{values[0]}/{step}"
    return ranges_text(values)
