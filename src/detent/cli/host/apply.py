"""`detent apply`: writes the jobs of a manifest to a host scheduler; applying again changes nothing."""

import argparse

from detent.cli.host.host_state import (
    add_host_options,
    change_record,
    print_changes,
    read_desired,
    read_host_states,
    record_changes,
    refuse_foreign,
)
from detent.cli.tables import say, write_json
from detent.hosts.reconcile import Change

EXAMPLE = "detent apply -f detent.yaml --host systemd --unit-dir units --spec-dir specs"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_host_options(parser, "apply")


def main(args: argparse.Namespace) -> int:
    if args.render:
        print("\n".join(f"---\n{resource.content.rstrip()}" for resource in read_desired(args)))
        return 0
    done: list[Change] = []
    for current in read_host_states(args):
        changes = current.changes
        refuse_foreign(changes)
        if changes:
            for warning in current.warnings():
                say(f"warning: {warning}")
            current.host.change(changes)
            record_changes(args, "apply", current.host.where, changes)
        done += changes
        if args.output != "json":
            print_changes(changes)
    if args.output == "json":
        write_json([change_record(change) for change in done])
    return 0
