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

from detent.formats.cloud_schedules import UtcTimes, render
from detent.schedules.host_fields import short_field, with_days
from detent.schedules.timetable import Instants
from detent.schedules.wallclock import WallClock


class CronSchedule(NamedTuple):
    schedule: str
    timezone: str = "Etc/UTC"


def cronjob_schedules(instants: Instants) -> list[CronSchedule]:
    """Return the CronJobs of a schedule, or raise a `UsageError` if it is not supported."""
    return render(instants, _in_zone, _in_utc)


def _in_zone(clock: WallClock) -> Iterator[CronSchedule]:
    fields = clock.pattern.fields
    time = f"{short_field(fields.minute.mask, 0, 59)} {short_field(fields.hour.mask, 0, 23)}"
    yield CronSchedule(with_days(time, fields), "Etc/UTC" if clock.zone.name == "UTC" else clock.zone.name)


def _in_utc(times: UtcTimes) -> CronSchedule:
    return CronSchedule(f"{times.written(short_field)} *")
