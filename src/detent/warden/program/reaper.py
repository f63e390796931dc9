"""Kills the processes that a dead warden left, if its node cannot: the node is dead as well, or stopped.

The reaper is a fork of the warden that only waits for the end of the warden, by a pipe.  A node's warden has
one before anything runs; a trigger's warden has one when its work takes longer than a moment.  A living node
does the same, and starts no other warden before all processes of the instance, with the reaper, are gone.
"""

import os
from typing import NamedTuple

from .sweep import sweep

PATIENCE_S = 60.0  # for processes in a system call that cannot be interrupted
OPEN_MAX = os.sysconf("SC_OPEN_MAX")
_WARDEN_FD = 3


class Reaper(NamedTuple):
    pid: int
    pipe: int  # closes with the warden, however the warden ends

    def dismiss(self) -> None:
        """All tasks are gone: there is nothing to kill."""
        os.write(self.pipe, b".")


def start_reaper(instance: str) -> Reaper:
    reader, pipe = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reader)
        return Reaper(pid, pipe)
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(_WARDEN_FD):
            os.dup2(null, fd)
        if reader != _WARDEN_FD:
            os.dup2(reader, _WARDEN_FD)
        os.closerange(_WARDEN_FD + 1, OPEN_MAX)  # the node's socket, the instance's lock, our other end
        if not os.read(_WARDEN_FD, 1):
            sweep(instance, PATIENCE_S)
    finally:
        os._exit(0)
