"""A schedule as schedules of CronJobs: they ring at every instant, as seldom as they can.  Pure.

- The controller reads five fields as robfig/cron does: weekdays 0 to 6, no `L`, `W` or `#`; both day fields
  restricted means either, also after a step (`*/2` is a restriction there, and none with us).
- It leaves out what falls into a gap, and rings twice in a fold, or loses its way in a zone that changes by
  half an hour or at midnight: there is a second CronJob for the hours around a change.
- `@every` is said in UTC: the controller would count from when the CronJob was created.
- `L`, `W` and `#` become the days that they may mean.  Seconds are refused.
"""

from collections.abc import Iterator
from typing import NamedTuple

from detent.errors import UsageError
from detent.formats.cloud_schedules import (
    UtcTimes,
    hourly_times,
    instant_times,
    period_times,
    times_around_changes,
)
from detent.schedules.host_fields import (
    REBOOT_UNSUPPORTED,
    check_whole_minutes,
    closed_field,
    open_field,
    short_field,
    wider_days,
    wider_weekdays,
)
from detent.schedules.timetable import AtBoot, Every, Instants, Once
from detent.schedules.wallclock import WallClock


class CronSchedule(NamedTuple):
    """When a CronJob rings."""

    schedule: str
    timezone: str = "Etc/UTC"


def cronjob_schedules(instants: Instants) -> list[CronSchedule]:
    """The CronJobs for a schedule; what they cannot ring for is raised."""
    match instants:
        case WallClock():
            return list(_wall_schedules(instants))
        case Every():
            check_whole_minutes(instants.period_s)
            return [_plain(period_times(instants.period_s))]
        case Once():
            check_whole_minutes(instants.at)
            return [_plain(instant_times(instants.at))]
        case AtBoot():
            raise UsageError(REBOOT_UNSUPPORTED)
    raise AssertionError(f"{type(instants).__name__} is no schedule of a manifest")


def _wall_schedules(clock: WallClock) -> Iterator[CronSchedule]:
    check_whole_minutes(0, clock.pattern.fields.second.mask)
    if times := hourly_times(clock):
        yield _plain(times)
        return
    yield CronSchedule(_fields(clock), "Etc/UTC" if clock.zone.name == "UTC" else clock.zone.name)
    if times := times_around_changes(clock):
        yield _plain(times)


def _fields(clock: WallClock) -> str:
    fields = clock.pattern.fields
    day = open_field if fields.day_of_month.is_open else closed_field
    weekday = open_field if fields.day_of_week.is_open else closed_field
    return " ".join(
        (
            short_field(fields.minute.mask, 0, 59),
            short_field(fields.hour.mask, 0, 23),
            day(wider_days(fields.day_of_month), 1, 31),
            short_field(fields.month.mask, 1, 12),
            weekday(wider_weekdays(fields.day_of_week), 0, 6),
        )
    )


def _plain(times: UtcTimes) -> CronSchedule:
    return CronSchedule(
        " ".join(
            (
                short_field(times.minutes, 0, 59),
                short_field(times.hours, 0, 23),
                short_field(times.days, 1, 31),
                short_field(times.months, 1, 12),
                "*",
            )
        )
    )
