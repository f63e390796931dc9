"""Matches unmanaged entries of a host with jobs of the manifest, and compares them.  Pure.

- An entry belongs to a job if it already triggers the job, or if its command is exactly the job's.
- They agree if they have the same fire times, user and restrictions.  If not, a person decides.
- An entry never gets root's rights because no user is named: that is refused, even with `--force`.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.manifest.spec import Spec
from detent.model import Call, Command, Schedule
from detent.schedules.host_fields import SPAN_FROM_S
from detent.schedules.timetable import EPOCH, FOREVER, Timetable, combine, parse_schedule

COMPARED = 200  # instants
DYNAMIC_USER = "a dynamic user"  # systemd creates it for each start

_TRIGGER = re.compile(
    r"(?:^|[\s/])detent\s+trigger\s(?:.*\s)?([a-z][a-z0-9-]*\.[a-z][a-z0-9-]*)(?![^\s;|&>])"
)


class Identity(NamedTuple):
    """The user, role or account that a host runs triggers as."""

    name: str
    owner: str = ""  # the user of an entry that names none
    is_implied_root: bool = False  # root, because no user was named


class Unmanaged(NamedTuple):
    """An entry of a host that fires and is not managed by detent: `adopt` can take it over."""

    name: str  # for people: `line 12`, `backup.timer`
    place: str  # for the host, to find it again
    content: str
    schedules: tuple[str, ...] = ()  # in our syntax; empty if they cannot be expressed
    timezone: str = "UTC"
    command: str = ""  # as the shell sees it; "" if unknown
    shell: str = "/bin/sh"
    user: str = ""  # "" for the owner of the place
    limits: tuple[str, ...] = ()  # settings that restrict it, and that a trigger would not have
    job: str = ""  # the app.job that it already triggers, without a mark


class Match(NamedTuple):
    """An unmanaged entry, its job, and how they differ."""

    spec: Spec
    entry: Unmanaged
    differences: tuple[str, ...] = ()
    refusal: str = ""  # why it cannot be adopted, even with --force


def triggered_job(command: str) -> str:
    """Return the job that a command triggers, or an empty text."""
    found = _TRIGGER.search(command)
    return found[1] if found else ""


def unmanaged_job(name: str, content: str, job: Mapping[str, Any], timezone: str = "UTC") -> Unmanaged:
    """Return the unmanaged entry of a job that a converter made."""
    command = job.get("command", "")
    text = (command if isinstance(command, str) else shlex.join(command)).replace("$$", "$")
    return Unmanaged(
        name=name,
        place=name,
        content=content,
        schedules=tuple(job.get("schedules", [job["schedule"]] if "schedule" in job else [])),
        timezone=job.get("timezone", timezone),
        command=text,
        user=job.get("user", ""),
        job=triggered_job(text),
    )


def match(specs: Sequence[Spec], unmanaged: Sequence[Unmanaged], identity: Identity) -> list[Match]:
    """Return the unmanaged entries that do the work of a job.  `identity` is that of the host's triggers."""
    found = ((spec, entry) for entry in unmanaged for spec in specs if _does_work_of(entry, spec))
    return [
        Match(
            spec=spec,
            entry=entry,
            differences=tuple(_differences(entry, spec, identity)),
            refusal=_refusal(entry, spec, identity),
        )
        for spec, entry in found
    ]


def _does_work_of(entry: Unmanaged, spec: Spec) -> bool:
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
        yield "a manifest cannot express its schedule"
    else:
        if _first(theirs) != _first(spec.job.schedule):
            ours = ", ".join(time.text for time in spec.times)
            zone = spec.times[0].timezone if spec.times else ""
            yield f"it fires at {', '.join(entry.schedules)} {entry.timezone}, the job at {ours} {zone}"
    their_user, our_user = entry.user or identity.owner, _user_of(entry, spec) or identity.name
    if their_user != our_user:
        yield f"it runs as {their_user}, the job as {our_user}"
    if entry.limits:
        yield f"it is restricted by {', '.join(entry.limits)}, and the job is not"


def _refusal(entry: Unmanaged, spec: Spec, identity: Identity) -> str:
    theirs = entry.user or identity.owner
    if not identity.is_implied_root or _user_of(entry, spec) or theirs == identity.name:
        return ""
    user = "USER" if theirs == DYNAMIC_USER else theirs
    return (
        f"{spec.name} would run as {identity.name}, but {entry.name} runs as {theirs}:"
        f" add `user: {user}` to the job, or give --run-as {user}"
    )


def _user_of(entry: Unmanaged, spec: Spec) -> str:
    """Return the job's user in the manifest.  It does not matter for an entry that triggers the job already:
    that trigger switches to the same user."""
    work = spec.job.work
    return work.user if not entry.job and isinstance(work, Command | Call) else ""


def _first(schedule: Schedule | Timetable) -> list[datetime]:
    since = EPOCH + timedelta(seconds=SPAN_FROM_S)
    return list(islice(schedule.between(since, FOREVER), COMPARED))
