"""Which foreign entry of a host does what a job of the manifest does, and where the two differ.  Pure.

- An entry is a job's if it triggers that job already, or if its command is the job's to the letter.
- They agree if they fire at the same instants, as the same user, under the same restrictions.  Where they do
  not, a person decides.
- An entry never gets root's rights because no user is named: that is refused, also with `--force`.
"""

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from detent.errors import UsageError
from detent.manifest.spec import Spec
from detent.model import Call, Command, Schedule
from detent.schedules.host_fields import SPAN_FROM_S
from detent.schedules.timetable import EPOCH, Timetable, combine, parse_schedule

COMPARED = 200  # instants
DYNAMIC_USER = "a dynamic user"  # systemd makes it up for each start


class Identity(NamedTuple):
    """The user, role or account that a host runs triggers as."""

    name: str
    owner: str = ""  # that an entry runs as if it names none
    is_implied_root: bool = False  # root, because nobody named a user


class Unmanaged(NamedTuple):
    """Something foreign that fires: what `adopt` can take over."""

    name: str  # how a person calls it: `line 12`, `backup.timer`
    place: str  # how the host finds it again
    content: str
    schedules: tuple[str, ...] = ()  # in our grammar; none: they could not be said in it
    timezone: str = "UTC"
    command: str = ""  # as its shell would take it; "": not known
    shell: str = "/bin/sh"
    user: str = ""  # "": the owner of the place
    limits: tuple[str, ...] = ()  # settings that restrict it, and that a trigger would not have
    job: str = ""  # app.job that it triggers already, without a mark


class Match(NamedTuple):
    """A entry, the job that it is, and where they differ."""

    spec: Spec
    entry: Unmanaged
    differences: tuple[str, ...] = ()
    refusal: str = ""  # why it is not taken over, also with --force


def match(specs: Sequence[Spec], unmanaged: Sequence[Unmanaged], identity: Identity) -> list[Match]:
    """The unmanaged that do what one of these jobs does.  `identity` is that of the host's triggers."""
    found = ((spec, entry) for entry in unmanaged for spec in specs if _is_of(entry, spec))
    return [
        Match(
            spec=spec,
            entry=entry,
            differences=tuple(_differences(entry, spec, identity)),
            refusal=_refusal(entry, spec, identity),
        )
        for spec, entry in found
    ]


def _is_of(entry: Unmanaged, spec: Spec) -> bool:
    if entry.job:
        return entry.job == spec.name
    work = spec.job.work
    if not entry.command or not isinstance(work, Command):
        return False
    return work.words == (entry.shell, "-c", entry.command) or shlex.join(work.words) == entry.command


def _differences(entry: Unmanaged, spec: Spec, identity: Identity) -> Iterator[str]:
    try:
        theirs = combine(parse_schedule(text, timezone=entry.timezone) for text in entry.schedules)
    except UsageError:
        yield "when it fires cannot be said in a manifest"
    else:
        ours = spec.job.schedule
        if _first(theirs) != _first(ours):
            yield f"it fires at {', '.join(entry.schedules)} {entry.timezone}, the job at {_told(spec)}"
    their_user, our_user = entry.user or identity.owner, _user_of(entry, spec) or identity.name
    if their_user != our_user:
        yield f"it runs as {their_user}, the job as {our_user}"
    if entry.limits:
        yield f"it is restricted by {', '.join(entry.limits)}, and the job is not"


def _refusal(entry: Unmanaged, spec: Spec, identity: Identity) -> str:
    theirs = entry.user or identity.owner
    if not identity.is_implied_root or _user_of(entry, spec) or theirs == identity.name:
        return ""
    told = f"{spec.name} would run as {identity.name}, and {entry.name} runs as {theirs}"
    named = "USER" if theirs == DYNAMIC_USER else theirs
    return f"{told}: write `user: {named}` into the job, or give --run-as {named}"


def _user_of(entry: Unmanaged, spec: Spec) -> str:
    """The user that the manifest names for what the entry does; an entry that triggers the job is compared
    with our trigger, which changes to the job's user in the same way."""
    work = spec.job.work
    return work.user if not entry.job and isinstance(work, Command | Call) else ""


def _first(schedule: Schedule | Timetable) -> list[datetime]:
    since = EPOCH + timedelta(seconds=SPAN_FROM_S)
    return list(islice(schedule.between(since, datetime.max.replace(tzinfo=EPOCH.tzinfo)), COMPARED))


def _told(spec: Spec) -> str:
    zone = spec.times[0].timezone if spec.times else ""
    return f"{', '.join(time.text for time in spec.times)} {zone}"
