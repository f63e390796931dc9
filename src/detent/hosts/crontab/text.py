"""Finds and rewrites detent's lines in the text of a crontab, without touching other lines.

- Each of detent's lines is one resource.  It ends in a shell comment: its name, its job's revision, and a
  seal over the line.  So it is recognised even if it was moved, edited or commented out.
- New lines go to the top, where no variable of another line applies.  A line below a variable that changes
  its meaning counts as edited.
"""

import re
from collections.abc import Collection, Sequence

from detent.hosts.reconcile import Change, Found, Resource, seal

HEADING = "# Lines that end in a detent mark are written by `detent apply`: change the manifest instead."
KIND = "entry"
_MEANINGFUL = re.compile("CRON_TZ|HOME|SHELL|XDG_.*|DETENT_.*")  # variables that affect a trigger

_MARK = re.compile(r"(.*) # (detent-([a-z0-9-]+\.[a-z0-9-]+)-[0-9]+) ([0-9a-f]{16}) ([0-9a-f]{12})\s*")
_VARIABLE = re.compile(r"""\s*(["']?)([A-Za-z_][A-Za-z0-9_]*)\1\s*=.*""")


def make_entry(name: str, job: str, revision: str, line: str) -> Resource:
    content = f"{line} # {name} {revision} {seal(line, name, revision)}"
    return Resource(name, job, revision, content, KIND)


def find_entries(text: str) -> list[Found]:
    """Return detent's lines.  The place of each is its number, from 0."""
    entries: list[Found] = []
    variables: dict[str, str] = {}
    for index, line in enumerate(text.split("\n")):
        mark = _MARK.fullmatch(line)
        if mark:
            entries.append(_entry(index, line, mark, [*variables.values()]))
        elif (variable := _VARIABLE.fullmatch(line)) and _MEANINGFUL.fullmatch(variable[2]):
            variables[variable[2]] = line.strip()
    return entries


def _entry(index: int, line: str, mark: re.Match[str], variables: list[str]) -> Found:
    return Found(
        name=mark[2],
        content="\n".join([*variables, line]),
        job=mark[3],
        revision=mark[4],
        intact=not variables and line == line.rstrip() and seal(mark[1], mark[2], mark[4]) == mark[5],
        place=str(index),
        kind=KIND,
    )


def rewrite(text: str, changes: Sequence[Change], retired: Collection[int] = ()) -> str:
    """Return the text after the changes; `retired` are the numbers of unmanaged lines to remove."""
    existing = {entry.place: entry for entry in find_entries(text)}
    lines: list[str | None] = list(text.split("\n"))
    fresh: list[str] = []
    for index in retired:
        lines[index] = None
    for change in changes:
        entry = existing.get(change.before.place) if change.before else None
        is_moved = entry is not None and "\n" in entry.content  # from below the variables that it has first
        if entry and (change.action == "delete" or (change.action == "update" and is_moved)):
            lines[int(entry.place)] = None
        elif entry and change.action == "update" and change.after:
            lines[int(entry.place)] = change.after.content
        if change.after and (change.action == "create" or (entry and lines[int(entry.place)] is None)):
            fresh.append(change.after.content)
    return _joined([line for line in lines if line is not None], fresh)


def _joined(lines: list[str], fresh: list[str]) -> str:
    """Insert new lines below detent's lines at the top, and keep the heading while there is such a line."""
    rest = [line for line in lines if line != HEADING]
    top = next((i for i, line in enumerate(rest) if not _MARK.fullmatch(line)), len(rest))
    whole = [*rest[:top], *fresh, *rest[top:]]
    if any(_MARK.fullmatch(line) for line in whole):
        whole.insert(0, HEADING)
    if fresh and whole[-1] in fresh:
        whole.append("")  # the last line of a crontab must end in a newline
    return "\n".join(whole)
