"""A pool: children with the same directory, environment and user, and the calls that wait for one of them.

Starting a child takes time, too.  n children that take c seconds each to start finish W seconds of waiting
calls after n·c + W/n, which is least for n = √(W/c).  The pool starts this many, so that a burst of short
calls does not become a burst of children.  If no call was answered for a while, calls are long, and each
waiting call gets a child of its own.
"""

from __future__ import annotations

import os
import socket
from collections import deque

from . import kernel
from .cgroups import Cgroup
from .output import Pipe
from .process_trees import ProcessTree
from .spawn import CommandOrder, Failure, Spawned, read_failure
from .task import CallOrder, CallTask

START_S = 15.0  # a child that is not ready by then is killed
RECEIVE = 64 * 1024
ANSWER_MAX = 256 * 1024  # bytes: a result, a reason, and little else
START_COST_S = 0.05
STALLED_S = 0.05  # no answer for this long: no child will be free soon


class StartPermits:
    """How many messages of its batch a child may still start.  The child takes a permit before each message.
    The kernel makes sure that a permit is either taken by the child or revoked by the warden, never both."""

    def __init__(self) -> None:
        flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE if hasattr(os, "eventfd") else 0
        self.fd = os.eventfd(0, flags) if flags else -1

    def grant(self, count: int) -> None:
        if count and self.fd >= 0:
            os.eventfd_write(self.fd, count)

    def revoke(self, count_max: int) -> int:
        """Take back the permits that the child has not taken, and return how many."""
        count = 0
        while count < count_max and self.fd >= 0:
            try:
                os.read(self.fd, 8)
            except BlockingIOError:
                break
            count += 1
        return count

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Child:
    """A process that runs calls, one at a time."""

    def __init__(self, pool: Pool, wire: socket.socket, spawned: Spawned, permits: StartPermits) -> None:
        self.pool, self.wire, self.pid, self.permits = pool, wire, spawned.pid, permits
        self.pipe, self._failure_fd = Pipe(spawned.output_fd), spawned.failure_fd
        self.cgroup: Cgroup | None = None
        self.tree: ProcessTree
        self.call: CallTask | None = None
        self.calls, self.is_ready, self.is_reusable = 0, False, True
        self.why_last = ""  # why it takes no further call
        self.incoming = self.outgoing = b""
        self.is_full = False  # whether its socket takes no more at the moment
        self.since = kernel.boottime()  # when it was started, or its last call ended
        self.kill_by = self.since + START_S  # unless it is ready by then

    def send(self) -> bool:
        """Send as much as its socket takes now.  False: the child is dead, or about to be."""
        try:
            self.outgoing = self.outgoing[self.wire.send(self.outgoing) :]
        except BlockingIOError:
            pass
        except OSError:
            self.outgoing = b""
            return False
        return True

    def receive(self) -> list[bytes] | None:
        """Return the lines that have arrived.  None: it has ended, or a line is too long."""
        data = b""
        try:
            while b"\n" not in data and len(self.incoming) < ANSWER_MAX:
                data = self.wire.recv(RECEIVE)
                if not data:
                    return None
                self.incoming += data
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self.incoming = self.incoming.split(b"\n")
        return lines or None

    def read_failure(self) -> Failure | None:
        return read_failure(self._failure_fd)

    def close_failure(self) -> None:
        if self._failure_fd >= 0:
            os.close(self._failure_fd)
            self._failure_fd = -1


class Pool:
    def __init__(self, order: CommandOrder, size_max: int, setup: bytes = b"") -> None:
        self.order, self._size_max = order, size_max  # the command of a child, and how many there may be
        self.setup = setup  # the first line that each child gets
        self.idle: list[Child] = []
        self.waiting: deque[CallOrder] = deque()
        self.children = self.starting = 0  # `children` includes those that are starting
        self.is_closed = False
        self._mean_s, self._answered_at = 1.0, 0.0  # how long calls take: a guess, until some have ended

    def learn(self, took_s: float, now: float) -> None:
        self._mean_s += (took_s - self._mean_s) / 8
        self._answered_at = now

    def wants_another(self, now: float) -> bool:
        if len(self.waiting) <= self.starting or self.children >= self._size_max:
            return False
        has_stalled = now - self._answered_at > STALLED_S
        return has_stalled or self.children**2 * START_COST_S < len(self.waiting) * self._mean_s
