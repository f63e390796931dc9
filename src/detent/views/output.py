"""Reads the output of a running attempt from the files of its node, where they are on this host."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from detent.model import Row
from detent.stores.base import Store, app_of
from detent.views.nodes import live_nodes
from detent.warden.instances import output_path

CHUNK = 64 * 1024


class SegmentReader:
    """Reads the output of a running attempt, from the oldest byte that is kept.

    The warden renames PATH to PATH.1 when it is full, and starts a new PATH.  A segment that is open here
    can be read to its end even after it was renamed or removed.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._older = path, path.with_name(path.name + ".1")
        self._newest: BinaryIO | None = None
        self.has_gap = False  # a segment was removed before it was read

    def read(self) -> Iterator[bytes]:
        """Yield what was written since the last call."""
        if self._newest is None:
            self._newest = _open(self._path)
            older = _open(self._older)
            if older and not _is_same(older, self._newest):
                yield from _drain(older)
        yield from _drain(self._newest)
        if self._newest and self._is_renamed(self._newest):
            yield from self._read_next_segments(self._newest)

    def close(self) -> None:
        if self._newest:
            self._newest.close()

    def _is_renamed(self, known: BinaryIO) -> bool:
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(known.fileno()))
        except OSError:  # removed: the command has ended
            return False

    def _read_next_segments(self, known: BinaryIO) -> Iterator[bytes]:
        older = _open(self._older)
        yield from _drain(known)
        if older and not _is_same(older, known):
            self.has_gap = True  # other segments may have come and gone before this one
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


def find_output(store: Store, row: Row) -> SegmentReader | None:
    """The output of a running attempt; None if its node is on another host."""
    for node in live_nodes(store, app_of(row.fire.job)):
        if node.instance == row.node and node.host == socket.gethostname():
            return SegmentReader(Path(output_path(str(node.outputs), row.fire.run_id, row.attempt)))
    return None
