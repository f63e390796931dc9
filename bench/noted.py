"""The functions that the benchmarks of calls run: each writes down the time, and does nothing else.

Each appends eight bytes per instant to the file in $BENCH_NOTES, in one write, which is atomic.
"""

import os
import struct
import time
from pathlib import Path

from detent import Fire

VARIABLE = "BENCH_NOTES"
_fd = -1


def note() -> None:
    _append(struct.pack("<d", time.time()))


def _append(noted: bytes) -> None:
    global _fd
    if _fd < 0:
        _fd = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(_fd, noted)


async def note_in_loop() -> None:
    note()


async def note_due(fire: Fire) -> None:
    """Write down when the fire was due, and the time."""
    _append(struct.pack("<dd", fire.due_at.timestamp(), time.time()))


def read_notes(path: Path) -> list[float]:
    """Return the times in the order of writing."""
    return [instant for (instant,) in struct.iter_unpack("<d", path.read_bytes() if path.exists() else b"")]


def read_dues(path: Path) -> list[tuple[float, float]]:
    """Return when each fire was due and when its function was called."""
    return list(struct.iter_unpack("<dd", path.read_bytes() if path.exists() else b""))
