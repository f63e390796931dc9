"""For all tests: default signals, no Hypothesis deadline, and an order that keeps all processes busy."""

import gc
import os
import signal
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import settings

# A shell ignores SIGINT for background processes, and all processes of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, so that a run is green or red for a reason in the tree.  To look for others:
# pytest --hypothesis-profile=search tests/rules
settings.register_profile("detent", deadline=None, derandomize=True, max_examples=30, database=None)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("detent")

TESTS = Path(__file__).parent
PATIENT = (
    "app",
    "chaos",
    "dashboard",
    "docs",
    "e2e",
    "hosts",
    "receive",
    "sim",
    "stores",
    "trigger",
    "worker",
    "test_bench.py",
    "test_model.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """All that is imported and collected lives until the end: the garbage collector need not look at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each process some of the slow files first, and the same number of tests: then the tests at the
    end, which processes take from each other, are quick."""
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
