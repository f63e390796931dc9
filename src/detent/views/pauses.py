"""Reads and describes the pauses of jobs, which `detent pause` stores as notes.

The text of a note is the reason of each fire that the store skips: `migration (by ana@host)`, or only
`by ana@host`.  The user and the reason are parsed back from it.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from detent.model import Note
from detent.stores.base import PAUSE, Store
from detent.views.formatting import iso, local_time
from detent.views.json_records import names_record

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
    return {pause.job: pause for app in apps for pause in map(pause_of, store.notes(app, PAUSE))}


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


def pause_of(note: Note) -> Pause:
    """A text of another program is taken as the reason."""
    found = _TEXT.fullmatch(note.text)
    by, reason = (found["who"], found["reason"] or "") if found else ("", note.text)
    return Pause(note.name.removeprefix(PAUSE), by, reason, note.written_at, note.expires_at)
