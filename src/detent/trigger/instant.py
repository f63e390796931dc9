"""Decides which instant of the schedule a trigger is for.  Pure.

- It is the newest instant that is due by the store's clock.  So triggers that start late, or on several hosts
  at slightly different times, name the same fire.
- If the host says which time it fired for, that time is moved to the newest instant at or before it.
- A host's clock may be ahead.  If the newest instant is settled already, and the host's clock is at the next
  one or almost there, the trigger is for the next one and waits for it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from detent.model import Schedule
from detent.rules.lanes import HOST_EARLY_S

EARLY_S = 15.0  # a trigger that starts this long before an instant, by the host's clock, is for that instant
_RESOLUTION = timedelta(microseconds=1)


def newest_instant(schedule: Schedule, at: datetime) -> datetime | None:
    """Return the newest instant at or before `at`."""
    return schedule.before(at + _RESOLUTION)


def upcoming_instant(schedule: Schedule, now: datetime, fired_at: datetime) -> datetime | None:
    """Return the instant after the store's `now` that the trigger is for, or None.  `fired_at` is the time
    that the host names, or else the time by the host's clock."""
    ahead = schedule.after(now)
    if ahead is None or ahead - now >= timedelta(seconds=HOST_EARLY_S):
        return None
    if ahead - fired_at > timedelta(seconds=EARLY_S):
        return None
    behind = newest_instant(schedule, now)
    is_nearer = behind is None or abs(ahead - fired_at) <= abs(fired_at - behind)
    return ahead if is_nearer else None
