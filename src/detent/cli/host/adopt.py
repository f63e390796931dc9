"""`detent adopt`: take over entries of a host that do already what jobs of the manifest do.

- An entry is taken over if it triggers the job, or if its command is the job's to the letter; the foreign
  one goes (a backup is kept), and ours takes its place.
- One that fires at other times, as another user or under restrictions has diverged, and so has what bears a
  name that we need and says something else: nothing is changed, unless forced.
- One that would get root's rights because nobody named a user is never taken over.
"""

from __future__ import annotations

import argparse
from typing import Any

from detent.cli.host.apply import print_changes
from detent.cli.host.host_state import (
    HostState,
    add_host_options,
    change_record,
    display_content,
    display_text,
    read_host_states,
    record_changes,
)
from detent.cli.tables import say, write_json
from detent.hosts.adoption import Match, match
from detent.hosts.reconcile import Change, pending
from detent.text import listed

EXAMPLE = "detent adopt -f detent.yaml --host crontab --cron-file system.crontab --spec-dir specs --force"
DIVERGED, NOTHING_FOUND = 6, 7
BRING_INTO_LINE = "bring the manifest into line, or take over what differs with --force"
NOT_THE_SAME = "it bears the name that ours needs, and says something else"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_host_options(parser)
    parser.add_argument(
        "--force", action="store_true", help="also replace entries that differ from the manifest"
    )


def main(args: argparse.Namespace) -> int:
    told: list[dict[str, Any]] = []
    codes, refusals = list[int](), list[str]()
    for current in read_host_states(args):
        matches = match(current.specs, current.host.unmanaged(), current.host.identity)
        in_the_way = [change for change in current.changes if change.state == "foreign"]
        code = _judge(matches, in_the_way, args.force)
        changes = [] if code else _take_over(args, current, matches)
        codes.append(code)
        refusals += [one.refusal for one in matches if one.refusal]
        told += [_record(one, changes) for one in matches]
        told += [_way_record(one, changes) for one in in_the_way]
        if args.output != "json":
            _tell(current, matches, in_the_way)
            print_changes(changes)
    if args.output == "json":
        write_json(told)
    if DIVERGED in codes:
        say(f"nothing was changed: {'; '.join(refusals) or BRING_INTO_LINE}")
        return DIVERGED
    return min(codes)


def _judge(matches: list[Match], in_the_way: list[Change], force: bool) -> int:
    if not matches and not in_the_way:
        return NOTHING_FOUND
    differs = bool(in_the_way) or any(one.differences for one in matches)
    is_refused = any(one.refusal for one in matches)
    return DIVERGED if is_refused or (differs and not force) else 0


def _take_over(args: argparse.Namespace, current: HostState, matches: list[Match]) -> list[Change]:
    """What these jobs need is written, and the unmanaged entries go with the same step."""
    changes = pending(current.changes)
    jobs = {one.spec.name for one in matches} | {one.job for one in changes if one.state == "foreign"}
    mine = [change for change in changes if change.job in jobs and change.state != "surplus"]
    taken = [one._replace(state="edited") if one.state == "foreign" else one for one in mine]
    current.host.change(taken, list(dict.fromkeys(one.entry for one in matches)))
    record_changes(args, "adopt", current.host.where, taken)
    return taken


def _record(one: Match, changes: list[Change]) -> dict[str, Any]:
    return {
        "job": one.spec.name,
        "entry": one.entry.name,
        "content": display_text(one.entry.content),
        "differences": list(one.differences),
        "changes": [change_record(change) for change in changes if change.job == one.spec.name],
    }


def _way_record(one: Change, changes: list[Change]) -> dict[str, Any]:
    return {
        "job": one.job,
        "entry": one.name,
        "content": display_content(one.before),
        "differences": [NOT_THE_SAME],
        "changes": [change_record(change) for change in changes if change.name == one.name],
    }


def _tell(current: HostState, matches: list[Match], in_the_way: list[Change]) -> None:
    where = current.host.where
    if not matches and not in_the_way:
        say(f"{where}: nothing there does what a job of {current.manifest.app} does")
    for one in matches:
        place = f"{one.entry.name} of {where}: {display_text(one.entry.content)}"
        but = f", but {listed(one.differences, 'and')}" if one.differences else ""
        print(f"{place}\n  is {one.spec.name}{but}")
    for change in in_the_way:
        print(f"{change.name}: {NOT_THE_SAME}")
