"""What may stand behind an option: numbers and instants, checked with the words of the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import datetime

COUNT_MAX = 10_000  # rows: more than anybody reads, less than hurts
YEARS = (1970, 9000)


def count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= number <= COUNT_MAX:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {COUNT_MAX}")
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
