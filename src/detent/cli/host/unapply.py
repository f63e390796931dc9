"""`detent unapply`: remove everything that `detent apply` wrote for an app from a host scheduler.

Entries that detent did not write stay.
"""

from __future__ import annotations

import argparse

from detent.cli.context import add_file
from detent.cli.host.apply import tell_done
from detent.cli.host.host_state import add_place, change_record, host_for, record_done
from detent.cli.host.resources import apps_on
from detent.cli.tables import say, write_json
from detent.errors import UsageError
from detent.hosts.reconcile import pending, reconcile

EXAMPLE = "detent unapply --host systemd --unit-dir units --spec-dir specs"


def options(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_place(parser, "the host scheduler", required=True)


def main(given: argparse.Namespace) -> int:
    done = []
    for app in apps_on(given):
        if not app:
            raise UsageError(
                f"which app should be removed from {given.host}? name the manifest with -f, or --app"
            )
        host = host_for(given, app)
        with host.lock():
            changes = pending(reconcile(app, [], host.find()))
            if changes:
                host.change(changes)
                record_done(given, "unapply", host.where, changes)
        done += changes
    if given.output == "json":
        write_json([change_record(change) for change in done])
    elif done:
        tell_done(done)
    else:
        say(f"--host {given.host}: nothing to remove")
    return 0
