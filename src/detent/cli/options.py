"""Parses option values: numbers, durations and times such as `02:00` or `yesterday 02:00`."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from detent.errors import UsageError
from detent.schedules.timetable import parse_instant
from detent.text import quote

COUNT_MAX = 10_000  # rows
KEEP_MAX = 1_000_000  # fires of a job, as in a manifest
YEARS = (1970, 9000)
DURATION_MAX_S = 36_500 * 86_400  # a hundred years
_DURATION = re.compile("(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
_UNITS_S = (86_400, 3_600, 60, 1)
ALLOWED = (
    "write a time such as 02:00, yesterday 02:00, 2026-11-15 02:00 or now;"
    " with an offset it is that instant: 2026-11-15T02:00:00Z"
)
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_FORM = re.compile(
    r"(?:(?P<day>\d{4}-\d{2}-\d{2}|yesterday|today|tomorrow)[t ]\s*)?"
    r"(?P<time>\d{1,2}:\d{2})(?P<seconds>:\d{2})?\s*(?P<offset>z|[+-]\d{2}:\d{2})?"
)


def add_count(parser: ArgumentParser, default: int, about: str) -> None:
    about = f"{about} (default: {default})"
    parser.add_argument("-n", type=count, default=default, dest="count", metavar="N", help=about)


def _whole(most: int, text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= number <= most:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
    return number


count, keep = partial(_whole, COUNT_MAX), partial(_whole, KEEP_MAX)


def instant(text: str) -> datetime:
    try:
        found = parse_instant(text, "time")
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from None
    if not YEARS[0] <= found.year <= YEARS[1]:
        raise ArgumentTypeError(f"{text!r} is not between the years {YEARS[0]} and {YEARS[1]}")
    return found


def seconds(text: str) -> int:
    """Parse `2h`, `90m`, `1h30m` or `30d`."""
    match = _DURATION.fullmatch(text)
    amounts = match.groups(default="0") if match else ()
    total = sum(int(amount) * unit for amount, unit in zip(amounts, _UNITS_S, strict=False))
    if not 1 <= total <= DURATION_MAX_S:
        raise ArgumentTypeError(f"{text!r} is not a duration such as 2h, 90m, 1h30m or 30d")
    return total


class ParsedTime(NamedTuple):
    at: datetime  # naive wall-clock time; aware if the user wrote an offset
    has_day: bool
    has_seconds: bool


def parse_time(text: str, now: datetime) -> ParsedTime:
    """Parse `02:00`, `yesterday 02:00`, `2026-11-15 02:00`, `2026-11-15T02:00Z` or `now`.

    A time without an offset is on the wall clock whose reading is `now` (naive).
    """
    words = " ".join(text.lower().split())
    if words == "now":
        return ParsedTime(now.replace(second=0, microsecond=0), has_day=True, has_seconds=False)
    found = _FORM.fullmatch(words)
    if found is None:
        raise UsageError(f"bad time {quote(text)}: {ALLOWED}")
    day = found["day"] or "today"
    if day in _DAYS:
        day = f"{now + timedelta(days=_DAYS[day]):%Y-%m-%d}"
    time = f"{found['time']:0>5}{found['seconds'] or ':00'}{(found['offset'] or '').upper()}"
    try:
        at = datetime.fromisoformat(f"{day}T{time}")
    except ValueError as error:
        raise UsageError(f"bad time {quote(text)}: {error}") from None
    if not YEARS[0] < at.year < YEARS[1]:
        raise UsageError(f"bad time {quote(text)}: it is not between the years {YEARS[0]} and {YEARS[1]}")
    return ParsedTime(at, has_day=found["day"] is not None, has_seconds=found["seconds"] is not None)
