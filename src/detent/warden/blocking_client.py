"""The trigger's side of its warden: a fork of this process, as it has one thread, that owns the work.

1. The wire is that of `warden/program/loop.py`.  When the trigger dies, however that comes, the wire closes,
   and the warden ends the whole tree of the work, and itself.
2. Work that is not over in a moment has a reaper (`warden/program/reaper.py`), for when both are killed.
3. Where the warden dies, what it left comes to us, as we are a subreaper: it is ended, and the attempt lost.
   One that is stopped ends nothing in time: it is killed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
from typing import TYPE_CHECKING, Any, NoReturn

from detent import clock
from detent.model import End, Outcome
from detent.rules.outcomes import WARDEN_DIED
from detent.rules.trust import term_by
from detent.runners.command import ProcessExit, Spec, end_of
from detent.runners.running import LaneHeld, TooLate
from detent.warden.program import kernel, loop
from detent.warden.program.cgroups import instance_directory, own_cgroup
from detent.warden.signals import Signals, hold_back, let_through
from detent.warden.wire import base, order_of, register, written

if TYPE_CHECKING:
    from detent.runners.call.spec import CallSpec

RECEIVE = 1 << 20  # a tail in base 64 and little else
PING_S, UNHEARD_MAX = 1.0, 5  # a warden that answers none of so many pings is killed
START_S = 30.0  # for an answer that follows at once, on a busy machine
FAREWELL_S = 5.0
CLEAN_UP_S = 10.0  # how long what a dead warden left may take to be gone


class _Died(Exception):
    """The warden is gone, and so is all that it left."""


class BlockingTask:
    """The work of one attempt, in the warden's task."""

    def __init__(self, warden: BlockingWardenClient, spec: Spec | CallSpec, trusted_by: float) -> None:
        self._warden, self._spec, self._trusted_by = warden, spec, trusted_by
        self._stopped: Outcome | None = None

    @property
    def terms(self) -> tuple[float, float]:
        """SIGKILL by then, SIGTERM by then."""
        by, spec = self._trusted_by, self._spec
        return by, term_by(by, spec.ttl_s, spec.kill_after_s)

    def extend(self, trusted_by: float) -> None:
        """The claim was renewed: trust ends later."""
        if trusted_by > self._trusted_by:
            self._trusted_by = trusted_by
            self._warden.send({"do": "extend", "terms": {self._spec.id: self.terms}})

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """The first reason stands; another stop can only leave it less time."""
        self._stopped = self._stopped or why
        self._warden.send({"do": "stop", "id": self._spec.id, "kill_after_s": kill_after_s})

    def wait(self, seconds: float, heard: int) -> End | None:
        """How it ended; None: it goes on after so long, or more signals came than were heard of."""
        try:
            said = self._warden.hear(seconds, heard)
        except _Died:
            return End(self._stopped or WARDEN_DIED)
        if not said:
            return None
        tail = base64.b64decode(said["tail"])
        gone = ProcessExit(said["status"], said["cause"], said["error"], said["took_s"], tail)
        return end_of(gone, self._spec.timeout_s, self._stopped)._replace(result=said["result"])


class BlockingWardenClient:
    def __init__(self, instance: str, lock_fd: int, signals: Signals) -> None:
        self._instance, self._signals, self._incoming = instance, signals, b""
        self._inbox: list[dict[str, Any]] = []  # and not yet told to who hears
        self._has_reaper = False
        kernel.become_subreaper()
        self._wire, theirs = socket.socketpair()
        hold_back()
        self.pid = os.fork()
        if self.pid == 0:
            _be_warden(theirs.detach(), lock_fd, instance)
        let_through()
        theirs.close()

    def start(self, spec: Spec | CallSpec, trusted_by: float) -> BlockingTask:
        """Start it, to be gone by `trusted_by` at the latest."""
        running = BlockingTask(self, spec, trusted_by)
        self.send(base(spec.base) if isinstance(spec, Spec) else register(spec.pool))
        self.send(order_of(spec, *running.terms))
        try:
            said = self._hear_all(START_S)
        except _Died:
            raise TooLate from None
        match said.get("did"):
            case "started":
                return running
            case "held":
                raise LaneHeld(said["by"])
        raise TooLate

    def start_reaper(self) -> None:
        """The work goes on: from now on somebody ends it should we both be killed."""
        if not self._has_reaper:
            self.send({"do": "start_reaper", "instance": self._instance})
        self._has_reaper = True

    def send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it is gone, as whoever hears next will notice
            self._wire.sendall(written(message) + b"\n")

    def hear(self, seconds: float, heard: int) -> dict[str, Any]:
        """What it says within so long; nothing: it said nothing, or another signal came than these."""
        until, unheard = clock.boottime() + seconds, 0
        while (left := until - clock.boottime()) > 0 and self._signals.count == heard:
            if self._inbox:
                said = self._inbox.pop(0)
                if said["did"] not in ("hear", "replaced"):  # its only child has had its only call
                    return said
            elif b"\n" in self._incoming:
                line, _, self._incoming = self._incoming.partition(b"\n")
                self._inbox += json.loads(line)
            elif self._signals.wait(min(left, PING_S), self._wire.fileno()):
                unheard = 0
                self._receive()
            elif left > PING_S:
                unheard += 1
                self._ping(unheard)
        return {}

    def close(self) -> None:
        """It ends what it still has, and itself."""
        self._wire.shutdown(socket.SHUT_WR)
        until = clock.boottime() + FAREWELL_S
        while (left := until - clock.boottime()) > 0:
            if self._signals.wait(left, self._wire.fileno()) and not self._read():
                os.waitpid(self.pid, 0)
                return
        with contextlib.suppress(_Died):
            self._clean_up_after_warden()

    def _hear_all(self, seconds: float) -> dict[str, Any]:
        """As `hear`, whatever signals come."""
        until = clock.boottime() + seconds
        while (left := until - clock.boottime()) > 0:
            if said := self.hear(left, self._signals.count):
                return said
        return {}

    def _receive(self) -> None:
        data = self._read()
        if not data:
            self._clean_up_after_warden()
        self._incoming += data

    def _read(self) -> bytes:
        try:
            return self._wire.recv(RECEIVE)
        except OSError:
            return b""

    def _ping(self, unheard: int) -> None:
        """Counted in pings and not in seconds, as it may be us who were stopped."""
        if unheard > UNHEARD_MAX:
            self._clean_up_after_warden()
        self.send({"do": "ping"})

    def _clean_up_after_warden(self) -> NoReturn:
        """It is dead, or as good as dead: make it so, and everything that it left."""
        from detent.warden.program.sweep import orphans_since, sweep

        born = kernel.stat(self.pid)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        sweep(self._instance, CLEAN_UP_S, lambda: orphans_since(born.started if born else 0))
        raise _Died


def _be_warden(wire: int, lock_fd: int, instance: str) -> NoReturn:
    """In the fork: nothing of the trigger's is used any more, and its files are closed."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        _close_all_but(wire, lock_fd)
        base = own_cgroup()
        let_through()  # the warden is deaf to them from its first step on
        os._exit(loop.main([str(wire), str(lock_fd), instance_directory(base, instance) if base else ""]))
    finally:
        os._exit(70)


def _close_all_but(*kept: int) -> None:
    """And the standard streams."""
    since = 3
    for fd in sorted(fd for fd in kept if fd >= 3):
        if since < fd:  # an empty range, from 0 to 0, would be every file
            os.closerange(since, fd)
        since = fd + 1
    os.closerange(since, os.sysconf("SC_OPEN_MAX"))
