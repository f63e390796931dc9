"""The trigger's side of its warden: a fork of this process, which has one thread.  It owns the work.

1. When the trigger dies, its socket closes: the warden ends all processes of the work, and then itself.
2. Work that takes longer than a moment has a reaper (`program/reaper.py`), in case trigger and warden are
   both killed.
3. If the warden dies, its processes become children of the trigger, which is a subreaper.  The trigger
   kills them, and the attempt is lost.  A warden that is stopped ends no work in time: it is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING, NoReturn

from detent import clock
from detent.model import End, Outcome
from detent.rules.outcomes import WARDEN_DIED
from detent.rules.trust import term_by
from detent.runners.running import LaneHeld, TooLate
from detent.warden.program import kernel, loop
from detent.warden.program.cgroups import find_cgroup, instance_directory
from detent.warden.signals import Signals, hold_back, let_through
from detent.warden.wire import Event, Gone, Held, Pong, Replaced, Started, WardenProtocol, end_of_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from detent.runners.call.spec import CallSpec
    from detent.runners.command import Spec

RECEIVE = 1 << 20  # the tail of the output in base 64, and little else
PING_S, UNANSWERED_MAX = 1.0, 5  # a warden that answers none of so many pings is killed
START_S = 30.0  # for the answer to an order, on a busy machine
FAREWELL_S = 5.0
CLEAN_UP_S = 10.0  # how long the processes of a dead warden may take to end


class _WardenDied(Exception):
    """The warden is dead, and so are all its processes."""


class BlockingTask:
    def __init__(self, client: BlockingWardenClient, spec: Spec | CallSpec, trusted_by: float) -> None:
        self._client, self._spec, self._trusted_by = client, spec, trusted_by
        self._stopped: Outcome | None = None

    @property
    def terms(self) -> tuple[float, float]:
        """When it gets SIGKILL, and when SIGTERM."""
        by, spec = self._trusted_by, self._spec
        return by, term_by(by, spec.ttl_s, spec.kill_after_s)

    def extend(self, trusted_by: float) -> None:
        """The claim was renewed: trust ends later."""
        if trusted_by > self._trusted_by:
            self._trusted_by = trusted_by
            self._client.order(self._client.protocol.extend, self._spec.id, *self.terms)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """The outcome of the first stop counts; a further stop can only shorten the time until SIGKILL."""
        self._stopped = self._stopped or why
        self._client.order(self._client.protocol.stop, self._spec.id, kill_after_s)

    def wait(self, seconds: float, signals_seen: int) -> End | None:
        """Return how it ended.  None: it still runs after so long, or another signal has come."""
        try:
            event = self._client.wait(seconds, signals_seen)
        except _WardenDied:
            return End(self._stopped or WARDEN_DIED)
        return end_of_task(self._spec, event, self._stopped) if isinstance(event, Gone) else None


class BlockingWardenClient:
    def __init__(self, instance: str, lock_fd: int, signals: Signals) -> None:
        self._instance, self._signals, self.protocol = instance, signals, WardenProtocol()
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._has_reaper = False
        kernel.become_subreaper()
        self._socket, theirs = socket.socketpair()
        hold_back()
        self.pid = os.fork()
        if self.pid == 0:
            _run_warden(theirs.detach(), lock_fd, instance)
        let_through()
        theirs.close()

    def start(self, spec: Spec | CallSpec, trusted_by: float) -> BlockingTask:
        """Start the work, to be gone by `trusted_by`.  Raises `TooLate` or `LaneHeld`."""
        task = BlockingTask(self, spec, trusted_by)
        self.order(self.protocol.start, spec, *task.terms)
        try:
            event = self._wait_whatever_signals_come(START_S)
        except _WardenDied:
            raise TooLate from None
        match event:
            case Started():
                return task
            case Held(_, by):
                raise LaneHeld(by)
            case Gone():  # it could not be started: `wait` returns this
                self._events.insert(0, event)
                return task
        raise TooLate

    def start_reaper(self) -> None:
        """The work takes longer: from now on it is ended even if trigger and warden are killed."""
        if not self._has_reaper:
            self.order(self.protocol.start_reaper, self._instance)
        self._has_reaper = True

    def order(self, verb: Callable[..., None], *arguments: object) -> None:
        """Send one order, a method of the protocol.  The thread that renews the claim calls this too."""
        with self._lock:
            verb(*arguments)
            with contextlib.suppress(OSError):  # the warden is gone, as the next `wait` finds
                self._socket.sendall(self.protocol.data_to_send())

    def wait(self, seconds: float, signals_seen: int) -> Event | None:
        """Return the next event of the task.  None: there was none in this time, or another signal came."""
        until, unanswered = clock.boottime() + seconds, 0
        while (left := until - clock.boottime()) > 0 and self._signals.count == signals_seen:
            if self._events:
                event = self._events.pop(0)
                if not isinstance(event, Pong | Replaced):  # its only child has had its only call
                    return event
            elif self._signals.wait(min(left, PING_S), self._socket.fileno()):
                unanswered = 0
                self._receive()
            elif left > PING_S:
                unanswered += 1
                self._ping(unanswered)
        return None

    def close(self) -> None:
        """Have the warden end what still runs, and then itself."""
        self._socket.shutdown(socket.SHUT_WR)
        until = clock.boottime() + FAREWELL_S
        while (left := until - clock.boottime()) > 0:
            if self._signals.wait(left, self._socket.fileno()) and not self._read():
                os.waitpid(self.pid, 0)
                return
        with contextlib.suppress(_WardenDied):
            self._clean_up_after_warden()

    def _wait_whatever_signals_come(self, seconds: float) -> Event | None:
        until = clock.boottime() + seconds
        while (left := until - clock.boottime()) > 0:
            if event := self.wait(left, self._signals.count):
                return event
        return None

    def _receive(self) -> None:
        data = self._read()
        if not data:
            self._clean_up_after_warden()
        self._events += self.protocol.receive(data)

    def _read(self) -> bytes:
        try:
            return self._socket.recv(RECEIVE)
        except OSError:
            return b""

    def _ping(self, unanswered: int) -> None:
        """Pings are counted, and not seconds, as this process may have been stopped itself."""
        if unanswered > UNANSWERED_MAX:
            self._clean_up_after_warden()
        self.order(self.protocol.ping)

    def _clean_up_after_warden(self) -> NoReturn:
        """The warden is dead or does not answer: kill it and everything that it left."""
        from detent.warden.program.sweep import orphans_since, sweep

        born = kernel.stat(self.pid)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        sweep(self._instance, CLEAN_UP_S, lambda: orphans_since(born.started if born else 0))
        raise _WardenDied


def _run_warden(wire: int, lock_fd: int, instance: str) -> NoReturn:
    """In the fork: close the trigger's files, and be a warden."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        _close_all_but(wire, lock_fd)
        base = find_cgroup()
        let_through()  # the warden ignores these signals from its first step on
        os._exit(loop.main([str(wire), str(lock_fd), instance_directory(base, instance) if base else ""]))
    finally:
        os._exit(70)


def _close_all_but(*kept: int) -> None:
    """Close all descriptors but these and the standard streams."""
    since = 3
    for fd in sorted(fd for fd in kept if fd >= 3):
        if since < fd:  # an empty range, from 0 to 0, would be every file
            os.closerange(since, fd)
        since = fd + 1
    os.closerange(since, os.sysconf("SC_OPEN_MAX"))
