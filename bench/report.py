"""The output of a benchmark: tables with the other programs, and how far each limit is reached.

A budget has a floor, which must be reached, and an aim.  Figures are medians of rounds in which every program
ran; only figures of one run on one machine are compared.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

Cell = str | float | None

MISSED = "floor missed"


class Table(NamedTuple):
    """A table; units are in its headings."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()  # how it was measured, and which programs are missing


class Budget(NamedTuple):
    """A limit for a figure."""

    what: str
    value: float
    unit: str
    floor: float | None = None
    aim: float | None = None
    more_is_better: bool = False


class Result(NamedTuple):
    """The result of a benchmark."""

    tables: tuple[Table, ...]
    budgets: tuple[Budget, ...] = ()


class Effort(NamedTuple):
    """The size of a benchmark: how many, how often, and for how long."""

    n: int
    rounds: int = 1
    seconds: float = 0.0
    on: tuple[str, ...] = ()  # only these servers, if the benchmark has several


class Bench(NamedTuple):
    """A benchmark: its sizes, and its function."""

    name: str
    efforts: Mapping[str, Effort]
    run: Callable[[Effort], Result]


# Figures.


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def judge(budget: Budget) -> str:
    """Say whether the limit is reached, or how far it is missed."""
    floor, aim = budget.floor, budget.aim
    if floor is not None and not _reaches(budget, floor):
        return f"{MISSED}, {_distance(budget, floor)}"
    if aim is None:
        return "reached"
    if not _reaches(budget, aim):
        return f"{'floor reached; ' if floor is not None else ''}aim {_distance(budget, aim)}"
    return "aim reached"


def _reaches(budget: Budget, limit: float) -> bool:
    return budget.value >= limit if budget.more_is_better else budget.value <= limit


def _distance(budget: Budget, limit: float) -> str:
    if not limit:
        return f"{budget.value:g} too many"
    return f"{limit / budget.value if budget.more_is_better else budget.value / limit:.2f} × away"


# Texts.


def text_of(result: Result) -> str:
    parts = [_table_text(table) for table in result.tables]
    if result.budgets:
        parts.append(_table_text(_budget_table(result.budgets)))
    return "\n\n".join(parts)


def _budget_table(budgets: Sequence[Budget]) -> Table:
    rows = tuple(
        (one.what, _now(one), _limit(one, one.floor), _limit(one, one.aim), judge(one)) for one in budgets
    )
    return Table("Budgets", ("budget", "now", "floor", "aim", ""), rows)


def _now(budget: Budget) -> str:
    return f"{_figure(budget.value)} {budget.unit}".rstrip()


def _limit(budget: Budget, limit: float | None) -> str:
    sign = "≥" if budget.more_is_better else "≤"
    return "–" if limit is None else f"{sign} {_figure(limit)}"


def _table_text(table: Table) -> str:
    cells = [table.headings, *(tuple(map(_figure, row)) for row in table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.headings))]
    right = [all(_is_number(row[i]) for row in table.rows) for i in range(len(table.headings))]
    lines = ["  ".join(_padded(*each) for each in zip(row, widths, right, strict=True)) for row in cells]
    rule = "  ".join("-" * width for width in widths)
    shown = [table.title, "", *(line.rstrip() for line in (lines[0], rule, *lines[1:]))]
    return "\n".join([*shown, *([""] if table.notes else []), *table.notes])


def _padded(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, str)


def _figure(cell: Cell) -> str:
    """Format a figure with three significant digits."""
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    if cell == int(cell) or abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.2f}" if abs(cell) < 10 else f"{cell:.1f}"


def json_of(name: str, result: Result) -> dict[str, object]:
    tables = [
        {
            "title": table.title,
            "rows": [dict(zip(table.headings, row, strict=True)) for row in table.rows],
            "notes": table.notes,
        }
        for table in result.tables
    ]
    budgets = [one._asdict() | {"judged": judge(one)} for one in result.budgets]
    return {"bench": name, "tables": tables, "budgets": budgets}


# The command line of every benchmark.


def arguments(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--full", dest="size", action="store_const", const="full", help="the whole size")
    parser.add_argument("--tiny", dest="size", action="store_const", const="tiny", help="only see it work")
    parser.add_argument("-o", dest="output", choices=("text", "json"), default="text")
    parser.add_argument("--on", action="append", default=[], help="only on this server (queues)")
    parser.set_defaults(size="usual")
    return parser


def main(bench: Bench, about: str) -> int:
    """Run one benchmark as a program."""
    parser = arguments(about)
    parser.add_argument("--n", type=int, help="how many (the usual size: %(default)s)")
    parser.add_argument("--rounds", type=int, help="how many rounds")
    given = parser.parse_args()
    effort = bench.efforts[given.size]
    rounds = given.rounds or effort.rounds
    effort = effort._replace(n=given.n or effort.n, rounds=rounds, on=tuple(given.on))
    return show([(bench, effort)], given.output)


def show(chosen: Sequence[tuple[Bench, Effort]], output: str) -> int:
    """Run these benchmarks, and print each result at once.  Return 1 if a limit is missed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # run the cleanup that ends child processes
    missed = 0
    for bench, effort in chosen:
        result = bench.run(effort)
        said = json.dumps(json_of(bench.name, result)) if output == "json" else text_of(result) + "\n"
        print(said, flush=True)
        missed += sum(judge(one).startswith(MISSED) for one in result.budgets)
    if missed:
        print(f"floors missed: {missed}", file=sys.stderr)
    return 1 if missed else 0
