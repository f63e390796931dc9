"""Describes a schedule in words, such as "at 02:00 on Monday to Friday (Europe/Berlin)".

The words name the values that match, not the fields that were written: `H` is shown as the value it stands
for, and a step that does not divide its range, as in `*/7`, as a list.
"""

from collections.abc import Sequence
from datetime import UTC
from typing import assert_never

from detent.model import Schedule
from detent.schedules.cron import Fields
from detent.schedules.cronfields import DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, SECOND, Field, Special
from detent.schedules.explain import DAY_NAMES, MONTH_NAMES
from detent.schedules.host_fields import bits
from detent.schedules.timetable import AtBoot, Bounded, Every, Instants, Once, Timetable, from_unix, parts_of
from detent.schedules.wallclock import WallClock
from detent.schedules.zones import FIRST_S, LAST_S
from detent.text import listed, plural

TIMES_MAX = 6  # times of a day that are listed; more are described by their minutes and hours
VALUES_MAX = 12  # values of a field that are listed
NTH = ("", "1st", "2nd", "3rd", "4th", "5th")
ANY_MINUTE, ANY_HOUR = [*range(60)], [*range(24)]


def words_of(schedule: Schedule) -> str:
    """Describe a schedule; "" for a job without one, which runs after other jobs."""
    if not isinstance(schedule, Timetable):
        return ""
    parts = [*parts_of(schedule.instants)]
    zones = sorted({part.zone.name for part in parts if isinstance(part, WallClock)})
    text = "; ".join(dict.fromkeys(map(_words, parts))) + (f" ({', '.join(zones)})" if zones else "")
    return text + (_bounds(schedule.instants) if isinstance(schedule.instants, Bounded) else "")


def _words(part: Instants) -> str:
    match part:
        case WallClock():
            return " ".join(filter(None, _of_fields(part.pattern.fields)))
        case Every():
            return f"every {_period(part.period_s)}"
        case Once():
            return f"once, at {_utc(part.at)}"
        case AtBoot():
            return "after each boot of the host"
    return "at times of its own"


def _bounds(bounded: Bounded) -> str:
    since = f", from {_utc(bounded.first)} on" if bounded.first > FIRST_S else ""
    return since + (f", until {_utc(bounded.last)}" if bounded.last < LAST_S else "")


def _period(seconds: int) -> str:
    """`2 seconds`, `hour`, `1 hour and 30 minutes`."""
    counts = {"hour": seconds // 3_600, "minute": seconds // 60 % 60, "second": seconds % 60}
    texts = [plural(count, unit) for unit, count in counts.items() if count]
    return texts[0].removeprefix("1 ") if len(texts) == 1 else listed(texts, "and")


def _of_fields(fields: Fields) -> tuple[str, str, str]:
    """The times, the days and the months."""
    seconds, minutes, hours = (bits(field.mask) for field in (fields.second, fields.minute, fields.hour))
    days, months = _days(fields.day_of_month, fields.day_of_week), _months(bits(fields.month.mask))
    if len(hours) * len(minutes) * len(seconds) <= TIMES_MAX:
        times = [_clock(hour, minute, second) for hour in hours for minute in minutes for second in seconds]
        return f"at {listed(times, 'and')}", days or "every day", months
    return _times(seconds, minutes, hours), days, months


def _clock(hour: int, minute: int, second: int = 0) -> str:
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")


def _times(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> str:
    if seconds == [0] and minutes == [0] and (every := _every(hours, HOUR.high + 1, HOUR.name)):
        return every
    if seconds == [0] and len(minutes) == 1 and _is_range(hours) and hours != ANY_HOUR:
        return f"every hour from {_clock(hours[0], minutes[0])} to {_clock(hours[-1], minutes[0])}"
    every = _every(minutes, MINUTE.high + 1, MINUTE.name)
    text = every or f"at {_values(minutes, MINUTE.name)}"
    if seconds != [0]:
        each = _every(seconds, SECOND.high + 1, SECOND.name)
        text = each or f"at {_values(seconds, SECOND.name)}"
        if minutes != ANY_MINUTE:
            text += f" of {_values(minutes, MINUTE.name)}"
        elif not each:
            text += " of every minute"
        every = text if minutes == ANY_MINUTE else ""
    if hours == ANY_HOUR:
        return text if every else f"{text} of every hour"
    if every and _is_range(hours):
        return f"{text} from {_clock(hours[0], 0)} to {_clock(hours[-1], 59)}"
    return f"{text} of {_values(hours, HOUR.name)}"


def _every(values: Sequence[int], size: int, unit: str) -> str:
    """`every minute`, `every 5 minutes`; "" if the values are not so regular."""
    step = size // len(values)
    if [*values] != [*range(0, size, step)] or step == size:
        return ""
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _values(values: Sequence[int], unit: str) -> str:
    """`minute 5`, `minutes 5 and 20`, `hours 9 to 17`."""
    if _is_range(values):
        return f"{unit}s {values[0]} to {values[-1]}"
    shown = [*map(str, values[:VALUES_MAX])] + (["…"] if len(values) > VALUES_MAX else [])
    return f"{unit}{'s' if len(values) > 1 else ''} {listed(shown, 'and')}"


def _is_range(values: Sequence[int]) -> bool:
    return len(values) > 2 and values[-1] - values[0] == len(values) - 1


def _days(of_month: Field, of_week: Field) -> str:
    """The days; "" for every day.  Of two restricted fields either matches, unless one begins with `*`."""
    dates, weekdays = bits(of_month.mask), bits(of_week.mask)
    by_date = "" if len(dates) == DAY_OF_MONTH.high else _dates(dates, of_month.specials)
    by_weekday = "" if len(weekdays) == DAY_OF_WEEK.high + 1 else _weekdays(weekdays, of_week.specials)
    if of_month.is_open or of_week.is_open:
        return " that fall ".join(filter(None, (by_date, by_weekday)))
    return f"{by_date} or {by_weekday}" if by_date and by_weekday else ""


def _dates(dates: Sequence[int], specials: Sequence[Special]) -> str:
    found = [_values(dates, "day")] if dates else []
    return f"on {listed([*found, *map(_special, specials)], 'and')} of the month"


def _weekdays(weekdays: Sequence[int], specials: Sequence[Special]) -> str:
    found = [DAY_NAMES[day] for day in weekdays]
    if _is_range(weekdays):
        found = [f"{found[0]} to {found[-1]}"]
    more = [f"{_special(special)} of the month" for special in specials]
    return f"on {listed([*found, *more], 'and')}"


def _special(special: Special) -> str:
    match special.kind:
        case "last":
            return "the last day"
        case "last-weekday":
            return "the last weekday (Monday to Friday)"
        case "nearest-weekday":
            return f"the weekday nearest to day {special.day}"
        case "nth":
            return f"the {NTH[special.nth]} {DAY_NAMES[special.day]}"
        case "last-of":
            return f"the last {DAY_NAMES[special.day]}"
    assert_never(special.kind)


def _months(months: Sequence[int]) -> str:
    names = [MONTH_NAMES[month - 1] for month in months]
    if len(months) == MONTH.high:
        return ""
    return f"from {names[0]} to {names[-1]}" if _is_range(months) else f"in {listed(names, 'and')}"


def _utc(at: int) -> str:
    return f"{from_unix(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
