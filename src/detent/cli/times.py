"""Reads a time as people say it: `02:00`, `yesterday 02:00`, `2026-11-15 02:00`, `2026-11-15T02:00Z`, `now`.

A time without an offset is one on a wall clock; on whose, the verb decides.  Pure.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from detent.cli.given import YEARS
from detent.core.text import quote
from detent.errors import UsageError

ALLOWED = (
    "write a time such as 02:00, yesterday 02:00, 2026-11-15 02:00 or now;"
    " with an offset it is that instant: 2026-11-15T02:00:00Z"
)
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_FORM = re.compile(
    r"(?:(?P<day>\d{4}-\d{2}-\d{2}|yesterday|today|tomorrow)[t ]\s*)?"
    r"(?P<time>\d{1,2}:\d{2})(?P<seconds>:\d{2})?\s*(?P<offset>z|[+-]\d{2}:\d{2})?"
)


class Spoken(NamedTuple):
    """A time as it was said."""

    shown: datetime  # on the wall; aware where an offset was said
    has_day: bool
    has_seconds: bool


def read_time(text: str, now: datetime) -> Spoken:
    """What was said; `now` is what the wall clock in question shows, without an offset."""
    said = " ".join(text.lower().split())
    if said == "now":
        return Spoken(now.replace(second=0, microsecond=0), has_day=True, has_seconds=False)
    found = _FORM.fullmatch(said)
    if found is None:
        raise UsageError(f"bad time {quote(text)}: {ALLOWED}")
    try:
        shown = _shown(found, now)
    except ValueError as error:
        raise UsageError(f"bad time {quote(text)}: {error}") from None
    if not YEARS[0] < shown.year < YEARS[1]:
        raise UsageError(f"bad time {quote(text)}: it is not between the years {YEARS[0]} and {YEARS[1]}")
    return Spoken(shown, has_day=found["day"] is not None, has_seconds=found["seconds"] is not None)


def _shown(found: re.Match[str], now: datetime) -> datetime:
    offset = _offset(found["offset"])
    time = f"{found['time']:0>5}{found['seconds'] or ':00'}"
    day = found["day"] or "today"
    if day in _DAYS:
        day = f"{now + timedelta(days=_DAYS[day]):%Y-%m-%d}"
    return datetime.fromisoformat(f"{day}T{time}").replace(tzinfo=offset)


def _offset(text: str | None) -> timezone | None:
    if text is None:
        return None
    shown = datetime.fromisoformat(f"2000-01-01T00:00:00{text.upper()}")
    return timezone(shown.utcoffset() or timedelta())
