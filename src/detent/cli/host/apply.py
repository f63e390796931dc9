"""`detent apply`: bring a host into agreement with the manifest.  A second one changes and says nothing."""

from __future__ import annotations

import argparse

from detent.cli.host.host_state import (
    add_host,
    change_record,
    read_desired,
    read_standings,
    record_done,
    refuse_foreign,
)
from detent.cli.tables import say, write_json
from detent.hosts.reconcile import Change, pending

EXAMPLE = "detent apply -f detent.yaml --host systemd --unit-dir units --spec-dir specs"
_DONE = {"create": "created", "update": "updated", "delete": "deleted"}


def options(parser: argparse.ArgumentParser) -> None:
    add_host(parser, "apply")


def main(given: argparse.Namespace) -> int:
    if given.render:
        print("\n".join(f"---\n{resource.content.rstrip()}" for resource in read_desired(given)))
        return 0
    told: list[Change] = []
    for standing in read_standings(given):
        changes = pending(standing.changes)
        refuse_foreign(changes)
        if changes:
            for warning in standing.warnings():
                say(f"warning: {warning}")
            standing.host.change(changes)
            record_done(given, "apply", standing.host.where, changes)
        told += changes
        if given.output != "json":
            tell_done(changes)
    if given.output == "json":
        write_json([change_record(change) for change in told])
    return 0


def tell_done(changes: list[Change]) -> None:
    for change in changes:
        print(f"{_DONE[change.action]} {change.name}")
