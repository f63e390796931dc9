"""`list`, `show`, `prune` and `history` with `--host`: what of ours is there, and what became of it."""

from __future__ import annotations

import argparse
import os

from detent.cli.apply import tell_done
from detent.cli.context import has_manifest
from detent.cli.hosting import change_record, host_for, read_manifests, read_standings, record_done, shown
from detent.cli.names import find_job
from detent.cli.tables import say, write_json, write_table
from detent.config import state_directory
from detent.core.reconcile import Found, app_of, pending, reconcile
from detent.core.text import quote
from detent.errors import UsageError
from detent.hosts.base import recorded_changes

_STATES = {True: "as written", False: "edited"}


def list_resources(given: argparse.Namespace) -> int:
    """What of ours a host has: of one app or, where none is named, of all."""
    found: list[Found] = []
    for app in _apps(given):
        found += [one for one in host_for(given, app).find() if one.job and app in ("", app_of(one.job))]
    if given.output == "json":
        write_json([_found_record(one) for one in found])
    elif found:
        rows = ((one.name, one.job, one.kind, one.revision, _STATES[one.intact]) for one in found)
        write_table(("name", "job", "kind", "revision", "state"), rows)
    else:
        say(f"--host {given.host}: nothing of detent's is there")
    return 0


def _found_record(one: Found) -> dict[str, object]:
    return {
        "name": one.name,
        "kind": one.kind,
        "job": one.job,
        "revision": one.revision,
        "intact": one.intact,
        "content": shown(one),
    }


def show_resources(given: argparse.Namespace) -> int:
    """What a job looks like on a host, and how it stands there."""
    told = []
    for standing in read_standings(given):
        name = find_job(standing.manifest, given.what).partition("/")[0] if given.what else ""
        told += [change for change in standing.changes if name in ("", change.job)]
    if given.output == "json":
        write_json([change_record(change) for change in told])
        return 0
    for change in told:
        print(f"# {change.name}: {change.state}")
        print(shown(change.after or change.before))
    return 0


def prune_resources(given: argparse.Namespace) -> int:
    """Everything of an app goes from the host; what is foreign stays as it is."""
    done = []
    for app in _apps(given):
        if not app:
            raise UsageError(
                f"whose jobs shall go from {given.host}? name the manifest with --file, or --app"
            )
        host = host_for(given, app)
        with host.lock():
            changes = pending(reconcile(app, [], host.find()))
            if changes:
                host.change(changes)
                record_done(given, "prune", host.where, changes)
        done += changes
    if given.output == "json":
        write_json([change_record(change) for change in done])
    elif done:
        tell_done(done)
    else:
        say(f"--host {given.host}: nothing to take away")
    return 0


def show_changes(given: argparse.Namespace) -> int:
    """What was changed on this host by whom, newest first."""
    records = [
        one for one in recorded_changes(state_directory(dict(os.environ))) if one["host"] == given.host
    ]
    if given.job:
        records = [one for one in records if given.job in (one["job"], one["job"].partition(".")[2])]
    records = records[: given.count]
    if given.output == "json":
        write_json(records)
    elif records:
        heads = ("time", "verb", "action", "name", "where", "user")
        write_table(heads, ([str(one[head]) for head in heads] for one in records))
    else:
        of = f" of {quote(given.job)}" if given.job else ""
        say(f"--host {given.host}: nothing{of} was changed from here yet")
    return 0


def _apps(given: argparse.Namespace) -> list[str]:
    """The apps that are meant; one without a name: all."""
    if given.app:
        return [given.app]
    if given.file or has_manifest():
        return [manifest.app for manifest in read_manifests(given)]
    return [""]
