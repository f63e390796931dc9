"""Which instant does a ring of the host's scheduler stand for?  Pure.

- It is the newest one that is due by the store's clock: so a shim that is started late, or on several hosts
  at slightly different times, names the same fire.
- What the host says it rang for is snapped to the schedule: the newest instant at or before it.
- A host's clock may be early.  Where the newest instant is settled already, and the host's own clock is at
  the next one or almost there, the ring is for that one, and it is waited for.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from detent.model import Schedule
from detent.rules.lanes import HOST_EARLY_S

EARLY_S = 15.0  # so long before an instant, by the host's own clock, a ring is meant for it
_RESOLUTION = timedelta(microseconds=1)


def newest_instant(schedule: Schedule, at: datetime) -> datetime | None:
    """The newest instant at or before this one."""
    return schedule.before(at + _RESOLUTION)


def upcoming_instant(schedule: Schedule, now: datetime, scheduled_for: datetime) -> datetime | None:
    """The instant ahead of the store's `now` that a ring is for; None: there is none.  `rang_at` is when it
    rang by the host's clock, or what the host says it rang for."""
    ahead = schedule.after(now)
    if ahead is None or ahead - now >= timedelta(seconds=HOST_EARLY_S):
        return None
    if ahead - scheduled_for > timedelta(seconds=EARLY_S):
        return None
    behind = newest_instant(schedule, now)
    is_nearer = behind is None or abs(ahead - scheduled_for) <= abs(scheduled_for - behind)
    return ahead if is_nearer else None
