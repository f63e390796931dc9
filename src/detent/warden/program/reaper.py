"""Ends what a warden leaves when it dies and its node cannot: that is dead as well, or stopped.

A fork of the warden that waits for its end by a pipe and does nothing else.  A node's has one before anything
runs; a trigger's when its work goes on for longer than a moment, as most does not.  The node, if it is there,
does the same; it starts no other warden before all of this instance is gone, and this belongs to it.
"""

import os
from typing import NamedTuple

from .sweep import sweep

PATIENCE_S = 60.0  # for work in a system call that cannot be interrupted
OPEN_MAX = os.sysconf("SC_OPEN_MAX")
_ENDED_FD = 3


class Reaper(NamedTuple):
    """As its warden knows it."""

    pid: int
    wire: int  # which closes with the warden, however that ends

    def dismiss(self) -> None:
        """There is nothing left to end."""
        os.write(self.wire, b".")


def start_reaper(instance: str) -> Reaper:
    """Called by a warden of this instance."""
    ended, wire = os.pipe()
    pid = os.fork()
    if pid:
        os.close(ended)
        return Reaper(pid, wire)
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(_ENDED_FD):
            os.dup2(null, fd)
        if ended != _ENDED_FD:
            os.dup2(ended, _ENDED_FD)
        os.closerange(_ENDED_FD + 1, OPEN_MAX)  # the node's socket, the instance's lock, our other end
        if not os.read(_ENDED_FD, 1):
            sweep(instance, PATIENCE_S)
    finally:
        os._exit(0)
