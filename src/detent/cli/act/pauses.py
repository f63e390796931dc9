"""Reads and describes the pauses of jobs, which `detent pause` stores as notes.

The text of a note is the reason of each fire that the store skips: `migration (by ana@host)`, or only
`by ana@host`.  The user and the reason are parsed back from it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, NamedTuple

from detent.cli.context import context_for
from detent.cli.formatting import current_user, iso, local_time
from detent.cli.json_records import names_record
from detent.cli.tables import say
from detent.errors import DetentError, UsageError
from detent.manifest.check import Manifest
from detent.model import Note
from detent.observe.logs import log_to
from detent.stores.base import PAUSE, Store

REASON_MAX = 200  # characters: it is stored with every skipped fire
_TEXT = re.compile(r"(?:(?P<reason>.*) \()?by (?P<who>[^() ]+)(?(reason)\))", re.DOTALL)


class Pause(NamedTuple):
    job: str
    by: str  # the user, as `ana@host`
    reason: str
    since: datetime
    until: datetime | None  # None: until it is resumed

    @property
    def text(self) -> str:
        if not self.by:
            return self.reason
        return f"{self.reason} (by {self.by})" if self.reason else f"by {self.by}"

    def holds_at(self, instant: datetime) -> bool:
        return self.since <= instant and (self.until is None or instant < self.until)


def find_pauses(store: Store, apps: Iterable[str]) -> dict[str, Pause]:
    """The pauses of these apps, by the name of the job in the store."""
    return {pause.job: pause for app in apps for pause in map(_read, store.notes(app, PAUSE))}


def pauses_if_readable(manifest: Manifest) -> dict[str, Pause]:
    """The pauses of the manifest's app; for verbs that also work without a store."""
    try:
        context = context_for(manifest)
        return find_pauses(context.store, [manifest.app]) if context.store else {}
    except DetentError as error:
        say(f"cannot read which jobs are paused: {error}")
        return {}


def pause_text(pause: Pause, now: datetime) -> str:
    """`paused until 14:00:00 (in 2 h): migration (by ana@host)`, `paused by ana@host`."""
    until = f" until {local_time(pause.until, now)}" if pause.until else ""
    return f"paused{until}: {pause.text}" if pause.reason else f"paused{until} {pause.text}"


def pause_record(pause: Pause) -> dict[str, Any]:
    return {
        **names_record(pause.job),
        "by": pause.by or None,
        "reason": pause.reason or None,
        "since": iso(pause.since),
        "until": iso(pause.until),
    }


def add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="a job, or a pattern such as 'report-*'")
    parser.add_argument("--all", action="store_true", dest="is_all", help="all jobs")


def check_jobs(args: argparse.Namespace) -> None:
    if args.is_all == bool(args.jobs):
        raise UsageError("name jobs, or use --all")


def log_pauses(event: Literal["paused", "resumed"], pauses: list[Pause]) -> None:
    """Log an event for each pause as JSON to stderr, unless stderr is a terminal."""
    if sys.stderr.isatty():
        return
    emit = log_to(sys.stderr, "json")
    for pause in pauses:
        emit(event, **pause_record(pause) | {"by": current_user()})


def _read(note: Note) -> Pause:
    """A text of another program is taken as the reason."""
    found = _TEXT.fullmatch(note.text)
    by, reason = (found["who"], found["reason"] or "") if found else ("", note.text)
    return Pause(note.name.removeprefix(PAUSE), by, reason, note.written_at, note.expires_at)
