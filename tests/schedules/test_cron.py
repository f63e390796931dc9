"""The grammar of cron expressions: what each form matches, and the messages for mistakes."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import UsageError
from detent.schedules.cron import SHORTCUTS, parse_cron
from detent.schedules.cronfields import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    Grammar,
    Range,
    parse_field,
)
from detent.schedules.timetable import parse_schedule, patterns_of

V1, V2 = Grammar(version=1), Grammar(version=2, seed="shop.report")


def values(mask: int) -> list[int]:
    return [value for value in range(60) if mask >> value & 1]


@pytest.mark.parametrize(
    ("text", "within", "expected"),
    [
        ("*", HOUR, list(range(24))),
        ("5", MINUTE, [5]),
        ("05", MINUTE, [5]),
        ("1,3,2", HOUR, [1, 2, 3]),
        ("1-4", HOUR, [1, 2, 3, 4]),
        ("7-7", HOUR, [7]),
        ("7-7/2", HOUR, [7]),
        ("1-9/4", HOUR, [1, 5, 9]),
        ("*/20", MINUTE, [0, 20, 40]),
        ("*/90", MINUTE, [0]),
        ("5/20", MINUTE, [5, 25, 45]),
        ("20/4", HOUR, [20]),
        ("*/10,3", DAY_OF_MONTH, [1, 3, 11, 21, 31]),
        ("?", DAY_OF_MONTH, list(range(1, 32))),
        ("?", DAY_OF_WEEK, list(range(7))),
        ("JAN,mar-May", MONTH, [1, 3, 4, 5]),
        ("Dec", MONTH, [12]),
        ("SUN", DAY_OF_WEEK, [0]),
        ("mon-fri", DAY_OF_WEEK, [1, 2, 3, 4, 5]),
        ("MON-SAT/2", DAY_OF_WEEK, [1, 3, 5]),
        ("1/3", DAY_OF_WEEK, [1, 4]),
        ("*/2", DAY_OF_WEEK, [0, 2, 4, 6]),
    ],
)
def test_a_field_matches_these_values_in_both_versions(text: str, within: Range, expected: list[int]) -> None:
    assert values(parse_field(text, within, V1).mask) == expected
    assert values(parse_field(text, within, V2).mask) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("7", [0]), ("5-7", [0, 5, 6]), ("0-7", [0, 1, 2, 3, 4, 5, 6])]
)
def test_seven_is_sunday_in_version_2(text: str, expected: list[int]) -> None:
    assert values(parse_field(text, DAY_OF_WEEK, V2).mask) == expected
    with pytest.raises(UsageError, match="day of week 7 is not in 0–6; Sunday is 0"):
        parse_field(text, DAY_OF_WEEK, V1)


COUNT_V1 = "version 1 takes 5 (minute, hour, day of month, month, day of week)"
COUNT_V2 = "write 5 (minute, hour, day of month, month, day of week), or 6 with the second first"
OF_MONTH = "a number in 1–31, L, LW or 15W"
OF_WEEK = "a number in 0–6, a name SUN–SAT, 5#2 or 5L"
SHORT = "@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually and @every"
EVERY_V1 = "write @every and a duration such as 90s, 5m or 2h, with one unit; the units are h, m and s"
EVERY_V2 = "write @every and a duration such as 1h30m, 90s or 2h; the units are h, m and s"
NO_DAY = "it never fires: none of its months has a day"
NO_YEAR = "it never fires: no year has a day that matches all day fields"


@pytest.mark.parametrize(
    ("version", "text", "message"),
    [
        (1, "61 * * * *", "minute 61 is not in 0–59"),
        (1, "* 24 * * *", "hour 24 is not in 0–23"),
        (1, "* * 0 * *", "day of month 0 is not in 1–31"),
        (1, "* * 32 * *", "day of month 32 is not in 1–31"),
        (1, "* * * 13 *", "month 13 is not in 1–12"),
        (1, "* * * 0 *", "month 0 is not in 1–12"),
        (1, "* * * * 7", "day of week 7 is not in 0–6; Sunday is 0"),
        (2, "* * * * 8", "day of week 8 is not in 0–7"),
        (2, "60 * * * * *", "second 60 is not in 0–59"),
        (1, "", f"it has 0 fields; {COUNT_V1}"),
        (1, "*", f"it has 1 field; {COUNT_V1}"),
        (1, "0 * * * * *", f"it has 6 fields; {COUNT_V1}"),
        (2, "* * * *", f"it has 4 fields; {COUNT_V2}"),
        (2, "* * * * * * *", f"it has 7 fields; {COUNT_V2}"),
        (1, "a * * * *", 'minute "A" is not a number in 0–59'),
        (1, "-5 * * * *", "minute has an empty item"),
        (1, "5- * * * *", "minute has an empty item"),
        (1, "1,,2 * * * *", "minute has an empty item"),
        (1, "1, * * * *", "minute has an empty item"),
        (1, "+5 * * * *", 'minute "+5" is not a number in 0–59'),
        (1, "5.5 * * * *", 'minute "5.5" is not a number in 0–59'),
        (1, "٥ * * * *", 'minute "٥" is not a number in 0–59'),
        (1, "** * * * *", 'minute "**" is not a number in 0–59'),
        (1, "*-5 * * * *", 'minute "*" is not a number in 0–59'),
        (1, "1-2-3 * * * *", 'minute "2-3" is not a number in 0–59'),
        (1, "*/0 * * * *", 'minute step "0" is not a number of 1 or more'),
        (1, "*/ * * * *", 'minute step "" is not a number of 1 or more'),
        (1, "*/a * * * *", 'minute step "A" is not a number of 1 or more'),
        (1, "*/2/3 * * * *", 'minute step "2/3" is not a number of 1 or more'),
        (1, "? * * * *", "? means * in the two day fields only, not in the minute"),
        (1, "* * ?/2 * *", "? means * in the two day fields only, not in the day of month"),
        (1, "* * * MONDAY *", 'month "MONDAY" is not a number in 1–12 or a name JAN–DEC'),
        (1, "* * * * MONDAY", 'day of week "MONDAY" is not a number in 0–6 or a name SUN–SAT'),
        (1, "30-10 * * * *", "minute range 30-10 runs backwards; write 30-59,0-10"),
        (1, "0 0 * * FRI-MON", "day of week range FRI-MON runs backwards; write FRI-SAT,SUN-MON"),
        (2, "0 0 * NOV-FEB *", "month range NOV-FEB runs backwards; write NOV-DEC,JAN-FEB"),
        (1, "0 0 L * *", 'day of month "L" needs a manifest of version 2'),
        (1, "0 0 15W * *", 'day of month "15W" needs a manifest of version 2'),
        (1, "0 0 * * 5#2", 'day of week "5#2" needs a manifest of version 2'),
        (1, "0 0 * * 5L", 'day of week "5L" needs a manifest of version 2'),
        (1, "H * * * *", 'minute "H" needs a manifest of version 2'),
        (2, "0 0 L-3 * *", f'day of month "L" is not {OF_MONTH}'),
        (2, "0 0 W * *", "day of month has an empty item"),
        (2, "0 0 32W * *", "day of month 32 is not in 1–31"),
        (2, "0 0 * * L", f'day of week "L" is not {OF_WEEK}'),
        (2, "0 0 * * 5#6", 'day of week "5#6": the number after # is not in 1–5'),
        (2, "0 0 * * 5#", 'day of week "5#": the number after # is not in 1–5'),
        (2, "L * * * *", 'minute "L" is not a number in 0–59'),
        (2, "H(3) * * * *", 'minute "H(3)" is not H, H/n, H(a-b) or H(a-b)/n'),
        (2, "HH * * * *", 'minute "HH" is not H, H/n, H(a-b) or H(a-b)/n'),
        (2, "H(0-99) * * * *", "minute 99 is not in 0–59"),
        (1, "0 0 30 2 *", f"{NO_DAY} 30"),
        (1, "0 0 30,31 2 *", f"{NO_DAY} 30 or 31"),
        (1, "0 0 31 2,4,6,9,11 ?", f"{NO_DAY} 31"),
        (1, "0 0 30 2 */2", f"{NO_DAY} 30"),
        (2, "0 0 31W 4 *", NO_YEAR),
        (2, "0 0 */29 2 1#2", NO_YEAR),
        (1, "@dayly", f"@dayly is not one of {SHORT}"),
        (1, "@reboot", f"@reboot is not one of {SHORT}"),
        (1, "@", f"@ is not one of {SHORT}"),
        (1, "@every", EVERY_V1),
        (1, "@every 90", EVERY_V1),
        (1, "@every 1h30m", EVERY_V1),
        (1, "@every 1.5h", EVERY_V1),
        (1, "@every 5 m", EVERY_V1),
        (1, "@every -5m", EVERY_V1),
        (1, "@every 59s", "59 s is too often; at least 60 s"),
        (2, "@every 0s", "0 s is too often; at least 1 s"),
        (2, "@every 1d", EVERY_V2),
        (2, "@every 30m1h", EVERY_V2),
        (2, "@every 1h1h", EVERY_V2),
        (2, "@every 99999999999s", EVERY_V2),
        (2, "@every 9999999999h", "it never fires: the first instant is after the year 9999"),
    ],
)  # fmt: skip
def test_a_bad_expression_is_refused_with_what_is_allowed(version: int, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_schedule(text, version=version)
    assert str(refused.value) == f'bad schedule "{text}": {message}'


def test_a_very_long_expression_is_refused_and_shortened_in_the_message() -> None:
    with pytest.raises(UsageError) as refused:
        parse_schedule("1," * 100_000 + "1 * * * *")
    assert "it has 200009 characters; at most 1000 are allowed" in str(refused.value)
    assert len(str(refused.value)) < 200


@given(st.text(alphabet="0123456789*/,-?LWH#@()SUNMOevrysmh \t", max_size=24), st.sampled_from([1, 2]))
def test_any_text_is_a_schedule_or_a_usage_error(text: str, version: int) -> None:
    try:
        schedule = parse_schedule(text, version=version)
    except UsageError as error:
        assert str(error).startswith("bad schedule ")
    else:
        assert schedule.after(datetime(2026, 1, 1, tzinfo=UTC)) is not None


# Special days, beside a calendar that is walked day by day.


def month_days(year: int, month: int) -> list[date]:
    day, days = date(year, month, 1), []
    while day.month == month:
        days.append(day)
        day += timedelta(days=1)
    return days


def nearest_working_day(days: list[date], number: int) -> list[date]:
    working = [day for day in days if day.isoweekday() < 6]
    if number > len(days):
        return []
    return [min(working, key=lambda day: abs(day.day - number))]


@given(
    st.integers(1971, 2400),
    st.integers(1, 12),
    st.one_of(
        st.sampled_from(["L", "LW"]),
        st.integers(1, 31).map(lambda day: f"{day}W"),
        st.tuples(st.integers(0, 7), st.integers(1, 5)).map(lambda pair: f"{pair[0]}#{pair[1]}"),
        st.integers(0, 7).map(lambda weekday: f"{weekday}L"),
    ),
)
def test_special_days_match_a_walk_through_the_month(year: int, month: int, special: str) -> None:
    days = month_days(year, month)
    working = [day for day in days if day.isoweekday() < 6]
    if special[-1] == "W":
        fields = f"{special} * *"
        expected = working[-1:] if special == "LW" else nearest_working_day(days, int(special[:-1]))
    elif special == "L":
        fields, expected = "L * *", days[-1:]
    else:
        fields = f"* * {special}"
        same = [day for day in days if day.isoweekday() % 7 == int(special[0]) % 7]
        nth = int(special[2:]) if "#" in special else 0
        expected = same[nth - 1 : nth] if nth else same[-1:]
    schedule = parse_schedule(f"0 0 {fields}")
    since = datetime(year, month, 1, tzinfo=UTC) - timedelta(seconds=1)
    until = datetime(year, month, days[-1].day, 23, tzinfo=UTC)
    assert [at.date() for at in schedule.between(since, until)] == expected


@pytest.mark.parametrize(
    ("special", "month", "expected"),
    [
        ("1W", "2026-08", 3),  # a Saturday: not back into July
        ("1W", "2026-02", 2),  # a Sunday
        ("15W", "2026-08", 14),  # a Saturday
        ("16W", "2026-08", 17),  # a Sunday
        ("31W", "2026-05", 29),  # a Sunday: not on into June
        ("30W", "2026-08", 31),  # a Sunday, and the month has one more day
        ("31W", "2026-01", 30),  # a Saturday
        ("31W", "2026-07", 31),  # a Friday
        ("LW", "2026-05", 29),
        ("LW", "2026-07", 31),
    ],
)
def test_the_nearest_weekday_stays_in_its_month(special: str, month: str, expected: int) -> None:
    found = parse_schedule(f"0 0 {special} * *").after(
        datetime.fromisoformat(f"{month}-01T00:00Z") - timedelta(1)
    )
    assert found is not None
    assert f"{found:%Y-%m-%d}" == f"{month}-{expected:02}"


def test_a_leap_day_on_a_given_weekday_is_found_over_the_missing_leap_year_of_2100() -> None:
    schedule = parse_schedule("0 0 29 2 */7")  # a star in each: both must match, so a Sunday
    assert schedule.after(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2032, 2, 29, tzinfo=UTC)
    assert schedule.after(datetime(2088, 3, 1, tzinfo=UTC)) == datetime(2128, 2, 29, tzinfo=UTC)
    assert schedule.before(datetime(2128, 2, 29, tzinfo=UTC)) == datetime(2088, 2, 29, tzinfo=UTC)


def test_two_restricted_day_fields_match_either_and_an_open_one_needs_both() -> None:
    since, until = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 2, 28, tzinfo=UTC)
    either = parse_schedule("0 0 13 * FRI").between(since, until)
    assert [at.day for at in either] == [6, 13, 20, 27]
    both = parse_schedule("0 0 */2 * FRI").between(since, until)
    assert [at.day for at in both] == [13, 27]
    both_open = parse_schedule("0 0 ? * FRI").between(since, until)
    assert [at.day for at in both_open] == [6, 13, 20, 27]


@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_a_shortcut_equals_its_expression(shortcut: str) -> None:
    at = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)
    expected = {
        "@hourly": datetime(2026, 5, 6, 8, tzinfo=UTC),
        "@daily": datetime(2026, 5, 7, tzinfo=UTC),
        "@midnight": datetime(2026, 5, 7, tzinfo=UTC),
        "@weekly": datetime(2026, 5, 10, tzinfo=UTC),
        "@monthly": datetime(2026, 6, 1, tzinfo=UTC),
        "@yearly": datetime(2027, 1, 1, tzinfo=UTC),
        "@annually": datetime(2027, 1, 1, tzinfo=UTC),
    }
    assert parse_schedule(shortcut, version=1).after(at) == expected[shortcut]
    assert parse_schedule(f" {shortcut.upper()} ").after(at) == expected[shortcut]


# H.


def hashed(text: str, within: Range, seed: str) -> list[int]:
    return values(parse_field(text, within, Grammar(seed=seed)).mask)


def test_h_depends_only_on_the_name_and_never_changes() -> None:
    assert hashed("H", MINUTE, "shop.report") == hashed("h", MINUTE, "shop.report") == [32]
    assert hashed("H", HOUR, "shop.report") == [23]


@given(st.text(max_size=20))
def test_h_stays_within_its_range(seed: str) -> None:
    assert hashed("H", DAY_OF_MONTH, seed)[0] in range(1, 29)
    assert hashed("H(9-17)", HOUR, seed)[0] in range(9, 18)
    first, *rest = hashed("H/15", MINUTE, seed)
    assert first < 15 and rest == [first + 15, first + 30, first + 45]
    inside = hashed("H(10-29)/10", MINUTE, seed)
    assert len(inside) == 2 and 10 <= inside[0] < 20 and inside[1] == inside[0] + 10
    assert len(hashed("H/90", MINUTE, seed)) == 1


def test_h_spreads_jobs_over_the_hour() -> None:
    assert len({hashed("H", MINUTE, f"app.job-{i}")[0] for i in range(1_000)}) == 60
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert len({parse_schedule("H * * * *", seed=f"app.job-{i}").after(at) for i in range(1_000)}) == 60


# For checks.


def test_the_masks_of_a_schedule_can_be_read() -> None:
    (pattern,) = patterns_of(parse_schedule("0 2 */2 * MON"))
    assert pattern.fields.hour.mask == 1 << 2
    assert pattern.fields.day_of_month.is_open and not pattern.fields.day_of_week.is_open
    assert pattern is parse_cron("0 2 */2 * MON", Grammar())
