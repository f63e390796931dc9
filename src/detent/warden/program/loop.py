"""The warden: one thread, one loop.  It starts, watches and ends the processes of a node or a trigger.

1. A task that is no longer trusted is ended: SIGTERM at `term_by`, SIGKILL at `trusted_by`.  Both are checked
   at least once a second, by the clock that also counts sleep.  A task that is too late is not started.
2. A task is reported gone when its last process is gone, and not before.
3. When the node's socket closes, all tasks are ended, and then the warden itself.
4. The warden never blocks: not on the output of a command, not on the node.

The protocol is JSON lines.  Orders of the node, one object a line:

    base          name, env                     an environment that many commands share
    spawn         base, the other fields of `CommandOrder`
    register      pool, order, size_max, setup  a pool, before its first call
    unregister    pool                          after its last call
    call          the fields of `CallOrder`     (the request in a line of its own before, see `inbox.py`)
    more          id, messages                  further messages for a batch (a request before)
    recall        id                            take back the messages of a batch that have not started
    guard         orders: [GuardOrder]          calls that run in the node itself
    release       ids                           guarded calls that have ended
    extend        terms: {id: [trusted_by, term_by]}
    stop          id, kill_after_s
    start-reaper  instance
    ping, bye

Events to the node, a list of objects a line:

    started       id, pid
    guarded       ids
    refused       id, [why]                     it was too late to start it, or `why`: its child is of
                                                another version than this node
    held          id, by                        these processes hold its lane
    part          id, part                      progress of a batch: the answers, as its child wrote them;
                                                a number: so many of the last messages will not start;
                                                true, false: an import began, ended
    replaced      id, why                       the child that ran this call takes no further call
    gone          id, status, cause, error, took_s, tail (in base 64), result
    pong
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
from .cgroups import Cgroup, CgroupPool, Home, ReusableCgroup, SpawnTarget
from .host_locks import NO_LANE, holders, release_lane, take_lane
from .inbox import Inbox
from .output import base64_of
from .process_trees import (
    TAGGED,
    CgroupTree,
    DescentTree,
    EscapedTree,
    NodeTree,
    OrphanTracker,
    ProcessGroupTree,
    ProcessTree,
)
from .spawn import NOT_RUNNABLE, CommandOrder, Failure, env_of, ignore_node_signals, spawn, to_bytes
from .task import CallOrder, CallTask, CommandTask, GuardOrder, GuardTask, Tasks, WardenTask
from .warm_children import WarmChildren

if TYPE_CHECKING:
    from .reaper import Reaper

RECEIVE = 256 * 1024
ORDERS_MAX = 32  # in one iteration, so that tasks are checked while a thousand orders wait


class Warden:
    def __init__(self, node: socket.socket, cgroup: str) -> None:
        self._node, self.cgroup = node, cgroup
        self.home = Home(Cgroup(cgroup).above) if cgroup else None
        self._cgroups = CgroupPool(cgroup) if cgroup else None
        self._inbox, self._outgoing = Inbox(), b""
        self._events: list[dict[str, object]] = []  # not yet in `_outgoing`
        self._unregistered: list[CommandTask] = []  # whose output the selector does not watch yet
        self._is_full = False  # whether the node's socket takes no more at the moment
        self._is_node_gone = False
        self._bases: dict[str, dict[bytes, bytes]] = {}
        self.tasks = Tasks()
        self._mains: dict[int, CommandTask] = {}
        self.orphans = OrphanTracker()
        self.unremoved: list[ProcessTree] = []  # whose cgroups have to be removed
        self.selector = selectors.DefaultSelector()
        self.selector.register(node, selectors.EVENT_READ, self._serve_node)
        self._children = WarmChildren(self)
        self._reaper: Reaper | None = None
        self._verbs: dict[str, Callable[[dict[str, Any]], None]] = {
            "base": self._base,
            "spawn": self._spawn,
            "register": self._children.register,
            "unregister": self._children.unregister,
            "call": self._children.call,
            "more": self._children.add_messages,
            "recall": self._children.recall,
            "guard": self._guard_all,
            "release": self._release,
            "extend": self._extend,
            "stop": self._stop,
            "start-reaper": self._start_reaper,
            "ping": lambda _: self.report("pong"),
            "bye": lambda _: self._hang_up(),
        }

    def run(self) -> None:
        wakeups = self._wake_on_child_signals()
        while self.tasks or self._children or not self._is_node_gone:
            for key, mask in self.selector.select(self._pause_s()):
                key.data(mask)
            self._carry_out_orders()
            self._collect_exits()
            self._check_tasks()
            self._watch_output()
            if self._outgoing or self._events:
                self._flush()
        wakeups.close()
        if self.cgroup:
            Cgroup(self.cgroup).remove()
        if self._reaper:
            self._reaper.dismiss()

    def _wake_on_child_signals(self) -> socket.socket:
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(reader, selectors.EVENT_READ, lambda _: reader.recv(4096))
        return reader

    def _pause_s(self) -> float:
        if self._inbox.is_order_next and not self._is_node_gone:
            return 0.0
        return min(self.tasks.pause_s(kernel.boottime()), self._children.pause_s())

    # The node.

    def _serve_node(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ:
            self._receive()

    def _carry_out_orders(self) -> None:
        for _ in range(ORDERS_MAX):
            if self._is_node_gone or not self._inbox.is_order_next:
                break
            message = self._inbox.next_order()
            if message["do"] != "spawn":
                self._return_home()
            self._verbs[message.pop("do")](message)
        self._return_home()

    def _return_home(self) -> None:
        """Leave the cgroup of the last command: any other process that the warden starts would belong to
        it, and the warden itself would be killed with it."""
        if self.home:
            self.home.return_to_cgroup()

    def _receive(self) -> None:
        try:
            while data := self._node.recv(RECEIVE):
                self._inbox.take(data)
        except BlockingIOError:
            return
        except OSError:
            pass
        self._hang_up()

    def _hang_up(self) -> None:
        if not self._is_node_gone:
            self._is_node_gone = True
            self.selector.unregister(self._node)
            self._node.close()
        now = kernel.boottime()
        for task in self.tasks.values():
            task.hang_up(now)
        self._children.hang_up()

    def report(self, did: str, **fields: object) -> None:
        if not self._is_node_gone:
            self._events.append({"did": did, **fields})

    def _flush(self) -> None:
        if self._events:
            self._outgoing += dumps(self._events).encode() + b"\n"
            self._events = []
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
            self.selector.modify(self._node, selectors.EVENT_READ | write, self._serve_node)

    # Orders.

    def _base(self, message: dict[str, Any]) -> None:
        self._bases[message["name"]] = env_of(message["env"])

    def _spawn(self, message: dict[str, Any]) -> None:
        message["base"] = self._bases[message["base"]]
        order = CommandOrder(**message)
        lane_fd = self.take_lane(order, order.term_by)
        if lane_fd is None:
            return
        try:
            task = self._start(order, lane_fd)
        except Failure as failure:
            self.report_failure(order.id, failure)
            return
        except OSError as error:  # no process or descriptor is available
            self.report_failure(order.id, Failure(NOT_RUNNABLE, f"could not be started: {error.strerror}"))
            return
        self._mains[task.pid] = task
        self.tasks.add(task, kernel.boottime())
        self.orphans.mains.add(task.pid)
        self._unregistered.append(task)
        self.report("started", id=task.id, pid=task.pid)

    def take_lane(self, order: CommandOrder | CallOrder | GuardOrder, start_by: float) -> int | None:
        """Take the lane of a task, and return its descriptor.  None: the task must not start, and the node
        knows why."""
        if kernel.boottime() >= start_by:
            self.report("refused", id=order.id)
            return None
        try:
            lane_fd = take_lane(order.lane, order.places) if order.lane else NO_LANE
        except OSError as error:
            failure = Failure(NOT_RUNNABLE, f"cannot take its lane: {error.strerror}")
            self.report_failure(order.id, failure)
            return None
        if lane_fd is None:
            self.report("held", id=order.id, by=holders(order.lane, order.places))
        return lane_fd

    def _start(self, order: CommandOrder, lane_fd: int) -> CommandTask:
        """A task that leaves its children on purpose has no cgroup: they would be killed with it."""
        cgroup = self._cgroups.take() if self._cgroups and order.children != "leave" else None
        target = SpawnTarget(cgroup, self.home, stays=True) if cgroup and self.home else None
        if not target or order.user:  # it is a fork of the warden
            self._return_home()
        try:
            spawned = spawn(order, target, lane_fd)
        except (Failure, OSError):
            release_lane(lane_fd)
            self._return_home()
            if cgroup and self._cgroups:
                self._cgroups.put(cgroup)
            raise
        return CommandTask(order, spawned._replace(lane_fd=lane_fd), self._tree(order, spawned.pid, cgroup))

    def _tree(self, order: CommandOrder, pid: int, cgroup: ReusableCgroup | None) -> ProcessTree:
        if not kernel.HAS_PROC:
            return ProcessGroupTree(pid)
        tag = frozenset(to_bytes(f"{name}={order.env[name]}") for name in TAGGED if name in order.env)
        if cgroup is None or self._cgroups is None:
            return DescentTree(self.orphans, pid, tag, leaves=order.children == "leave")
        cgroup.main = pid
        return CgroupTree(cgroup, EscapedTree(self.orphans, pid, tag, cgroup.parent), self._cgroups)

    def _extend(self, message: dict[str, Any]) -> None:
        for id, (trusted_by, term_by) in message["terms"].items():
            if task := self.tasks.get(id):
                task.extend(trusted_by, term_by)

    def _stop(self, message: dict[str, Any]) -> None:
        if task := self.tasks.get(message["id"]):
            task.stop(kernel.boottime(), message["kill_after_s"])
        else:
            self._children.cancel(message["id"])

    def _guard_all(self, message: dict[str, Any]) -> None:
        ids = []
        for order in (GuardOrder(*fields) for fields in message["orders"]):
            lane_fd = self.take_lane(order, order.trusted_by)
            if lane_fd is not None:
                guard = GuardTask(order, NodeTree(order.pid))
                guard.lane_fd = lane_fd
                self.tasks.add(guard, kernel.boottime())
                ids.append(order.id)
        self.report("guarded", ids=ids)

    def _release(self, message: dict[str, Any]) -> None:
        for id in message["ids"]:
            if isinstance(guard := self.tasks.get(id), GuardTask):
                guard.release()

    def _start_reaper(self, message: dict[str, Any]) -> None:
        from .reaper import start_reaper  # late: a trigger's short work has none

        self._reaper = start_reaper(message["instance"])
        self.orphans.mains.add(self._reaper.pid)

    # Tasks.

    def _watch_output(self) -> None:
        """Register the output of new commands.  Most short commands have ended by now, and their output was
        read."""
        for command in self._unregistered:
            if command.pipe.is_open:
                self.selector.register(command.pipe.fd, selectors.EVENT_READ, partial(self._read, command))
                command.is_registered = True
        self._unregistered.clear()

    def _read(self, command: CommandTask, _: int) -> None:
        if not command.pipe.read(command.output):
            self._close_output(command)

    def _close_output(self, command: CommandTask) -> None:
        if command.pipe.is_open:
            if command.is_registered:
                self.selector.unregister(command.pipe.fd)
            command.pipe.close()
            command.output.close()

    def _collect_exits(self) -> None:
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
                self._children.process_ended(pid, os.waitstatus_to_exitcode(status))

    def _check_tasks(self) -> None:
        now = kernel.boottime()
        self.orphans.expire()
        for task in self.tasks.to_check(now):
            if task.is_gone():
                self._finish(task)
            else:
                task.check(now)
        self.tasks.checked(now)
        self._children.check(now)
        if self.unremoved:
            self.unremoved[:] = [tree for tree in self.unremoved if not tree.remove()]

    def _finish(self, task: WardenTask) -> None:
        self.tasks.remove(task)
        release_lane(task.lane_fd)
        match task:
            case GuardTask():
                return
            case CommandTask():
                self._finish_command(task)
            case CallTask():
                self._children.call_gone(task)
        self._report_gone(
            task.id,
            task.status,
            task.error,
            cause=task.cause(),
            took_s=kernel.boottime() - task.started_at,
            tail=base64_of(task.output.tail),
            result=task.result,
        )

    def _finish_command(self, command: CommandTask) -> None:
        if command.pipe.is_open:
            command.pipe.drain(command.output)
            if not command.leaves_processes():
                self._close_output(command)
        self.orphans.mains.discard(command.pid)
        self.unremoved.append(command.tree)

    def report_failure(self, id: str, failure: Failure) -> None:
        self._report_gone(id, failure.status, failure.text, tail=base64_of(failure.line))

    def _report_gone(self, id: str, status: int | None, error: str, **fields: object) -> None:
        defaults = {"cause": "error", "took_s": 0.0, "tail": "", "result": ""}
        self.report("gone", id=id, status=status, error=error, **(defaults | fields))


def main(arguments: list[str]) -> int:
    """`SOCKET_FD LOCK_FD CGROUP`.  The lock stays open, so that it is held while node or warden lives."""
    ignore_node_signals()
    kernel.become_subreaper()
    try:
        for fd in map(int, arguments[:2]):
            if fd >= 0:
                os.set_inheritable(fd, False)
        node = socket.socket(fileno=int(arguments[0]))
        node.setblocking(False)
        Warden(node, arguments[2]).run()
    except Exception as error:
        # The node kills what a dead warden leaves, so this is safe, but it has to be visible.
        sys.stderr.write(f"detent: the warden failed ({type(error).__name__}: {error})\n")
        return 70
    return 0
