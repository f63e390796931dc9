"""Ends what a warden leaves when it dies and its node cannot: that is dead as well, or stopped.

A fork of the warden, before anything runs, that waits for its end by a pipe and does nothing else.  The
node, if it is there, does the same; it starts no other warden before all of this life is gone, and this
belongs to it.
"""

import os

from .sweep import sweep

PATIENCE_S = 60.0  # for work in a system call that cannot be interrupted
OPEN_MAX = os.sysconf("SC_OPEN_MAX")
_ENDED_FD = 3


def mourn(life: str) -> None:
    """Called by a warden of this life.  Its end of the pipe closes with it, however it ends."""
    ended, _ = os.pipe()
    if os.fork():
        os.close(ended)
        return
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(_ENDED_FD):
            os.dup2(null, fd)
        if ended != _ENDED_FD:
            os.dup2(ended, _ENDED_FD)
        os.closerange(_ENDED_FD + 1, OPEN_MAX)  # the node's socket, the life's lock, our other end
        os.read(_ENDED_FD, 1)
        sweep(life, PATIENCE_S)
    finally:
        os._exit(0)
