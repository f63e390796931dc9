"""What may stand behind an option: numbers, instants and durations, checked with the command line's words."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import datetime

COUNT_MAX = 10_000  # rows: more than anybody reads, less than hurts
KEEP_MAX = 1_000_000  # fires of a job, as in a manifest
YEARS = (1970, 9000)
DURATION_MAX_S = 36_500 * 86_400  # a hundred years
_DURATION = re.compile("(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
_UNITS_S = (86_400, 3_600, 60, 1)


def count(text: str) -> int:
    return _whole(text, COUNT_MAX)


def keep(text: str) -> int:
    return _whole(text, KEEP_MAX)


def _whole(text: str, most: int) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= number <= most:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
    return number


def instant(text: str) -> datetime:
    from detent.core.schedules import parse_instant
    from detent.errors import UsageError

    try:
        found = parse_instant(text, "time")
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from None
    if not YEARS[0] <= found.year <= YEARS[1]:
        raise ArgumentTypeError(f"{text!r} is not between the years {YEARS[0]} and {YEARS[1]}")
    return found


def seconds(text: str) -> int:
    """Of `2h`, `90m`, `1h30m` or `30d`."""
    match = _DURATION.fullmatch(text)
    amounts = match.groups(default="0") if match else ()
    total = sum(int(amount) * unit for amount, unit in zip(amounts, _UNITS_S, strict=False))
    if not 1 <= total <= DURATION_MAX_S:
        raise ArgumentTypeError(f"{text!r} is not a duration such as 2h, 90m, 1h30m or 30d")
    return total
