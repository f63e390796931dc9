"""`detent drift`: where a host is not as the manifest says."""

from __future__ import annotations

import argparse

from detent.cli.host.host_state import add_host, change_record, read_standings
from detent.cli.tables import say, write_json, write_table
from detent.hosts.reconcile import Change, pending

EXAMPLE = "detent drift -f detent.yaml --host systemd"
DRIFT_FOUND = 5


def options(parser: argparse.ArgumentParser) -> None:
    add_host(parser)
    parser.add_argument(
        "--exit-on-drift", action="store_true", help=f"exit with {DRIFT_FOUND} if anything differs"
    )


def main(given: argparse.Namespace) -> int:
    found: list[Change] = []
    for standing in read_standings(given):
        changes = pending(standing.changes)
        found += changes
        if given.output != "json" and not changes:
            say(f"{standing.host.where}: as the manifest says")
    if given.output == "json":
        write_json([change_record(change) for change in found])
    elif found:
        rows = ((change.name, change.job, change.kind, change.state) for change in found)
        write_table(("name", "job", "kind", "drift"), rows)
    return DRIFT_FOUND if found and given.exit_on_drift else 0
