"""Reads what a running command has written so far, and what it goes on to write.

Its file has two segments: when PATH is full it becomes PATH.1, and another PATH begins.  A segment
that is open here can be read to its end, also when it was renamed or removed meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

CHUNK = 64 * 1024


class SegmentReader:
    """The output of one attempt, from the oldest byte that is kept."""

    def __init__(self, path: Path) -> None:
        self._path, self._older = path, path.with_name(path.name + ".1")
        self._newest: BinaryIO | None = None
        self.has_gap = False  # something was written and taken away before it was read

    def read(self) -> Iterator[bytes]:
        """All that came since the last time."""
        if self._newest is None:
            self._newest = _open(self._path)
            older = _open(self._older)
            if older and not _is_same(older, self._newest):
                yield from _drain(older)
        yield from _drain(self._newest)
        if self._newest and self._has_turned(self._newest):
            yield from self._turn(self._newest)

    def close(self) -> None:
        if self._newest:
            self._newest.close()

    def _has_turned(self, known: BinaryIO) -> bool:
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(known.fileno()))
        except OSError:  # removed: the command has ended
            return False

    def _turn(self, known: BinaryIO) -> Iterator[bytes]:
        older = _open(self._older)
        yield from _drain(known)
        if older and not _is_same(older, known):
            self.has_gap = True  # at least this segment lies in between, perhaps others before it
            yield from _drain(older)
        known.close()
        self._newest = _open(self._path)
        yield from _drain(self._newest)


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _drain(segment: BinaryIO | None) -> Iterator[bytes]:
    while segment and (data := segment.read(CHUNK)):
        yield data


def _is_same(one: BinaryIO, other: BinaryIO | None) -> bool:
    return other is not None and os.path.sameopenfile(one.fileno(), other.fileno())
