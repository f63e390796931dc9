"""`detent drift`: lists where a host scheduler differs from the manifest."""

import argparse

from detent.cli.host.host_state import add_host_options, change_record, read_host_states
from detent.cli.tables import Table, say, write_found
from detent.hosts.reconcile import Change

EXAMPLE = "detent drift -f detent.yaml --host systemd"
DRIFT_FOUND = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    add_host_options(parser)
    about = f"exit with {DRIFT_FOUND} if anything differs"
    parser.add_argument("--exit-on-drift", action="store_true", help=about)


def main(args: argparse.Namespace) -> int:
    found: list[Change] = []
    for current in read_host_states(args):
        found += current.changes
        if args.output != "json" and not current.changes:
            say(f"{current.host.where}: no drift")
    rows = [(change.name, change.job, change.kind, change.state) for change in found]
    write_found(args, map(change_record, found), Table(("name", "job", "kind", "drift"), rows), "")
    return DRIFT_FOUND if found and args.exit_on_drift else 0
