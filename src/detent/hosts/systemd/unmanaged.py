"""Timers that are not ours, as `adopt` sees them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from detent.errors import UsageError
from detent.formats.systemd.convert import convert_systemd, services_of
from detent.formats.systemd.service import TRUE
from detent.formats.systemd.units import Unit, parse_unit
from detent.hosts.adoption import DYNAMIC_USER, Unmanaged
from detent.hosts.base import triggered_job
from detent.manifest.problems import ManifestError

RESTRICTING = (
    *("Ambient", "CapabilityBoundingSet", "Device", "Group", "IPAddress", "Inaccessible", "KeyringMode"),
    *("LockPersonality", "MemoryDeny", "NoExec", "NoNewPrivileges", "Private", "Proc", "Protect", "ReadOnly"),
    *("RemoveIPC", "Restrict", "Root", "SecureBits", "Supplementary", "SystemCall", "TemporaryFileSystem"),
)
NOT_SET = ("no", "false", "off", "0", "n", "f")


def find_unmanaged(texts: Mapping[str, str], ours: Collection[str], timezone: str) -> list[Unmanaged]:
    """Every timer in these texts but ours, with what its service does."""
    timers = [name for name in texts if name.endswith(".timer") and name not in ours]
    return [one for name in timers for one in _unmanaged_timers(name, texts, timezone)]


def services_beside(timer: str, texts: Mapping[str, str]) -> list[str]:
    """The services of a timer that stand in the same folder."""
    try:
        return [name for name in services_of(parse_unit(timer, texts[timer])) if name in texts]
    except UsageError:
        return []


def _unmanaged_timers(timer: str, texts: Mapping[str, str], timezone: str) -> list[Unmanaged]:
    """A timer that cannot be converted is nothing that a job could be compared with."""
    units = {name: texts[name] for name in (timer, *services_beside(timer, texts))}
    try:
        jobs = convert_systemd(units, timezone).document["jobs"]
    except (ManifestError, UsageError):
        return []
    services = [parse_unit(name, text) for name, text in units.items() if name != timer]
    limits = sorted({key for service in services for key in _limits(service)})
    found = [_unmanaged(timer, texts[timer], job, timezone)._replace(limits=tuple(limits)) for job in jobs]
    is_dynamic = any(one.text("Service", "DynamicUser", "no") in TRUE for one in services)
    return [one._replace(user=DYNAMIC_USER) for one in found] if is_dynamic else found


def _limits(service: Unit) -> Iterator[str]:
    """The settings of a service that take rights away, or change its groups."""
    for entry in service.entries:
        if entry.section == "Service" and entry.key.startswith(RESTRICTING) and entry.value not in NOT_SET:
            yield entry.key


def _unmanaged(timer: str, text: str, job: Mapping[str, Any], timezone: str) -> Unmanaged:
    command = job.get("command", "")
    told = command if isinstance(command, str) else shlex.join(command)
    meant = told.replace("$$", "$")
    return Unmanaged(
        name=timer,
        place=timer,
        content=text,
        schedules=tuple(job.get("schedules", [job["schedule"]] if "schedule" in job else [])),
        timezone=job.get("timezone", timezone),
        command=meant,
        user=job.get("user", ""),
        job=triggered_job(meant),
    )
