"""`make calendar`: schedules around every change of offset of every zone, 2000–2037, minute by minute.

First each zone's windows are compared with its changes, found by asking zoneinfo twice a day; then, for
each distinct change (instant, offset before, offset after), random expressions under all four rules with
an oracle that tries every minute.  Any difference is printed, and the exit code is 1.
"""

import argparse
import multiprocessing
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.schedules.oracles import Naive, expression_near, try_every_minute, wall

from detent.schedules.timetable import parse_schedule
from detent.schedules.zones import NOT_PLACES, open_zone

SINCE, UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)
HALF_A_DAY_S = 43_200
NEAR = timedelta(hours=27)
RULES = ("vixie", "skip", "twice", "utc")


class Change(NamedTuple):
    """What is distinct about a change of offset; the zone is the first that has it."""

    at: int
    before_s: int
    after_s: int


class Finding(NamedTuple):
    """What one piece of the campaign compared, and what was different."""

    compared: int
    differences: list[str]


def changes_of(name: str) -> list[Change]:
    """The changes of a zone, by asking zoneinfo only."""
    place = ZoneInfo(name)

    def offset(instant: int) -> int:
        return int((datetime.fromtimestamp(instant, place).utcoffset() or timedelta(0)).total_seconds())

    found, before_s = [], offset(int(SINCE.timestamp()))
    for low in range(int(SINCE.timestamp()), int(UNTIL.timestamp()), HALF_A_DAY_S):
        high = low + HALF_A_DAY_S
        if (after_s := offset(high)) != before_s:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == before_s else (low, middle)
            found.append(Change(high, before_s, after_s))
            before_s = after_s
    return found


def changes_of_windows(name: str) -> list[Change]:
    """The changes of a zone, by its windows."""
    zone, at, found = open_zone(name), int(SINCE.timestamp()), []
    while at < UNTIL.timestamp():
        window = zone.window(at)
        following = zone.window(window.until)
        if following.offset != window.offset and window.until < UNTIL.timestamp():
            found.append(Change(window.until, window.offset, following.offset))
        at = window.until
    return found


def survey(name: str) -> tuple[str, list[Change], bool]:
    changes = changes_of(name)
    return name, changes, changes == changes_of_windows(name)


def examine(task: tuple[Change, str, int]) -> Finding:
    """Random expressions near one change, under every rule, forwards and backwards."""
    change, zone, expressions = task
    at = datetime.fromtimestamp(change.at, UTC)
    since, until = at - NEAR, at + NEAR
    minutes = wall(zone, since, until)
    shown = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    rng = random.Random(f"{change}")
    compared, differences = 0, []
    for rule in RULES:
        for expression in [expression_near(rng, shown) for _ in range(expressions)]:
            compared += 1
            expected = [at for at in try_every_minute(Naive(expression), rule, minutes) if at > since]
            if found := difference(expression, zone, rule, expected, (since, until)):
                differences.append(found)
    return Finding(compared, differences)


def difference(
    expression: str, zone: str, rule: str, expected: list[datetime], span: tuple[datetime, datetime]
) -> str:
    schedule = parse_schedule(expression, timezone=zone, dst=rule)
    forwards = list(schedule.between(*span))
    backwards, at = [], schedule.before(span[1] + timedelta(seconds=1))
    while at is not None and at > span[0]:
        backwards.append(at)
        at = schedule.before(at)
    if forwards == expected == backwards[::-1]:
        return ""
    odd = sorted(set(forwards) ^ set(expected) | set(backwards) ^ set(expected))
    where = ", ".join(f"{at:%Y-%m-%dT%H:%MZ}" for at in odd[:5])
    return f"{expression!r} in {zone}, {rule}: differs at {where}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expressions", type=int, default=4, help="for each change and rule")
    parser.add_argument("--every", type=int, default=1, help="examine only every n-th change")
    options = parser.parse_args()
    names = sorted(name for name in available_timezones() if not name.startswith(NOT_PLACES))
    differences: list[str] = []
    compared, distinct = 0, dict[Change, str]()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for name, changes, agrees in pool.imap(survey, names, chunksize=8):
            distinct.update({change: name for change in changes if change not in distinct})
            if not agrees:
                differences.append(f"{name}: its windows are not its changes")
        chosen = sorted(distinct.items())[:: options.every]
        tasks = [(change, zone, options.expressions) for change, zone in chosen]
        for finding in pool.imap_unordered(examine, tasks, chunksize=16):
            compared += finding.compared
            differences.extend(finding.differences)
    for text in differences:
        print(text)
    print(
        f"{len(names)} zones, {len(chosen)} of {len(distinct)} distinct changes of 2000–2037, "
        f"{compared} schedules compared minute by minute: {len(differences)} differences"
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
