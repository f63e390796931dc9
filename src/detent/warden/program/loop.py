"""The warden: one thread, one loop; it starts, watches and ends the processes of a node.

1. Work that is no longer trusted is ended: SIGTERM at `term_by`, SIGKILL at `trusted_by`, both by the
   clock that also counts sleep, looked at least once a second.  Late work is not started at all.
2. It is reported gone when its last process is gone, and not before.
3. When the node's socket closes, everything is ended, and then the warden itself.
4. It never blocks: not on a command's output, not on the node.

The wire: JSON lines, an object each from the node: `{"do": "base", "name", "env"}` for what many commands
have in their environment, `{"do": "spawn", "base", …Order}`, `{"do": "call", …CallOrder}` (its request in a
line before), before the first of a kind `{"do": "register", "pool", "order", "most", "setup"}`, after the
last `{"do": "unregister", "pool"}`, `{"do": "guard", "orders": [GuardOrder]}`, `{"do": "release", "ids"}`,
`{"do": "extend", "terms": {id: [trusted_by, term_by]}}`, `{"do": "stop", "id", "kill_after_s"}`, `{"do":
"recall", "id"}` (of several messages, what is not begun), `{"do": "more", "id", "messages"}` (further ones,
as a request), `{"do": "start_reaper", "instance"}` for a reaper, `{"do": "ping"}`, `{"do": "bye"}`.
To the node a list in each line: `{"did": "hear"}`, `{"did": "started", "id", "pid"}`, `{"did": "guarded",
"ids"}`, `{"did": "refused", "id"}` (too late), `{"did": "held", "id", "by"}` (its lane, by these processes),
`{"did": "replaced", "id", "why"}` (its child carries out no other call),
`{"did": "part", "id", "part"}` (of several messages that were given together some have ended, in the words
of their child or, with a number as part, so many of the last were not begun, and will not be), `{"did":
"gone", "id", "status", "cause", "error", "took_s", "tail", "result"}` with the tail in base 64.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from json import dumps
from typing import TYPE_CHECKING, Any

from . import kernel
from .cgroups import Cgroup, Place, Spare, Spares, home_in
from .host_locks import NO_LANE, holders, release_lane, take_lane
from .inbox import Inbox
from .output import base64_of
from .process_trees import (
    TAGGED,
    CgroupTree,
    DescentTree,
    EscapedTree,
    OrphanTracker,
    Owner,
    ProcessGroupTree,
    Tree,
)
from .spawn import NOT_RUNNABLE, Failure, Order, env_of, settle_signals, spawn, to_bytes
from .task import CallTask, CommandTask, GuardOrder, GuardTask, WardenTask
from .tasks import Tasks
from .warm_children import Children, Means

if TYPE_CHECKING:
    from .reaper import Reaper

RECEIVE = 256 * 1024
OBEYED_MAX = 32  # orders in one round


class Warden:
    """Everything in the care of one warden."""

    def __init__(self, node: socket.socket, cgroup: str) -> None:
        self._node, self._cgroup = node, cgroup
        self._home = home_in(Cgroup(cgroup).above) if cgroup else None
        self._spares = Spares(cgroup) if cgroup else None
        self._inbox, self._outgoing = Inbox(), b""
        self._said: list[dict[str, object]] = []  # and not yet on its way
        self._fresh: list[CommandTask] = []  # whose output is not listened to yet
        self._is_full = False  # the node does not take what we have to say: more when it can
        self._is_alone = False
        self._bases: dict[str, dict[bytes, bytes]] = {}
        self._tasks = Tasks()
        self._mains: dict[int, CommandTask] = {}
        self._orphan_tracker = OrphanTracker()
        self._unremoved: list[Tree] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(node, selectors.EVENT_READ, self._serve_node)
        self._children = Children(
            Means(
                selector=self._selector,
                orphan_tracker=self._orphan_tracker,
                tasks=self._tasks,
                say=self._say,
                fail=self._say_failed,
                cgroup=self._cgroup,
                home=self._home,
                unremoved=self._unremoved,
            )
        )
        self._reaper: Reaper | None = None
        self._verbs = self._verbs_of_the_wire()

    def run(self) -> None:
        wakeups = self._wake_on_child_signals()
        while self._tasks or self._children or not self._is_alone:
            for key, mask in self._selector.select(self._pause_s()):
                key.data(mask)
            self._obey_some()
            self._reap()
            self._look_after_charges()
            self._listen_to_fresh()
            if self._outgoing or self._said:
                self._flush()
        wakeups.close()
        if self._cgroup:
            Cgroup(self._cgroup).remove()
        if self._reaper:
            self._reaper.dismiss()

    def _wake_on_child_signals(self) -> socket.socket:
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(reader, selectors.EVENT_READ, lambda _: reader.recv(4096))
        return reader

    def _pause_s(self) -> float:
        """Until something is to be done."""
        if self._inbox.is_order_next and not self._is_alone:
            return 0.0
        return min(self._tasks.pause_s(kernel.boottime()), self._children.pause_s())

    # The node.

    def _serve_node(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ:
            self._receive()

    def _obey_some(self) -> None:
        """Not all at once: while a thousand are told to begin, others end."""
        for _ in range(OBEYED_MAX):
            if self._is_alone or not self._inbox.is_order_next:
                break
            message = self._inbox.next_order()
            if message["do"] != "spawn":
                self._come_home()
            self._verbs[message.pop("do")](message)
        self._come_home()

    def _come_home(self) -> None:
        """From the place of the command that was started last.  Nothing else is done there: whatever else
        we start would belong to it, and we would end with it."""
        if self._home:
            self._home.come_back()

    def _receive(self) -> None:
        """Everything that the node has sent; where it is gone, what it wanted does not matter."""
        try:
            while data := self._node.recv(RECEIVE):
                self._inbox.take(data)
        except BlockingIOError:
            return
        except OSError:
            pass
        self._hang_up()

    def _hang_up(self) -> None:
        if not self._is_alone:
            self._is_alone = True
            self._selector.unregister(self._node)
            self._node.close()
        now = kernel.boottime()
        for task in self._tasks.values():
            task.hang_up(now)
        self._children.hang_up()

    def _verbs_of_the_wire(self) -> dict[str, Callable[[dict[str, Any]], None]]:
        return {
            "base": self._base,
            "spawn": self._spawn,
            "register": self._children.register,
            "unregister": self._children.unregister,
            "call": self._children.call,
            "guard": self._guard_all,
            "release": self._release,
            "extend": self._extend,
            "stop": self._stop,
            "recall": self._children.recall,
            "more": self._children.more,
            "start-reaper": self._start_reaper,
            "ping": lambda _: self._say("pong"),
            "bye": lambda _: self._hang_up(),
        }

    def _say(self, did: str, **facts: object) -> None:
        if not self._is_alone:
            self._said.append({"did": did, **facts})

    def _flush(self) -> None:
        if self._said:
            self._outgoing += dumps(self._said).encode() + b"\n"
            self._said = []
        try:
            self._outgoing = self._outgoing[self._node.send(self._outgoing) :]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up()
            return
        if bool(self._outgoing) != self._is_full:
            self._is_full = bool(self._outgoing)
            write = selectors.EVENT_WRITE if self._is_full else 0
            self._selector.modify(self._node, selectors.EVENT_READ | write, self._serve_node)

    # What it asks for.

    def _base(self, message: dict[str, Any]) -> None:
        self._bases[message["name"]] = env_of(message["env"])

    def _spawn(self, message: dict[str, Any]) -> None:
        message["base"] = self._bases[message["base"]]
        order = Order(**message)
        if kernel.boottime() >= order.term_by:
            self._say("refused", id=order.id)
            return
        try:
            lane_fd = take_lane(order.lane, order.places) if order.lane else NO_LANE
            if lane_fd is None:
                self._say("held", id=order.id, by=holders(order.lane, order.places))
                return
            task = self._start(order, lane_fd)
        except Failure as failure:
            self._say_failed(order.id, failure)
            return
        except OSError as error:  # no more processes, or descriptors
            self._say_failed(order.id, Failure(NOT_RUNNABLE, f"could not be started: {error.strerror}"))
            return
        self._mains[task.pid] = task
        self._tasks.add(task, kernel.boottime())
        self._orphan_tracker.mains.add(task.pid)
        self._fresh.append(task)
        self._say("started", id=task.id, pid=task.pid)

    def _start(self, order: Order, lane_fd: int) -> CommandTask:
        """Work whose children are left on purpose has no cgroup: it would end with its node's."""
        cgroup = self._spares.take() if self._spares and order.children != "leave" else None
        place = None
        if cgroup and self._home:
            place = Place(cgroup.path, self._home, cgroup.processes, lingers=True)
        if not place or order.user:  # it is a fork of ours
            self._come_home()
        try:
            spawned = spawn(order, place, lane_fd)
        except (Failure, OSError):
            release_lane(lane_fd)
            self._come_home()
            if cgroup and self._spares:
                self._spares.give_back(cgroup)
            raise
        return CommandTask(order, spawned._replace(lane_fd=lane_fd), self._tree(order, spawned.pid, cgroup))

    def _tree(self, order: Order, pid: int, cgroup: Spare | None) -> Tree:
        if not kernel.HAS_PROC:
            return ProcessGroupTree(pid)
        tag = frozenset(to_bytes(f"{name}={order.env[name]}") for name in TAGGED if name in order.env)
        if cgroup is None or self._spares is None:
            return DescentTree(self._orphan_tracker, pid, tag, leaves=order.children == "leave")
        cgroup.main = pid
        return CgroupTree(cgroup, EscapedTree(self._orphan_tracker, pid, tag, cgroup.parent), self._spares)

    def _extend(self, message: dict[str, Any]) -> None:
        for id, (trusted_by, term_by) in message["terms"].items():
            if task := self._tasks.get(id):
                task.extend(trusted_by, term_by)

    def _stop(self, message: dict[str, Any]) -> None:
        if task := self._tasks.get(message["id"]):
            task.stop(kernel.boottime(), message["kill_after_s"])
        else:
            self._children.drop(message["id"])

    def _guard_all(self, message: dict[str, Any]) -> None:
        orders = [GuardOrder(*fields) for fields in message["orders"]]
        self._say("guarded", ids=[order.id for order in orders if self._guard(order)])

    def _guard(self, order: GuardOrder) -> bool:
        now = kernel.boottime()
        if now >= order.trusted_by:
            self._say("refused", id=order.id)
            return False
        try:
            lane_fd = take_lane(order.lane, order.places) if order.lane else NO_LANE
        except OSError as error:
            self._say_failed(order.id, Failure(NOT_RUNNABLE, f"cannot take its lane: {error.strerror}"))
            return False
        if lane_fd is None:
            self._say("held", id=order.id, by=holders(order.lane, order.places))
            return False
        guard = GuardTask(order, Owner(order.pid))
        guard.lane_fd = lane_fd
        self._tasks.add(guard, now)
        return True

    def _release(self, message: dict[str, Any]) -> None:
        for id in message["ids"]:
            if isinstance(guard := self._tasks.get(id), GuardTask):
                guard.release()

    def _start_reaper(self, message: dict[str, Any]) -> None:
        from .reaper import start_reaper  # late: for work that is over in a moment nobody mourns

        self._reaper = start_reaper(message["instance"])
        self._orphan_tracker.mains.add(self._reaper.pid)  # it is nobody's orphan

    # Its tasks.

    def _listen_to_fresh(self) -> None:
        """Many are over by now: what they said has been read."""
        for command in self._fresh:
            if command.pipe.is_open:
                self._selector.register(command.pipe.fd, selectors.EVENT_READ, partial(self._read, command))
                command.is_heard = True
        self._fresh.clear()

    def _read(self, command: CommandTask, _: int) -> None:
        if not command.pipe.read(command.output):
            self._close_output(command)

    def _close_output(self, command: CommandTask) -> None:
        if command.pipe.is_open:
            if command.is_heard:
                self._selector.unregister(command.pipe.fd)
            command.pipe.close()
            command.output.close()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if command := self._mains.pop(pid, None):
                command.main_ended(os.waitstatus_to_exitcode(status))
            else:
                self._children.ended(pid, os.waitstatus_to_exitcode(status))

    def _look_after_charges(self) -> None:
        now = kernel.boottime()
        self._orphan_tracker.look_again()
        for task in self._tasks.to_look_at(now):
            if task.is_gone():
                self._let_go(task)
            else:
                task.check(now)
        self._tasks.looked(now)
        self._children.look_after(now)
        if self._unremoved:
            self._unremoved[:] = [tree for tree in self._unremoved if not tree.remove()]

    def _let_go(self, task: WardenTask) -> None:
        self._tasks.remove(task)
        release_lane(task.lane_fd)
        match task:
            case GuardTask():
                return
            case CommandTask():
                self._let_go_command(task)
            case CallTask():
                self._children.free(task)
        self._say_gone(
            task.id,
            task.status,
            task.error,
            cause=task.cause(),
            took_s=kernel.boottime() - task.started_at,
            tail=base64_of(task.output.tail),
            result=task.result,
        )

    def _let_go_command(self, command: CommandTask) -> None:
        if command.pipe.is_open:
            command.pipe.drain(command.output)
            if not command.is_left():
                self._close_output(command)
        self._orphan_tracker.mains.discard(command.pid)
        self._unremoved.append(command.tree)

    def _say_failed(self, id: str, failure: Failure) -> None:
        self._say_gone(id, failure.status, failure.text, tail=base64_of(failure.line))

    def _say_gone(self, id: str, status: int | None, error: str, **facts: object) -> None:
        known = {"cause": "error", "took_s": 0.0, "tail": "", "result": ""}
        self._say("gone", id=id, status=status, error=error, **(known | facts))


def main(arguments: list[str]) -> int:
    """`SOCKET_FD LOCK_FD CGROUP`.  The lock is only held: it is held by node and warden."""
    settle_signals()
    kernel.become_subreaper()
    try:
        for fd in map(int, arguments[:2]):
            if fd >= 0:
                os.set_inheritable(fd, False)
        node = socket.socket(fileno=int(arguments[0]))
        node.setblocking(False)
        Warden(node, arguments[2]).run()
    except Exception as error:
        # Our end makes the node bury what we leave, so this is safe; it must only not go unseen.
        sys.stderr.write(f"detent: the warden failed ({type(error).__name__}: {error})\n")
        return 70
    return 0
