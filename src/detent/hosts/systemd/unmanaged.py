"""Finds the timers of other owners, for `detent adopt`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from detent.errors import UsageError
from detent.formats.systemd.convert import convert_systemd, services_of
from detent.formats.systemd.service import TRUE
from detent.formats.systemd.units import parse_unit
from detent.hosts.adoption import DYNAMIC_USER, Unmanaged, unmanaged_job
from detent.manifest.problems import ManifestError

RESTRICTING = (
    *("Ambient", "CapabilityBoundingSet", "Device", "Group", "IPAddress", "Inaccessible", "KeyringMode"),
    *("LockPersonality", "MemoryDeny", "NoExec", "NoNewPrivileges", "Private", "Proc", "Protect", "ReadOnly"),
    *("RemoveIPC", "Restrict", "Root", "SecureBits", "Supplementary", "SystemCall", "TemporaryFileSystem"),
)
NOT_SET = ("no", "false", "off", "0", "n", "f")


def find_unmanaged(texts: Mapping[str, str], ours: Collection[str], timezone: str) -> list[Unmanaged]:
    """Return the unmanaged timers in these unit files, with the work of their services."""
    timers = [name for name in texts if name.endswith(".timer") and name not in ours]
    return [entry for name in timers for entry in _entries(name, texts, timezone)]


def services_beside(timer: str, texts: Mapping[str, str]) -> list[str]:
    """Return the services of a timer that are in the same directory."""
    try:
        return [name for name in services_of(parse_unit(timer, texts[timer])) if name in texts]
    except UsageError:
        return []


def _entries(timer: str, texts: Mapping[str, str], timezone: str) -> list[Unmanaged]:
    """Return the jobs of a timer; none if it cannot be converted, as there is nothing to compare."""
    units = {name: texts[name] for name in (timer, *services_beside(timer, texts))}
    try:
        jobs = convert_systemd(units, timezone).document["jobs"]
    except (ManifestError, UsageError):
        return []
    services = [parse_unit(name, text) for name, text in units.items() if name != timer]
    settings = [entry for service in services for entry in service.entries if entry.section == "Service"]
    limits = {one.key for one in settings if one.key.startswith(RESTRICTING) and one.value not in NOT_SET}
    is_dynamic = any(one.text("Service", "DynamicUser", "no") in TRUE for one in services)
    found = [unmanaged_job(timer, texts[timer], job, timezone) for job in jobs]
    return [
        one._replace(limits=tuple(sorted(limits)), user=DYNAMIC_USER if is_dynamic else one.user)
        for one in found
    ]
