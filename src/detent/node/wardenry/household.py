"""Children of the same surroundings (directory, environment, user), and the calls that wait for one.

A start costs time too: n children that cost c each are done with W seconds of waiting work after
n·c + W/n, which is least for n = √(W/c).  So many are started, and not more: a burst of short calls does
not become a burst of children.  Where nobody has answered for a while, the calls are long, and each that
waits gets a child of its own.
"""

import socket
from collections import deque

from . import kernel
from .cgroups import Cgroup
from .charge import Call, CallOrder
from .output import Pipe
from .spawn import Failure, Order, Spawned, read_failure
from .trees import Tree

START_S = 15.0  # a child that is not ready by then will not be
START_COST_S = 0.05
STALLED_S = 0.05  # without an answer for so long, those who are at work will not be free soon


class Child:
    """A process that carries out calls, one at a time."""

    def __init__(self, household: "Household", wire: socket.socket, spawned: Spawned) -> None:
        self.household, self.wire, self.pid = household, wire, spawned.pid
        self.pipe, self._failure_fd = Pipe(spawned.output_fd), spawned.failure_fd
        self.cgroup: Cgroup | None = None
        self.tree: Tree
        self.call: Call | None = None
        self.calls, self.is_ready, self.is_fit = 0, False, True
        self.incoming = b""
        self.since = kernel.boottime()  # when it was last of use
        self.kill_by = self.since + START_S  # unless it is ready by then

    def read_failure(self) -> Failure | None:
        return read_failure(self._failure_fd)

    def close_failure(self) -> None:
        if self._failure_fd >= 0:
            Pipe(self._failure_fd).close()
            self._failure_fd = -1


class Household:
    def __init__(self, order: Order) -> None:
        self.order = order  # what starts a child
        self.idle: list[Child] = []
        self.waiting: deque[CallOrder] = deque()
        self.children = self.starting = 0  # those that are starting are children too
        self.is_dissolved = False
        self._mean_s, self._answered_at = 1.0, 0.0  # how long its calls take; slow, until we know better

    def learn(self, took_s: float, now: float) -> None:
        """A call was answered."""
        self._mean_s += (took_s - self._mean_s) / 8
        self._answered_at = now

    def wants_another(self, now: float) -> bool:
        if len(self.waiting) <= self.starting:
            return False
        has_stalled = now - self._answered_at > STALLED_S
        return has_stalled or self.children**2 * START_COST_S < len(self.waiting) * self._mean_s
