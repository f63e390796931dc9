"""`detent adopt`: replaces entries of a host scheduler with the jobs of the manifest that do the same.

- An entry matches a job if it triggers the job, or if its command is exactly the job's.  A backup of it is
  kept, and our entry replaces it.
- If a matching entry has another schedule, user or restriction, or if another entry has a name that we need,
  nothing is changed without `--force`.
- An entry that would become root's because the manifest names no user is never adopted.
"""

import argparse
from typing import Any

from detent.cli.host import host_state
from detent.cli.tables import say, write_json
from detent.hosts.adoption import Match, match
from detent.hosts.reconcile import Change
from detent.text import listed

EXAMPLE = "detent adopt -f detent.yaml --host crontab --cron-file system.crontab --spec-dir specs --force"
DIVERGED, NOTHING_FOUND = 6, 7
ADVICE = "change the manifest to match, or replace the entries that differ with --force"
NAME_TAKEN = "it has the name that our entry needs, but a different content"


def add_options(parser: argparse.ArgumentParser) -> None:
    host_state.add_host_options(parser)
    about = "also replace entries that differ from the manifest"
    parser.add_argument("--force", action="store_true", help=about)


def main(args: argparse.Namespace) -> int:
    records: list[dict[str, Any]] = []
    codes, refusals = list[int](), list[str]()
    for current in host_state.read_host_states(args):
        matches = match(current.specs, current.host.unmanaged(), current.host.identity)
        foreign = [change for change in current.changes if change.state == "foreign"]
        code = _exit_code(matches, foreign, args.force)
        changes = [] if code else _replace(args, current, matches)
        codes.append(code)
        refusals += [one.refusal for one in matches if one.refusal]
        records += [_match_record(one, changes) for one in matches]
        records += [_foreign_record(one, changes) for one in foreign]
        if args.output != "json":
            _print(current, matches, foreign)
            host_state.print_changes(changes)
    if args.output == "json":
        write_json(records)
    if DIVERGED in codes:
        say(f"nothing was changed: {'; '.join(refusals) or ADVICE}")
        return DIVERGED
    return min(codes)


def _exit_code(matches: list[Match], foreign: list[Change], force: bool) -> int:
    if not matches and not foreign:
        return NOTHING_FOUND
    differs = bool(foreign) or any(one.differences for one in matches)
    is_refused = any(one.refusal for one in matches)
    return DIVERGED if is_refused or (differs and not force) else 0


def _replace(args: argparse.Namespace, current: host_state.HostState, matches: list[Match]) -> list[Change]:
    """Write the entries of these jobs and remove the old ones in one step."""
    jobs = {one.spec.name for one in matches} | {one.job for one in current.changes if one.state == "foreign"}
    mine = [change for change in current.changes if change.job in jobs and change.state != "surplus"]
    taken = [one._replace(state="edited") if one.state == "foreign" else one for one in mine]
    current.host.change(taken, list(dict.fromkeys(one.entry for one in matches)))
    host_state.record_changes(args, "adopt", current.host.where, taken)
    return taken


def _match_record(one: Match, changes: list[Change]) -> dict[str, Any]:
    return {
        "job": one.spec.name,
        "entry": one.entry.name,
        "content": host_state.display_text(one.entry.content),
        "differences": list(one.differences),
        "changes": [host_state.change_record(change) for change in changes if change.job == one.spec.name],
    }


def _foreign_record(one: Change, changes: list[Change]) -> dict[str, Any]:
    return {
        "job": one.job,
        "entry": one.name,
        "content": host_state.display_content(one.before),
        "differences": [NAME_TAKEN],
        "changes": [host_state.change_record(change) for change in changes if change.name == one.name],
    }


def _print(current: host_state.HostState, matches: list[Match], foreign: list[Change]) -> None:
    where = current.host.where
    if not matches and not foreign:
        say(f"{where}: no entry matches a job of {current.manifest.app}")
    for one in matches:
        place = f"{one.entry.name} of {where}: {host_state.display_text(one.entry.content)}"
        but = f", but {listed(one.differences, 'and')}" if one.differences else ""
        print(f"{place}\n  is {one.spec.name}{but}")
    for change in foreign:
        print(f"{change.name}: {NAME_TAKEN}")
