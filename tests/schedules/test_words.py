"""Schedules in words."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schedules.oracles import random_expression

from detent.errors import UsageError
from detent.schedules.timetable import Merged, Timetable, combine, once, parse_schedule
from detent.schedules.words import words_of

WORDS = {
    "* * * * *": "every minute",
    "*/5 * * * *": "every 5 minutes",
    "*/7 * * * *": "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour",
    "1-59/2 * * * *": "at minutes 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and … of every hour",
    "0-30 * * * *": "at minutes 0 to 30 of every hour",
    "0 * * * *": "every hour",
    "15 * * * *": "at minute 15 of every hour",
    "0 */2 * * *": "every 2 hours",
    "5 */6 * * *": "at 00:05, 06:05, 12:05 and 18:05 every day",
    "0 1,3,5,6,7,8,9 * * *": "at minute 0 of hours 1, 3, 5, 6, 7, 8 and 9",
    "30 9-17 * * *": "every hour from 09:30 to 17:30",
    "*/5 9-17 * * MON-FRI": "every 5 minutes from 09:00 to 17:59 on Monday to Friday",
    "*/20 1,3,9 * * *": "every 20 minutes of hours 1, 3 and 9",
    "0 2 * * *": "at 02:00 every day",
    "0 2,14 * * 6,0": "at 02:00 and 14:00 on Sunday and Saturday",
    "0 2 1,15 * *": "at 02:00 on days 1 and 15 of the month",
    "0 2 1-7 3-6 *": "at 02:00 on days 1 to 7 of the month from March to June",
    "0 2 L 1,7 *": "at 02:00 on the last day of the month in January and July",
    "0 2 5,LW * *": "at 02:00 on day 5 and the last weekday (Monday to Friday) of the month",
    "0 2 15W * *": "at 02:00 on the weekday nearest to day 15 of the month",
    "0 2 * * 5#2": "at 02:00 on the 2nd Friday of the month",
    "0 2 * * MON,5L": "at 02:00 on Monday and the last Friday of the month",
    "0 2 1 * MON": "at 02:00 on day 1 of the month or on Monday",
    "0 2 */16 * MON": "at 02:00 on days 1 and 17 of the month that fall on Monday",
    "0 2 1-31 * MON": "at 02:00 every day",  # either of two restricted days
    "@weekly": "at 00:00 on Sunday",
    "* * * * * *": "every second",
    "*/10 * * * * *": "every 10 seconds",
    "5/15 * * * * *": "at seconds 5, 20, 35 and 50 of every minute",
    "*/10 5 * * * *": "every 10 seconds of minute 5 of every hour",
    "5,10 * 9-17 * * *": "at seconds 5 and 10 of every minute from 09:00 to 17:59",
    "30 0 9 * * *": "at 09:00:30 every day",
}


@pytest.mark.parametrize("expression", WORDS)
def test_a_cron_expression_in_words(expression: str) -> None:
    assert words_of(parse_schedule(expression)) == f"{WORDS[expression]} (UTC)"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("@every 2s", "every 2 seconds"),
        ("@every 60s", "every minute"),
        ("@every 1h30m", "every 1 hour and 30 minutes"),
        ("@reboot", "after each boot of the host"),
    ],
)
def test_a_schedule_without_a_wall_clock_has_no_time_zone(expression: str, words: str) -> None:
    assert words_of(parse_schedule(expression, timezone="Europe/Berlin")) == words


def test_h_is_shown_as_its_value() -> None:
    assert words_of(parse_schedule("H 2 * * *", seed="shop.backup")) == "at 02:28 every day (UTC)"


def test_all_parts_of_a_schedule_have_their_zone_and_their_bounds() -> None:
    texts = ("0 2 * * *", "@hourly", "@every 90s")
    parts = [parse_schedule(text, timezone="Europe/Berlin") for text in texts]
    whole = combine(parts, starts_at="2026-01-01T00:00:00Z", ends_at="2027-01-01T00:00:00Z")
    assert words_of(whole) == (
        "at 02:00 every day; every hour; every 1 minute and 30 seconds (Europe/Berlin),"
        " from 2026-01-01T00:00:00Z on, until 2027-01-01T00:00:00Z"
    )
    assert words_of(once("2026-12-24T18:00:00+01:00")) == "once, at 2026-12-24T17:00:00Z"
    assert words_of(Timetable(Merged(()))) == ""


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_every_expression_has_words(rng: random.Random) -> None:
    try:
        schedule = parse_schedule(random_expression(rng))
    except UsageError:
        return  # it never fires
    words = words_of(schedule)
    assert words.endswith(" (UTC)") and "  " not in words
