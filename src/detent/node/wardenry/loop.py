"""The warden: one thread, one loop; it starts, watches and ends the processes of a node.

1. Work that is no longer trusted is ended: SIGTERM at `term_by`, SIGKILL at `trusted_by`, both by the
   clock that also counts sleep, looked at least once a second.  Late work is not started at all.
2. It is reported gone when its last process is gone, and not before.
3. When the node's socket closes, everything is ended, and then the warden itself.
4. It never blocks: not on a command's output, not on the node.

The wire: one JSON object a line.  From the node: `{"do": "spawn", …Order}`, `{"do": "extend",
"terms": {id: [trusted_by, term_by]}}`, `{"do": "stop", "id", "kill_after_s"}`, `{"do": "ping"}`,
`{"do": "bye"}`.  To the node: `{"did": "hear"}`, `{"did": "started", "id", "pid"}`, `{"did": "refused",
"id"}`, `{"did": "gone", "id", "status", "cause", "error", "took_s", "tail"}` with the tail in base 64.
"""

import base64
import json
import math
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from . import kernel
from .cgroups import Cgroup
from .charge import Charge
from .output import Output
from .spawn import CHANGED_SIGNALS, DEAF_TO, NOT_RUNNABLE, Order, spawn, to_bytes
from .trees import Brood, Descent, Group, Strays, Together, Tree, tag_of

LOOK_S = 1.0  # the longest sleep
ENDING_LOOK_S = 0.05  # while something is about to be gone
RECEIVE = 256 * 1024


class Warden:
    """Everything in the care of one warden."""

    def __init__(self, node: socket.socket, cgroup: str) -> None:
        self._node, self._cgroup = node, Path(cgroup) if cgroup else None
        self._incoming, self._outgoing = b"", b""
        self._is_alone = False
        self._charges: dict[str, Charge] = {}
        self._mains: dict[int, Charge] = {}
        self._brood = Brood()
        self._unremoved: list[Tree] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(node, selectors.EVENT_READ, self._serve_node)

    def run(self) -> None:
        wakeups = self._wake_on_child_signals()
        while self._charges or not self._is_alone:
            for key, mask in self._selector.select(self._pause_s()):
                key.data(mask)
            self._reap()
            self._look_after_charges()
        wakeups.close()
        if self._cgroup:
            Cgroup(self._cgroup).remove()

    def _wake_on_child_signals(self) -> socket.socket:
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(reader, selectors.EVENT_READ, lambda _: reader.recv(4096))
        return reader

    def _pause_s(self) -> float:
        """Until something is to be done; but what should be over by now is looked at again and again."""
        if any(charge.status is not None for charge in self._charges.values()):
            return ENDING_LOOK_S
        next_at = min((charge.next_at() for charge in self._charges.values()), default=math.inf)
        left_s = next_at - kernel.boottime()
        return min(left_s, LOOK_S) if left_s > 0 else ENDING_LOOK_S

    # The node.

    def _serve_node(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ and self._receive():
            *lines, self._incoming = self._incoming.split(b"\n")
            for line in lines:
                if not self._is_alone:
                    self._obey(json.loads(line))

    def _receive(self) -> bool:
        """Everything that the node has sent.  False: it is gone, and what it wanted does not matter."""
        try:
            while data := self._node.recv(RECEIVE):
                self._incoming += data
        except BlockingIOError:
            return True
        except OSError:
            pass
        self._hang_up()
        return False

    def _hang_up(self) -> None:
        if not self._is_alone:
            self._is_alone = True
            self._selector.unregister(self._node)
            self._node.close()
        now = kernel.boottime()
        for charge in self._charges.values():
            charge.hang_up(now)

    def _obey(self, message: dict[str, Any]) -> None:
        verbs: dict[str, Callable[[dict[str, Any]], None]] = {
            "spawn": self._spawn,
            "extend": self._extend,
            "stop": self._stop,
            "ping": lambda _: self._say("hear"),
            "bye": lambda _: self._hang_up(),
        }
        verbs[message.pop("do")](message)

    def _say(self, did: str, **facts: object) -> None:
        if not self._is_alone:
            self._outgoing += json.dumps({"did": did, **facts}).encode() + b"\n"
            self._flush()

    def _flush(self) -> None:
        try:
            self._outgoing = self._outgoing[self._node.send(self._outgoing) :]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up()
            return
        write = selectors.EVENT_WRITE if self._outgoing else 0
        self._selector.modify(self._node, selectors.EVENT_READ | write, self._serve_node)

    # What it asks for.

    def _spawn(self, message: dict[str, Any]) -> None:
        order = Order(**message)
        if kernel.boottime() >= order.term_by:
            self._say("refused", id=order.id)
            return
        try:
            charge = self._start(order)
        except OSError as error:  # no more processes, or descriptors
            self._say("started", id=order.id, pid=0)
            self._say_gone(order.id, NOT_RUNNABLE, f"could not be started: {error.strerror}")
            return
        self._charges[charge.id] = self._mains[charge.pid] = charge
        self._brood.mains.add(charge.pid)
        self._selector.register(charge.output_fd, selectors.EVENT_READ, lambda _: self._read(charge))
        self._say("started", id=charge.id, pid=charge.pid)

    def _start(self, order: Order) -> Charge:
        cgroup = self._make_cgroup(order)
        spawned = spawn(order, joins=lambda: _join(cgroup))
        return Charge(order, spawned, self._tree(order, spawned.pid, cgroup), Output(order.output_path))

    def _make_cgroup(self, order: Order) -> Cgroup | None:
        """Work whose children are left on purpose has none: it would end with its node's."""
        if self._cgroup is None or order.children == "leave":
            return None
        cgroup = Cgroup(self._cgroup / quote(order.id, safe=""))
        try:
            cgroup.create()
        except OSError:
            return None
        return cgroup

    def _tree(self, order: Order, pid: int, cgroup: Cgroup | None) -> Tree:
        if not kernel.HAS_PROC:
            return Group(pid)
        tag = tag_of(frozenset(to_bytes(f"{name}={value}") for name, value in order.env.items()))
        if cgroup is None:
            return Descent(self._brood, pid, tag, leaves=order.children == "leave")
        cgroup.main = pid
        return Together(cgroup, Strays(self._brood, pid, tag, cgroup.path.parent.name))

    def _extend(self, message: dict[str, Any]) -> None:
        for id, (trusted_by, term_by) in message["terms"].items():
            if charge := self._charges.get(id):
                charge.extend(trusted_by, term_by)

    def _stop(self, message: dict[str, Any]) -> None:
        if charge := self._charges.get(message["id"]):
            charge.stop(kernel.boottime(), message["kill_after_s"])

    # Its charges.

    def _read(self, charge: Charge) -> None:
        if not charge.read():
            self._close_output(charge)

    def _close_output(self, charge: Charge) -> None:
        if charge.output_fd >= 0:
            self._selector.unregister(charge.output_fd)
            charge.close_output()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if charge := self._mains.pop(pid, None):
                charge.main_ended(os.waitstatus_to_exitcode(status))

    def _look_after_charges(self) -> None:
        now = kernel.boottime()
        for charge in list(self._charges.values()):
            if charge.is_gone():
                self._let_go(charge)
            else:
                charge.check(now)
        if self._unremoved:
            self._remove_trees()

    def _let_go(self, charge: Charge) -> None:
        if charge.output_fd >= 0:
            charge.drain()
            if not charge.is_left():
                self._close_output(charge)
        del self._charges[charge.id]
        self._brood.mains.discard(charge.pid)
        self._unremoved.append(charge.tree)
        self._say_gone(
            charge.id,
            charge.status,
            charge.error,
            cause=charge.cause(),
            took_s=kernel.boottime() - charge.started_at,
            tail=base64.b64encode(charge.output.tail).decode(),
        )

    def _say_gone(self, id: str, status: int | None, error: str, **facts: object) -> None:
        known = {"cause": "error", "took_s": 0.0, "tail": ""}
        self._say("gone", id=id, status=status, error=error, **(known | facts))

    def _remove_trees(self) -> None:
        self._unremoved = [tree for tree in self._unremoved if not tree.remove()]


def _join(cgroup: Cgroup | None) -> None:
    if cgroup:
        (cgroup.path / "cgroup.procs").write_bytes(b"0")


def _settle_signals() -> None:
    """Ignore what is meant for the node; and nothing that somebody before us ignored, as a command
    would be started with that."""
    for signum in signal.valid_signals() - {*CHANGED_SIGNALS, signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)
    for signum in DEAF_TO:
        signal.signal(signum, signal.SIG_IGN)


def main(arguments: list[str]) -> int:
    """`SOCKET_FD LOCK_FD CGROUP`.  The lock is only held: it lives as long as node or warden lives."""
    _settle_signals()
    kernel.become_subreaper()
    try:
        if int(arguments[1]) >= 0:
            os.set_inheritable(int(arguments[1]), False)
        node = socket.socket(fileno=int(arguments[0]))
        node.setblocking(False)
        Warden(node, arguments[2]).run()
    except Exception as error:
        # Our end makes the node bury what we leave, so this is safe; it must only not go unseen.
        sys.stderr.write(f"detent: the warden failed ({type(error).__name__}: {error})\n")
        return 70
    return 0
