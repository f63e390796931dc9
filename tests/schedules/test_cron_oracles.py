"""Random expressions and instants in UTC, compared with cronsim and croniter."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from croniter import croniter
from cronsim import CronSim, CronSimError
from tests.schedules.oracles import BOUNDS, random_expression, values

from detent.errors import UsageError
from detent.schedules.timetable import parse_schedule

SINCE = datetime(1990, 1, 1, tzinfo=UTC)
SPAN_S = 60 * 365 * 86_400
EXPRESSIONS = 1_100  # a batch; four batches, two instants each, two oracles and two directions
SPECIALS = ("L", "LW", "5L", "0L", "1#1", "5#5", "3#2", "7", "MON-FRI", "sun,wed", "jan-mar/2", "?")


def instants(rng: random.Random) -> Iterator[datetime]:
    for _ in range(2):
        at = SINCE + timedelta(seconds=rng.randrange(SPAN_S))
        yield rng.choice((at, at.replace(second=0), at.replace(hour=23, minute=59, second=59)))


def by_cronsim(expression: str, at: datetime, reverse: bool) -> datetime | None:
    try:
        return next(CronSim(expression, at, reverse=reverse), None)
    except CronSimError:
        return None


def by_croniter(expression: str, at: datetime, reverse: bool) -> datetime:
    # By default croniter takes `*/2` for a restricted day field, and either day may match; the contract
    # follows Vixie, and so does croniter with this switch.
    walk = croniter(expression, at, implement_cron_bug=True, second_at_beginning=True)
    return walk.get_prev(datetime) if reverse else walk.get_next(datetime)


def croniter_agrees_on_days(expression: str) -> bool:
    """croniter treats `0-6` as `*`; detent and cronsim follow Vixie: only a star opens a field."""
    words = expression.split()[-3:]
    return not any(
        not words[i].startswith("*") and values(words[i], low, high) == set(range(low, high + 1))
        for i, (low, high) in ((0, BOUNDS[2]), (2, BOUNDS[4]))
    )


@pytest.mark.parametrize("seed", range(4))
def test_next_and_previous_agree_with_cronsim_and_croniter(seed: int) -> None:
    rng = random.Random(seed)
    compared = 0
    for _ in range(EXPRESSIONS):
        expression = random_expression(rng)
        try:
            schedule = parse_schedule(expression, version=1)
        except UsageError:
            assert by_cronsim(expression, SINCE, False) is None, expression
            continue
        for at in instants(rng):
            after, before = schedule.after(at), schedule.before(at)
            assert after == by_cronsim(expression, at, False), (expression, at)
            assert before == by_cronsim(expression, at, True), (expression, at)
            if not croniter_agrees_on_days(expression):
                pass
            elif compared % 2:
                assert after == by_croniter(expression, at, False), (expression, at)
            else:
                assert before == by_croniter(expression, at, True), (expression, at)
            compared += 1
    assert compared > 1.8 * EXPRESSIONS


def special_expression(rng: random.Random) -> str:
    special = rng.choice(SPECIALS)
    minute, hour, month = rng.randrange(60), rng.randrange(24), rng.choice(("*", "*", "2", "*/3", "DEC"))
    if special in ("L", "LW"):
        return f"{minute} {hour} {special} {month} *"
    if special.startswith("jan"):
        return f"{minute} {hour} {rng.randint(1, 28)} {special} *"
    if special == "?":
        return f"{minute} {hour} ? {month} {rng.randrange(7)}"
    return f"{minute} {hour} {rng.choice(('*', '13', '*/2'))} {month} {special}"


def test_special_days_agree_with_cronsim() -> None:
    rng = random.Random(7)
    for _ in range(1_500):
        expression = special_expression(rng)
        schedule = parse_schedule(expression)
        for at in instants(rng):
            theirs = expression.replace("?", "*").upper()  # cronsim does not know `?`
            assert schedule.after(at) == by_cronsim(theirs, at, False), (expression, at)
            assert schedule.before(at) == by_cronsim(theirs, at, True), (expression, at)


def test_seconds_agree_with_cronsim_and_croniter() -> None:
    rng = random.Random(8)
    for _ in range(300):
        second = rng.choice(("*/10", "0", "59", "5-20/3", "*", "1,30"))
        expression = f"{second} {random_expression(rng)}"
        try:
            schedule = parse_schedule(expression)
        except UsageError:
            continue
        for at in instants(rng):
            assert schedule.after(at) == by_cronsim(expression, at, False), (expression, at)
            assert schedule.before(at) == by_cronsim(expression, at, True), (expression, at)
            if croniter_agrees_on_days(expression):
                assert schedule.after(at) == by_croniter(expression, at, False), (expression, at)
