"""Renders a schedule as schedules of CronJobs, which fire at every instant and rarely at others.  Pure.

- The controller reads five fields like robfig/cron: weekdays 0 to 6, no `L`, `W` or `#`.  If both day
  fields are restricted, either is enough, also for a step (`*/2` is a restriction there, and none here).
- It skips times in a gap, fires twice in a fold, and fails in zones that change by half an hour or at
  midnight. So a second CronJob covers the hours around clock changes.
- `@every` is rendered in UTC: the controller would count from the creation of the CronJob.
- `L`, `W` and `#` become all days that they can mean.  Seconds are refused.
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
    schedule: str
    timezone: str = "Etc/UTC"


def cronjob_schedules(instants: Instants) -> list[CronSchedule]:
    """Return the CronJobs of a schedule, or raise a `UsageError` if it is not supported."""
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
    raise AssertionError(f"{type(instants).__name__} cannot be in a manifest")


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
