"""The next instant of a schedule, beside cronsim and croniter: aware datetimes in and out.

Each walks the same instants from the same start, the three in turn in every round; peers walk with their
own iterator, parsed once, which is their best case.  CPU time, so that a busy machine favours nobody; the
median of the rounds counts, and ratios of one run.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from time import process_time
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from detent.core.schedules import parse_schedule

CASES = (  # expression, zone, instants a round
    ("*/5 * * * *", "UTC", 300),
    ("0 2 * * *", "UTC", 300),
    ("0 0 29 2 *", "UTC", 25),
    ("0 9 * * MON-FRI", "Europe/Berlin", 300),
    ("*/10 * * * * *", "UTC", 300),
)
START = datetime(2026, 2, 20, 11, 3, 27, tzinfo=UTC)
FLOORS = {"cronsim": 5, "croniter": 20}

Step = Callable[[], object]


def walk_ours(expression: str, zone: str) -> Step:
    schedule = parse_schedule(expression, timezone=zone)
    at = START

    def step() -> datetime:
        nonlocal at
        found = schedule.after(at)
        assert found is not None
        at = found
        return at

    return step


def walk_cronsim(expression: str, zone: str) -> Step:
    instants = CronSim(expression, START.astimezone(ZoneInfo(zone) if zone != "UTC" else UTC))
    return lambda: next(instants)


def walk_croniter(expression: str, zone: str) -> Step:
    start = START.astimezone(ZoneInfo(zone))
    instants = croniter(expression, start, second_at_beginning=True)
    return lambda: instants.get_next(datetime)


WALKS = {"detent": walk_ours, "cronsim": walk_cronsim, "croniter": walk_croniter}


def measure(walk: Callable[[str, str], Step], case: tuple[str, str, int]) -> float:
    """Microseconds for one instant."""
    expression, zone, count = case
    step = walk(expression, zone)
    step()
    started = process_time()
    for _ in range(count):
        step()
    return (process_time() - started) / count * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print(f"{'expression':18} {'detent':>9} {'cronsim':>10} {'croniter':>10}   ratios (floors 5 and 20)")
    missed = 0
    for case in CASES:
        took: dict[str, list[float]] = {name: [] for name in WALKS}
        for _ in range(rounds):
            for name, walk in WALKS.items():
                took[name].append(measure(walk, case))
        median = {name: statistics.median(times) for name, times in took.items()}
        ratios = {name: median[name] / median["detent"] for name in FLOORS}
        missed += sum(ratios[name] < floor for name, floor in FLOORS.items())
        figures = f"{median['detent']:6.2f} µs {median['cronsim']:7.1f} µs {median['croniter']:7.1f} µs"
        print(f"{case[0]:18} {figures}   {ratios['cronsim']:6.1f} ×  {ratios['croniter']:6.1f} ×")
    print("every floor is met" if not missed else f"{missed} floors are missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
