"""`detent plan`: shows what `detent apply` would change, as a diff."""

import argparse
from collections import Counter
from collections.abc import Iterator
from difflib import unified_diff

from detent.cli.host import host_state
from detent.cli.tables import coloured, say, write_json
from detent.hosts.reconcile import Change

EXAMPLE = "detent plan -f detent.yaml --host systemd"
_COLOURS = {"+": "green", "-": "red", " ": "dim"}
_HEADS = {
    "missing": "is not there yet",
    "outdated": "is from an older manifest",
    "edited": "was edited by hand",
    "surplus": "is no longer in the manifest",
    "foreign": "was not written by detent, but has a name that we need",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    host_state.add_host_options(parser)


def main(args: argparse.Namespace) -> int:
    records = []
    for current in host_state.read_host_states(args):
        if args.output == "json":
            records += [host_state.change_record(change) for change in current.changes]
            continue
        for change in current.changes:
            print("\n".join(_lines(change)))
        counts = Counter(change.action for change in current.changes)
        counted = ", ".join(f"{count} to {action}" for action, count in counts.items())
        print(f"{current.host.where}: {counted or 'nothing to do'}")
        for warning in current.warnings() if current.changes else ():
            say(f"warning: {warning}")
    if args.output == "json":
        write_json(records)
    return 0


def _lines(change: Change) -> Iterator[str]:
    yield f"{change.name} {_HEADS[change.state]}"
    if change.kind == "spec" and change.state in ("missing", "surplus"):
        return  # the job is in the manifest
    before = (host_state.display_content(change.before) or "").splitlines()
    after = (host_state.display_content(change.after) or "").splitlines()
    for line in list(unified_diff(before, after, n=1, lineterm=""))[2:]:
        if not line.startswith("@@"):
            yield coloured(f"  {line}", _COLOURS[line[0]])
