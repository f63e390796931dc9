"""Runs all benchmarks, or those named: `python bench/all.py [NAME …] [--full | --tiny] [--on SERVER]`."""

from __future__ import annotations

import sys

import callables
import claims
import cold_start
import commands
import dashboard_queries
import dashboard_viewers
import fleet
import load
import memory
import next_instant
import queues
import steady
import store_size
from report import arguments, show

BENCHES = {
    module.BENCH.name: module.BENCH
    for module in (
        next_instant,
        cold_start,
        commands,
        callables,
        claims,
        dashboard_queries,
        dashboard_viewers,
        fleet,
        load,
        memory,
        queues,
        steady,
        store_size,
    )
}


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)} (default: all)")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in BENCHES]:
        parser.error(f"no bench is called {unknown[0]}; there are {', '.join(BENCHES)}")
    chosen = [BENCHES[name] for name in given.names or BENCHES]
    on = tuple(given.on)
    return show([(bench, bench.efforts[given.size]._replace(on=on)) for bench in chosen], given.output)


if __name__ == "__main__":
    sys.exit(main())
