"""For all tests: signals as a person's terminal has them, no test that is judged by its speed, and an order
in which nobody waits for the last one."""

import os
import signal
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import settings

# A shell that starts the tests in the background has SIGINT ignored, and so would every process of theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("detent", deadline=None)
settings.load_profile("detent")

TESTS = Path(__file__).parent
PATIENT = (
    "app",
    "chaos",
    "docs",
    "e2e",
    "stores",
    "trigger",
    "worker",
    "test_bench.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of several processes, each begins with some of the files whose tests wait for real clocks, and has as
    many tests as the others, in a row: what is left for the end, and goes from one to another, is quick."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if count == 1:
        return
    by_file = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    patient = [tests for tests in by_file if _is_patient(tests[0])]
    quick = [item for tests in by_file if not _is_patient(tests[0]) for item in tests]
    left, items[:] = len(items), []
    for number in range(count):
        mine = [item for tests in patient[number::count] for item in tests]
        room = max(0, left // (count - number) - len(mine))
        mine, quick = mine + quick[:room], quick[room:]
        items += mine
        left -= len(mine)
    items += quick


def _is_patient(item: pytest.Item) -> bool:
    return item.path.relative_to(TESTS).parts[0] in PATIENT
