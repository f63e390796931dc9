"""`make chaos-faults`: plants each bug of `planted.py` in turn, and checks that the judge finds it.

Prints a table, and exits with 1 if a bug was not found.  `trouble`, an error that a node itself reports,
does not count.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.planted import PLANTED
from tests.chaos.run import Setup, run

SECONDS, TRIES = 25.0, 4  # of faults per run; runs, each with another seed


def find(name: str) -> tuple[Counter[str], float]:
    """Return the violations that the judge found, and how long it took."""
    planted, began = PLANTED[name], time.monotonic()
    for seed in range(1, TRIES + 1):
        folder = Path(tempfile.mkdtemp(prefix="detent-planted-"))
        setup = Setup(
            "redis", SECONDS, seed, 0.7, ("-m", "tests.chaos.planted", name), planted.under, settle_s=40.0
        )
        try:
            _, violations = run(folder, setup)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        found = Counter(one.kind for one in violations if one.kind != "trouble")
        if found:
            return found, time.monotonic() - began
    return Counter(), time.monotonic() - began


def main(names: Sequence[str]) -> int:
    missed = 0
    for name in names or PLANTED:
        found, took_s = find(name)
        missed += not found
        kinds = ", ".join(f"{kind} {number}" for kind, number in found.most_common()) or "NOT FOUND"
        print(f"{name:24}{took_s:5.0f} s   {kinds:40}{PLANTED[name].meaning}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
