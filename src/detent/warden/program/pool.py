"""Children of the same surroundings (directory, environment, user), and the calls that wait for one.

A start costs time too: n children that cost c each are done with W seconds of waiting work after
n·c + W/n, which is least for n = √(W/c).  So many are started, and not more: a burst of short calls does
not become a burst of children.  Where nobody has answered for a while, the calls are long, and each that
waits gets a child of its own.
"""

from __future__ import annotations

import os
import socket
from collections import deque

from . import kernel
from .cgroups import Cgroup
from .output import Pipe
from .process_trees import Tree
from .spawn import Failure, Order, Spawned, read_failure
from .task import CallOrder, CallTask

START_S = 15.0  # a child that is not ready by then will not be
RECEIVE = 64 * 1024
ANSWER_MAX = 256 * 1024  # a result, a reason, and little else
START_COST_S = 0.05
STALLED_S = 0.05  # without an answer for so long, those who are at work will not be free soon


class Turns:
    """How many messages of its call a child may still begin.  It takes a turn before each: the kernel sees to
    it that what it took is not recalled, and that what was recalled it does not take."""

    def __init__(self) -> None:
        flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE if hasattr(os, "eventfd") else 0
        self.fd = os.eventfd(0, flags) if flags else -1

    def give(self, count: int) -> None:
        if count and self.fd >= 0:
            os.eventfd_write(self.fd, count)

    def recall(self, most: int) -> int:
        """How many it had not taken."""
        count = 0
        while count < most and self.fd >= 0 and self._take():
            count += 1
        return count

    def _take(self) -> bool:
        try:
            return bool(os.read(self.fd, 8))
        except BlockingIOError:
            return False

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Child:
    """A process that carries out calls, one at a time."""

    def __init__(self, pool: Pool, wire: socket.socket, spawned: Spawned, turns: Turns) -> None:
        self.pool, self.wire, self.pid, self.turns = pool, wire, spawned.pid, turns
        self.pipe, self._failure_fd = Pipe(spawned.output_fd), spawned.failure_fd
        self.cgroup: Cgroup | None = None
        self.tree: Tree
        self.call: CallTask | None = None
        self.calls, self.is_ready, self.is_fit = 0, False, True
        self.why_last = ""  # why it carries out no other call
        self.incoming = self.outgoing = b""
        self.is_full = False  # it does not take all that is to be said: more when it can
        self.since = kernel.boottime()  # when it was last of use
        self.kill_by = self.since + START_S  # unless it is ready by then

    def send(self) -> bool:
        """As much as it takes now.  False: it is dead, or about to be."""
        try:
            self.outgoing = self.outgoing[self.wire.send(self.outgoing) :]
        except BlockingIOError:
            pass
        except OSError:
            self.outgoing = b""
            return False
        return True

    def receive(self) -> list[bytes] | None:
        """Lines that it said.  None: it has ended, or says too much."""
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
            Pipe(self._failure_fd).close()
            self._failure_fd = -1


class Pool:
    def __init__(self, order: Order, most: int, setup: bytes = b"") -> None:
        self.order, self._most = order, most  # what starts a child, and how many there may be
        self.setup = setup  # what each is sent first
        self.idle: list[Child] = []
        self.waiting: deque[CallOrder] = deque()
        self.children = self.starting = 0  # those that are starting are children too
        self.is_closed = False
        self._mean_s, self._answered_at = 1.0, 0.0  # how long its calls take; slow, until we know better

    def learn(self, took_s: float, now: float) -> None:
        """A call was answered."""
        self._mean_s += (took_s - self._mean_s) / 8
        self._answered_at = now

    def wants_another(self, now: float) -> bool:
        if len(self.waiting) <= self.starting or self.children >= self._most:
            return False
        has_stalled = now - self._answered_at > STALLED_S
        return has_stalled or self.children**2 * START_COST_S < len(self.waiting) * self._mean_s
