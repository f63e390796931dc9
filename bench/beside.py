"""Benchmarks of this tree beside those of another: `python bench/beside.py OTHER [NAME …] [--rounds N]`.

OTHER is a worktree with a `.venv`.  The trees take turns; each figure is the median of its rounds, and the
last column is this tree's figure divided by the other's.  Figures that only one tree has are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from math import isfinite
from pathlib import Path

from report import Cell, Result, Table, median, text_of

HERE = Path(__file__).resolve().parent.parent
Figures = dict[tuple[str, str], list[float]]


def run(tree: Path, name: str, more: list[str]) -> Figures:
    """Run one benchmark of a tree; the figures by the number of the table and the row, and by heading."""
    python = str(tree / ".venv/bin/python")
    done = subprocess.run([python, "bench/all.py", name, "-o", "json", *more], cwd=tree, capture_output=True)
    if not done.stdout:
        sys.exit(f"{tree}: bench/all.py {name} failed: {done.stderr.decode()[-500:]}")
    found: Figures = defaultdict(list)
    for number, table in enumerate(json.loads(done.stdout)["tables"], 1):
        for row in table["rows"]:
            names = [f"{number}", *(cell for cell in row.values() if isinstance(cell, str))]
            for heading, cell in row.items():
                if isinstance(cell, int | float) and isfinite(cell):
                    found[", ".join(names), heading].append(cell)
    return found


def compare(name: str, other: Path, rounds: int, more: list[str]) -> Table:
    ours: Figures = defaultdict(list)
    theirs: Figures = defaultdict(list)
    for _ in range(rounds):
        for tree, figures in ((other, theirs), (HERE, ours)):
            for key, values in run(tree, name, more).items():
                figures[key] += values
    rows: list[tuple[Cell, ...]] = []
    for key in theirs:
        if key in ours:
            before, now = median(theirs[key]), median(ours[key])
            rows.append((*key, before, now, now / before if before else None))
    return Table(name, ("row", "figure", "other", "this", "this ÷ other"), tuple(rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    given, more = parser.parse_known_args()
    for name in given.names:
        print(text_of(Result((compare(name, given.other, given.rounds, more),))), "\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
