"""Jobs that are paused: what the notes say that `detent pause` leaves in the store.

The store shows a note's text as the reason of each fire that it skips.  So the text is in words, and what
is wanted of it is read back from them: `migration (by ana@host)`, or `by ana@host` where no reason was given.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import datetime
from typing import Any, Literal, NamedTuple

from detent.cli.context import context_for
from detent.cli.formatting import current_user, iso, local_time
from detent.cli.tables import say
from detent.errors import DetentError, UsageError
from detent.manifest.check import Manifest
from detent.model import Note
from detent.observe.logs import log_to
from detent.stores.base import PAUSE, Store

REASON_MAX = 200  # characters: it stands in every fire that is skipped for it
_TEXT = re.compile(r"(?:(?P<reason>.*) \()?by (?P<who>[^() ]+)(?(reason)\))", re.DOTALL)


class Pause(NamedTuple):
    """Who paused a job, why, and until when."""

    job: str
    by: str  # the user who paused it, as `ana@host`
    reason: str
    since: datetime
    until: datetime | None  # None: until somebody resumes it

    @property
    def text(self) -> str:
        if not self.by:
            return self.reason
        return f"{self.reason} (by {self.by})" if self.reason else f"by {self.by}"

    def holds_at(self, instant: datetime) -> bool:
        return self.since <= instant and (self.until is None or instant < self.until)


def find_pauses(store: Store, app: str) -> dict[str, Pause]:
    """The app's paused jobs, by the name under which the store knows them."""
    return {pause.job: pause for pause in map(_read, store.notes(app, PAUSE))}


def pauses_if_readable(manifest: Manifest) -> dict[str, Pause]:
    """For verbs that need no store otherwise: one that cannot be read does not keep them from answering."""
    try:
        context = context_for(manifest)
        return find_pauses(context.store, manifest.app) if context.store else {}
    except DetentError as error:
        say(f"which jobs are paused cannot be told: {error}")
        return {}


def pause_text(pause: Pause, now: datetime) -> str:
    """`paused until 14:00:00 (in 2 h): migration (by ana@host)`, `paused by ana@host`."""
    until = f" until {local_time(pause.until, now)}" if pause.until else ""
    return f"paused{until}: {pause.text}" if pause.reason else f"paused{until} {pause.text}"


def pause_record(pause: Pause) -> dict[str, Any]:
    app, _, job = pause.job.partition(".")
    return {
        "app": app,
        "job": job,
        "by": pause.by or None,
        "reason": pause.reason or None,
        "since": iso(pause.since),
        "until": iso(pause.until),
    }


# For the two verbs.


def add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="a job, or a pattern such as 'report-*'")
    parser.add_argument("--all", action="store_true", dest="is_all", help="all jobs")


def check_jobs(args: argparse.Namespace) -> None:
    if args.is_all == bool(args.jobs):
        raise UsageError("name the jobs that are meant, or say --all")


def log_pauses(event: Literal["paused", "resumed"], pauses: list[Pause]) -> None:
    """The event, for whoever collects logs; a person is told in a sentence."""
    if sys.stderr.isatty():
        return
    emit = log_to(sys.stderr, "json")
    for pause in pauses:
        emit(event, **pause_record(pause) | {"by": current_user()})


def _read(note: Note) -> Pause:
    """A text that we did not write is a reason."""
    found = _TEXT.fullmatch(note.text)
    by, reason = (found["who"], found["reason"] or "") if found else ("", note.text)
    return Pause(note.name.removeprefix(PAUSE), by, reason, note.written_at, note.expires_at)
