"""Shared by tests of schedules on Kubernetes and EventBridge."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import assume
from hypothesis import strategies as st
from tests.hosts.schedule_texts import DST, SCHEDULES

from detent.errors import UsageError
from detent.schedules.host_fields import shifts_of
from detent.schedules.timetable import Timetable, parse_schedule

UNRINGABLE = ["*/10 * * * * *", "30 0 2 * * *", "@every 90s", "@reboot"]
ANY_TIME = st.integers(1_770_000_000, 2_000_000_000)


def parsed(text: str, zone: str = "UTC", dst: str = "vixie") -> Timetable:
    return parse_schedule(text, timezone=zone, dst=dst, seed="shop.backup")


@st.composite
def cases(draw: st.DrawFn, zones: tuple[str, ...]) -> tuple[str, str, Timetable, datetime]:
    """A schedule, its zone and an instant, mostly one at which the zone's offset changes."""
    text, zone = draw(SCHEDULES), draw(st.sampled_from(zones))
    try:
        schedule = parsed(text, zone, draw(st.sampled_from(DST)))
    except UsageError:
        assume(False)  # it never fires
    changes = [shift.at for shift in shifts_of(zone)]
    at = draw(
        st.one_of(st.sampled_from(changes), st.sampled_from(changes), ANY_TIME) if changes else ANY_TIME
    )
    return text, zone, schedule, datetime.fromtimestamp(at - at % 60, UTC)


def is_exact(text: str, zone: str, since: datetime, until: datetime) -> bool:
    """Whether a host can express this schedule exactly, without a change of offset in these days."""
    days, weekdays = text.split()[2:5:2] if text.count(" ") == 4 else ("L", "L")
    is_plain = "*" in (days, weekdays) and not set(days + weekdays) & set("LW#/?H")
    return is_plain and not any(
        since.timestamp() <= shift.at <= until.timestamp() for shift in shifts_of(zone)
    )
