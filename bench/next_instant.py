"""The next instant of a schedule, beside cronsim, croniter, APScheduler and celery.

Input and output are aware datetimes.  Each program walks the same instants from the same start, in turn in
every round, with schedules parsed once; each uses its fastest way, such as its own iterator.  The measure is
CPU time, so that a busy machine does not matter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from time import process_time
from typing import NamedTuple
from zoneinfo import ZoneInfo

import peers
from report import Bench, Budget, Cell, Effort, Result, Table, main, median

from detent.schedules.timetable import parse_schedule

START = datetime(2026, 2, 20, 11, 3, 27, tzinfo=UTC)
FLOORS = {"cronsim": 5, "croniter": 20}
AIM_US = 1.5

Step = Callable[[], datetime]


class Case(NamedTuple):
    expression: str
    zone: str
    share: float = 1.0  # of the instants of a round: some are slow, or soon too far in the future


CASES = (
    Case("*/5 * * * *", "UTC"),
    Case("0 2 * * *", "UTC"),
    Case("0 0 29 2 *", "UTC", 1 / 12),
    Case("0 9 * * MON-FRI", "Europe/Berlin"),
    Case("*/10 * * * * *", "UTC"),
)


def zone_of(case: Case) -> tzinfo:
    return UTC if case.zone == "UTC" else ZoneInfo(case.zone)


# Walks: one step is one instant.


def walk_ours(case: Case) -> Step:
    schedule = parse_schedule(case.expression, timezone=case.zone)
    at = START

    def step() -> datetime:
        nonlocal at
        found = schedule.after(at)
        assert found is not None
        at = found
        return at

    return step


def walk_cronsim(case: Case) -> Step:
    from cronsim import CronSim

    instants = CronSim(case.expression, START.astimezone(zone_of(case)))
    return lambda: next(instants)


def walk_croniter(case: Case) -> Step:
    from croniter import croniter

    instants = croniter(case.expression, START.astimezone(zone_of(case)), second_at_beginning=True)
    return lambda: instants.get_next(datetime)


def walk_apscheduler(case: Case) -> Step:
    from apscheduler.triggers.cron import CronTrigger

    names = ("second", "minute", "hour", "day", "month", "day_of_week")
    fields = case.expression.lower().split()
    trigger = CronTrigger(
        **dict(zip(names[-len(fields) :], fields, strict=True)), timezone=zone_of(case), start_date=START
    )
    at = START

    def step() -> datetime:
        nonlocal at
        found: datetime = trigger.get_next_fire_time(at, at)
        at = found
        return at

    return step


def walk_celery(case: Case) -> Step | None:
    """celery returns the time until the instant, and has no seconds."""
    from celery import Celery
    from celery.schedules import crontab

    fields = case.expression.lower().split()
    if len(fields) > 5:
        return None
    app = Celery("bench", set_as_current=False)
    app.conf.timezone = case.zone
    names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    at = START
    schedule = crontab(**dict(zip(names, fields, strict=True)), app=app, nowfun=lambda: at)

    def step() -> datetime:
        nonlocal at
        left: timedelta = schedule.remaining_estimate(at)
        at += left
        return at

    return step


WALKS: dict[str, Callable[[Case], Step | None]] = {
    "detent": walk_ours,
    "cronsim": walk_cronsim,
    "croniter": walk_croniter,
    "apscheduler": walk_apscheduler,
    "celery": walk_celery,
}


# Measuring.


def measure(walk: Callable[[Case], Step | None], case: Case, count: int) -> float | None:
    """Return microseconds per instant, or None if the program has no such schedules."""
    step = walk(case)
    if step is None:
        return None
    step()
    started = process_time()
    for _ in range(count):
        step()
    return (process_time() - started) / count * 1e6


def differences(case: Case, names: list[str], count: int) -> list[str]:
    """Return the programs that find other instants than detent."""
    walked = {name: step for name in names if (step := WALKS[name](case))}
    found = {name: [step().astimezone(UTC) for _ in range(count)] for name, step in walked.items()}
    assert all(before < after for before, after in pairwise(found["detent"]))
    return [
        f"{name} names other instants than detent for {case.expression} {case.zone}"
        for name, instants in found.items()
        if instants != found["detent"]
    ]


def compare(effort: Effort) -> Result:
    names = [name for name in WALKS if name == "detent" or peers.is_there(name)]
    notes = [f"µs of CPU for one instant; medians of {effort.rounds} rounds"]
    notes += [peers.missing_note(name) for name in WALKS if name not in names]
    rows: list[tuple[Cell, ...]] = []
    budgets: list[Budget] = []
    for case in CASES:
        count = max(3, int(effort.n * case.share))
        notes += differences(case, names, count)
        figures = _medians(case, names, count, effort.rounds)
        rows.append((case.expression, case.zone, *(figures.get(name) for name in WALKS)))
        budgets += _budgets(case, figures)
    table = Table("The next instant of a schedule", ("schedule", "zone", *WALKS), tuple(rows), tuple(notes))
    return Result((table,), tuple(budgets))


def _medians(case: Case, names: list[str], count: int, rounds: int) -> dict[str, float]:
    took: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            if (found := measure(WALKS[name], case, count)) is not None:
                took[name].append(found)
    return {name: median(times) for name, times in took.items() if times}


def _budgets(case: Case, figures: dict[str, float]) -> list[Budget]:
    ours = figures["detent"]
    ratios = [
        Budget(f"{case.expression}: {name} ÷ detent", figures[name] / ours, "×", floor, more_is_better=True)
        for name, floor in FLOORS.items()
        if name in figures
    ]
    return [*ratios, Budget(f"{case.expression}: detent", ours, "µs", aim=AIM_US)]


BENCH = Bench(
    "next_instant", {"tiny": Effort(12, 1), "usual": Effort(300, 9), "full": Effort(300, 25)}, compare
)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
