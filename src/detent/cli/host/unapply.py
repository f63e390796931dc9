"""`detent unapply`: removes everything that `detent apply` wrote for an app from a host scheduler."""

import argparse

from detent.cli.context import add_manifest_options
from detent.cli.host.host_state import add_host_filter, change_record, host_for, print_changes, record_changes
from detent.cli.host.resources import apps_on
from detent.cli.tables import say, write_json
from detent.errors import UsageError
from detent.hosts.reconcile import pending, reconcile

EXAMPLE = "detent unapply --host systemd --unit-dir units --spec-dir specs"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_manifest_options(parser)
    add_host_filter(parser, "the host scheduler", required=True)


def main(args: argparse.Namespace) -> int:
    done = []
    for app in apps_on(args):
        if not app:
            raise UsageError(f"name the app to remove from {args.host}, with --app or the manifest with -f")
        host = host_for(args, app)
        with host.lock():
            changes = pending(reconcile(app, [], host.find()))
            if changes:
                host.change(changes)
                record_changes(args, "unapply", host.where, changes)
        done += changes
    if args.output == "json":
        write_json([change_record(change) for change in done])
    elif done:
        print_changes(done)
    else:
        say(f"--host {args.host}: nothing to remove")
    return 0
