"""Random schedules to render for hosts, and paths with characters that shells, cron and systemd interpret."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

PATIENT = settings(  # these tests start programs, and the machine may be busy: no deadline, no shrinking
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Santiago",
    "Pacific/Chatham",
)
DST = ("vixie", "skip", "twice", "utc")


def fields(low: int, high: int, more: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    value = st.integers(low, high).map(str)
    span = st.tuples(st.integers(low, high), st.integers(low, high)).map(
        lambda ends: f"{min(ends)}-{max(ends)}"
    )
    step = st.integers(1, high).map(str)
    item = st.one_of(
        value,
        span,
        st.builds("{}/{}".format, span, step),
        st.builds("*/{}".format, step),
        *map(st.just, more),
    )
    return st.one_of(st.just("*"), value, item, st.lists(item, min_size=1, max_size=3).map(",".join))


DAYS = fields(1, 31, ("L", "LW", "15W", "1W", "30W", "28W", "?", "H"))
WEEKDAYS = fields(0, 6, ("MON", "5L", "2#1", "FRI#5", "7", "MON-FRI"))
EVERY = st.sampled_from(["1m", "5m", "7m", "45m", "1h", "90m", "5h", "24h", "36h", "168h"]).map(
    "@every {}".format
)


@st.composite
def crons(draw: st.DrawFn) -> str:
    """Often at hours at which offsets change."""
    minute = draw(fields(0, 59, ("H",)))
    hour = draw(st.one_of(fields(0, 23), st.sampled_from(["0", "1", "2", "1-3", "*/2", "*"])))
    day, weekday = draw(st.one_of(st.just("*"), DAYS)), draw(st.one_of(st.just("*"), WEEKDAYS))
    return f"{minute} {hour} {day} {draw(st.one_of(st.just('*'), fields(1, 12)))} {weekday}"


SCHEDULES = st.one_of(
    crons(), EVERY, st.sampled_from(["@hourly", "@daily", "@weekly", "@monthly", "@yearly"])
)

PATHS = st.one_of(st.text("%$'\"`#;|&(){}<>*? ~=:\\-é/ab", max_size=20), st.text(max_size=20))
