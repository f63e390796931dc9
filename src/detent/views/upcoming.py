"""The next instants of a job, in its time zone, with notes on clock changes and pauses."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from detent.manifest.check import Manifest
from detent.model import Job
from detent.schedules.timetable import FOREVER, notes_for
from detent.views.formatting import iso
from detent.views.json_records import names_record
from detent.views.lookup import find_job
from detent.views.pauses import Pause


class Upcoming(NamedTuple):
    due_at: datetime
    job: str
    timezone: str
    note: str
    paused: bool

    @property
    def local(self) -> datetime:
        zone = UTC if self.timezone == "UTC" else ZoneInfo(self.timezone)  # UTC needs no zone database
        return self.due_at.astimezone(zone)


def instants_of(
    manifest: Manifest, job: Job, since: datetime, pauses: Mapping[str, Pause]
) -> Iterator[Upcoming]:
    name = job.name.partition("/")[0]
    timezone = json.loads(manifest.canonical[name])["timezone"]
    pause = pauses.get(find_job(manifest, job.name))
    for due_at in job.schedule.between(since, FOREVER):
        paused = pause is not None and pause.holds_at(due_at)
        notes = [notes_for(job.schedule, due_at), f"paused: {pause.text}" if pause and paused else ""]
        yield Upcoming(due_at, name, timezone, "; ".join(filter(None, notes)), paused)


def upcoming_record(one: Upcoming) -> dict[str, Any]:
    times = {"due_at": iso(one.due_at), "local": one.local.isoformat(), "timezone": one.timezone}
    return {**names_record(one.job), **times, "note": one.note, "paused": one.paused}
