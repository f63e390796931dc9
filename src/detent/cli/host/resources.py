"""`list`, `show` and `history` with `--host`: the entries of a host scheduler, and who changed them."""

import argparse
import os

from detent.cli.context import has_manifest
from detent.cli.host.host_state import display_content, host_for, read_manifests
from detent.cli.tables import Table, say, write_found, write_json
from detent.hosts.base import recorded_changes
from detent.hosts.reconcile import Found, app_of
from detent.loading.config import state_directory
from detent.text import quote

_NOTHING = "detent has written nothing there"
_STATES = {True: "as written", False: "edited"}


def list_resources(args: argparse.Namespace) -> int:
    found = _find(args)
    rows = [(one.name, one.job, one.kind, one.revision, _STATES[one.intact]) for one in found]
    table = Table(("name", "job", "kind", "revision", "state"), rows)
    return write_found(args, map(_found_record, found), table, f"--host {args.host}: {_NOTHING}")


def _find(args: argparse.Namespace) -> list[Found]:
    found: list[Found] = []
    for app in apps_on(args):
        found += [one for one in host_for(args, app).find() if one.job and app in ("", app_of(one.job))]
    return found


def _found_record(one: Found) -> dict[str, object]:
    return {
        "name": one.name,
        "kind": one.kind,
        "job": one.job,
        "revision": one.revision,
        "intact": one.intact,
        "content": display_content(one),
    }


def show_resources(args: argparse.Namespace) -> int:
    found = [one for one in _find(args) if _is_chosen(one.job, args)]
    if args.output == "json":
        write_json([_found_record(one) for one in found])
        return 0
    for one in found:
        print(f"# {one.name}: {_STATES[one.intact]}\n{display_content(one)}")
    if not found:
        of = f" of {quote(args.job)}" if args.job else ""
        say(f"--host {args.host}: {_NOTHING}{of}")
    return 0


def _is_chosen(job: str, args: argparse.Namespace) -> bool:
    return not args.job or args.job in (job, job.partition(".")[2])


def show_changes(args: argparse.Namespace) -> int:
    known = [one for one in recorded_changes(state_directory(dict(os.environ))) if one["host"] == args.host]
    records = [one for one in known if _is_chosen(one["job"], args)][: args.count]
    heads = ("time", "verb", "action", "name", "where", "user")
    of = f" of {quote(args.job)}" if args.job else ""
    table = Table(heads, [[str(one[head]) for head in heads] for one in records])
    nothing = f"--host {args.host}: nothing{of} has been changed from here yet"
    return write_found(args, records, table, nothing)


def apps_on(args: argparse.Namespace) -> list[str]:
    """The named app or those of the manifest; an empty name means all."""
    if args.app:
        return [args.app]
    if args.file or has_manifest():
        return [manifest.app for manifest in read_manifests(args)]
    return [""]
