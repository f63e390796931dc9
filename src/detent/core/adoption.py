"""Which foreign entry of a host does what a job of the manifest does, and where the two differ.  Pure.

- An entry is a job's if it triggers that job already, or if its command is the job's to the letter.
- They agree if they fire at the same instants, as the same user.  Where they do not, a person decides.
"""

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from detent.core.rings import SPAN_FROM_S
from detent.core.schedules import EPOCH, Timetable, combine, parse_schedule
from detent.core.spec import Spec
from detent.errors import UsageError
from detent.model import Command, Schedule

COMPARED = 200  # instants


class Stranger(NamedTuple):
    """Something foreign that fires: what `adopt` can take over."""

    name: str  # how a person calls it: `line 12`, `backup.timer`
    place: str  # how the host finds it again
    content: str
    schedules: tuple[str, ...] = ()  # in our grammar; none: they could not be said in it
    timezone: str = "UTC"
    command: str = ""  # as its shell would take it; "": not known
    shell: str = "/bin/sh"
    user: str = ""  # "": whoever owns the place
    job: str = ""  # app.job that it triggers already, without a mark


class Match(NamedTuple):
    """A stranger, the job that it is, and where they differ."""

    spec: Spec
    stranger: Stranger
    differences: tuple[str, ...] = ()


def match(specs: Sequence[Spec], strangers: Sequence[Stranger]) -> list[Match]:
    """The strangers that do what one of these jobs does."""
    found = ((spec, stranger) for stranger in strangers for spec in specs if _is_of(stranger, spec))
    return [Match(spec, stranger, tuple(_differences(stranger, spec))) for spec, stranger in found]


def _is_of(stranger: Stranger, spec: Spec) -> bool:
    if stranger.job:
        return stranger.job == spec.name
    work = spec.job.work
    if not stranger.command or not isinstance(work, Command):
        return False
    return (
        work.words == (stranger.shell, "-c", stranger.command) or shlex.join(work.words) == stranger.command
    )


def _differences(stranger: Stranger, spec: Spec) -> Iterator[str]:
    try:
        theirs = combine(parse_schedule(text, timezone=stranger.timezone) for text in stranger.schedules)
    except UsageError:
        yield "when it fires cannot be said in a manifest"
    else:
        ours = spec.job.schedule
        if _first(theirs) != _first(ours):
            yield f"it fires at {', '.join(stranger.schedules)} {stranger.timezone}, the job at {_told(spec)}"
    user = spec.job.work.user if isinstance(spec.job.work, Command) else ""
    if stranger.user and user and stranger.user != user:
        yield f"it runs as {stranger.user}, the job as {user}"


def _first(schedule: Schedule | Timetable) -> list[datetime]:
    since = EPOCH + timedelta(seconds=SPAN_FROM_S)
    return list(islice(schedule.between(since, datetime.max.replace(tzinfo=EPOCH.tzinfo)), COMPARED))


def _told(spec: Spec) -> str:
    zone = spec.times[0].timezone if spec.times else ""
    return f"{', '.join(time.text for time in spec.times)} {zone}"
