"""What `detent doctor` tells of this host: its clock, how it can end processes, and what runs detent."""

from __future__ import annotations

import ctypes
import platform
import sqlite3
import sys
from collections.abc import Iterator

from detent import __version__
from detent.stores.base import Diagnosis
from detent.warden.program import kernel
from detent.warden.program.cgroups import find_cgroup

OFFSET_MAX_S = 1.0
_TIME_ERROR = 5  # what adjtimex answers while nobody keeps the clock
_TIMEX_BYTES = 512  # more than the kernel's struct needs, all zero: only ask


def host_rows() -> Iterator[Diagnosis]:
    yield _synchronised(clock_is_synchronised())
    yield _ending(find_cgroup())
    yield _orphans(sys.platform == "linux" and kernel.HAS_PROC)
    found = f"detent {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    yield Diagnosis("versions", "ok", found)


def clock_offset(offset_s: float) -> Diagnosis:
    """How far this host's clock is from the store's, which says what is due."""
    if abs(offset_s) < OFFSET_MAX_S:
        return Diagnosis("clock offset", "ok", f"less than {OFFSET_MAX_S:g} s from the store's clock")
    found = f"{abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} the store's clock"
    consequence = "nothing fires early or twice for it, but times in logs and in signatures are off"
    return Diagnosis("clock offset", "weak", found, consequence, "set the clock, and keep it with NTP")


def clock_is_synchronised() -> bool | None:
    """Does the kernel say that somebody keeps the clock?  None: it says nothing."""
    if sys.platform != "linux":
        return None
    answer = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if answer < 0 else answer != _TIME_ERROR


def _synchronised(is_kept: bool | None) -> Diagnosis:
    if is_kept:
        return Diagnosis("clock", "ok", "the kernel's clock is synchronised")
    found = "nobody keeps this clock" if is_kept is False else "this kernel does not say who keeps the clock"
    consequence = "a clock that drifts fires jobs at the wrong time, though never twice"
    return Diagnosis("clock", "weak", found, consequence, "run chrony or another NTP client")


def _ending(cgroup: str) -> Diagnosis:
    if cgroup:
        return Diagnosis("cgroup", "ok", f"every fire gets one of its own below {cgroup}, and is ended by it")
    consequence = "work is ended by descent: a daemon that hides well enough may outlive its fire"
    advice = "under systemd write Delegate=yes in the unit; in a container mount cgroup v2 writable"
    return Diagnosis("cgroup", "weak", "no cgroup v2 here that we may write to", consequence, advice)


def _orphans(has_linux: bool) -> Diagnosis:
    if has_linux:
        return Diagnosis("orphans", "ok", "what a dead node leaves is ended: subreaper, parent-death signal")
    found = "this system has no subreaper and no parent-death signal"
    consequence = "if the node and its warden are killed at once, their work goes on until the next start"
    return Diagnosis("orphans", "weak", found, consequence, "run nodes that matter on Linux")
