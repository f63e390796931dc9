"""Times and durations in words, and text that cannot upset a terminal."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.views.formatting import duration, iso, local_time, printable, relative

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (0.9, "now"),
        (-0.9, "now"),
        (1, "in 1 s"),
        (59.9, "in 59 s"),
        (180, "in 3 min"),
        (-7200, "2 h ago"),
        (86_400 * 46, "in 46 d"),
    ],
)
def test_an_instant_is_shown_with_its_distance(seconds: float, words: str) -> None:
    assert relative(NOW + timedelta(seconds=seconds), NOW) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0.012, "12 ms"),
        (3.44, "3.4 s"),
        (60, "1 min"),
        (310, "5 min 10 s"),
        (7_380, "2 h 3 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


def test_an_instant_for_programs_has_milliseconds_only_where_there_are_any() -> None:
    assert iso(NOW) == "2026-03-01T12:00:00Z"
    assert iso(NOW + timedelta(microseconds=7_999)) == "2026-03-01T12:00:00.007Z"
    assert iso(None) is None


def test_today_needs_no_date() -> None:
    assert local_time(NOW + timedelta(hours=1), NOW, UTC) == "13:00:00 (in 1 h)"
    assert local_time(NOW + timedelta(days=1), NOW, UTC) == "2026-03-02 12:00:00 (in 1 d)"


@given(st.text())
def test_text_of_a_job_stays_on_one_line_without_terminal_escapes(text: str) -> None:
    assert printable(text).isprintable()


@given(st.text(st.characters(categories=["L", "N", "P"])))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
