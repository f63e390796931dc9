"""`detent apply`: writes the jobs of a manifest to a host scheduler; applying again changes nothing."""

import argparse

from detent.cli.host import host_state
from detent.cli.tables import say, write_json
from detent.hosts.reconcile import Change

EXAMPLE = "detent apply -f detent.yaml --host systemd --unit-dir units --spec-dir specs"


def add_options(parser: argparse.ArgumentParser) -> None:
    host_state.add_host_options(parser, "apply")


def main(args: argparse.Namespace) -> int:
    if args.render:
        print("\n".join(f"---\n{resource.content.rstrip()}" for resource in host_state.read_desired(args)))
        return 0
    done: list[Change] = []
    for current in host_state.read_host_states(args):
        changes = current.changes
        host_state.refuse_foreign(changes)
        if changes:
            for warning in current.warnings():
                say(f"warning: {warning}")
            current.host.change(changes)
            host_state.record_changes(args, "apply", current.host.where, changes)
        done += changes
        if args.output != "json":
            host_state.print_changes(changes)
    if args.output == "json":
        write_json([host_state.change_record(change) for change in done])
    return 0
