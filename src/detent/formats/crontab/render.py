"""Renders a schedule as the five fields of a crontab, which name every minute with an instant, or more.
Pure.

- In the same zone, the fields are those of the schedule: Vixie's rules about days and clock changes are
  ours.  The minute gets no `*` if the hour has none: cron would treat the line as one that follows real
  time, and not fire after a gap.
- In another zone, or with `dst: twice`, the line fires in these minutes of every hour.
- `@every` counts from 1970 in UTC: it becomes the minutes of the hour that its instants can have.
- `L`, `W` and `#` become all days that they can mean.  Seconds are refused.
"""

from datetime import UTC, datetime

from detent.errors import UsageError
from detent.schedules import host_fields
from detent.schedules.timetable import Every, Instants, Once
from detent.schedules.wallclock import WallClock
from detent.schedules.zones import open_zone


def cron_fields(instants: Instants, zone: str) -> str:
    """Return the fields for cron in this zone, or raise a `UsageError` if it is not supported."""
    match instants:
        case WallClock():
            return _wall_fields(instants, zone)
        case Every():
            host_fields.check_whole_minutes(instants.period_s)
            return _every_hour(
                host_fields.shift_minutes(host_fields.minutes_of_period(instants.period_s), "UTC", zone)
            )
        case Once():
            return _once_fields(instants, zone)
    raise UsageError(host_fields.REBOOT_UNSUPPORTED)


def _wall_fields(clock: WallClock, zone: str) -> str:
    fields = clock.pattern.fields
    host_fields.check_whole_minutes(0, fields.second.mask)
    follows = fields.hour.is_open
    is_twice = clock.rule == "twice" and not follows and host_fields.shifts_of(zone)
    if is_twice or not host_fields.is_same_clock(clock.zone.name, zone):
        return _every_hour(host_fields.minutes_on(clock, zone))
    minute = (host_fields.short_field if follows else host_fields.closed_field)(fields.minute.mask, 0, 59)
    hour = (host_fields.open_field if follows else host_fields.closed_field)(fields.hour.mask, 0, 23)
    return host_fields.with_days(f"{minute} {hour}", fields)


def _every_hour(minutes: int) -> str:
    return f"{host_fields.short_field(minutes, 0, 59)} * * * *"


def _once_fields(once: Once, zone: str) -> str:
    """Render the date and time in every year: the trigger ignores the other years.  Cron never fires twice
    at a fixed time, so the second of two equal times needs every hour."""
    host_fields.check_whole_minutes(once.at)
    local = datetime.fromtimestamp(once.at + open_zone(zone).window(once.at).offset, UTC)
    hour = "*" if host_fields.is_second_time(once, zone) else local.hour
    return f"{local.minute} {hour} {local.day} {local.month} *"
