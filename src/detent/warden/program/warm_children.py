"""Warm children that run calls: which call each has, which calls wait, and which children stay.

1. A call goes to an idle child of its pool, or waits for the first child that is free or newly started.  Its
   trust, its lane and its timeout are checked when it is assigned.
2. No more children start at the same time than there are processors.
3. A child is reused only when no process of its last call is left but the child itself.  It ends after
   `CALLS_MAX` calls, after `IDLE_S` without one, when its pool is closed, or when the node is gone.
4. If a child dies before it is ready, the call that has waited longest fails.  If it does not speak the
   protocol of this node, the calls are refused: the node is to be restarted, and they wait for that.
5. A child is not trusted, as it may run as another user.  Its messages are limited and checked, and a child
   that sends anything unexpected is killed.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import socket
from collections.abc import Callable
from functools import partial
from json import loads
from typing import TYPE_CHECKING, Any

from . import kernel
from .cgroups import Cgroup, SpawnTarget
from .pool import STALLED_S, Child, Pool, StartPermits
from .process_trees import CallDescentTree, CallTree, EscapedTree, ProcessGroupTree, ProcessTree
from .spawn import NOT_RUNNABLE, CommandOrder, Failure, spawn, to_bytes
from .task import IMPORTS, Answer, CallOrder, CallTask

if TYPE_CHECKING:
    from .loop import Warden

IDLE_S, CHECK_S = 300.0, 1.0
CALLS_MAX = 1000  # of one child: what leaks in it ends with it
CHILDREN_MAX = 1000
STARTING_MAX = max(2, os.cpu_count() or 2)
FAREWELL_S = 5.0  # for an idle child to exit
ERROR_MAX = 2000  # characters
OUTDATED = 79  # the status of a child of another version, as in `child_main`
WHY_OUTDATED = "the detent package on disk was replaced by another version: restart this node"


class WarmChildren:
    def __init__(self, warden: Warden) -> None:
        self._warden = warden
        self._pools: dict[str, Pool] = {}
        self._waiting: dict[Pool, None] = {}  # pools with calls that wait
        self._children: dict[int, Child] = {}
        self._by_call: dict[str, Child] = {}
        self._started = self._starting = 0
        self._check_at = 0.0
        self._is_node_gone = False

    def __len__(self) -> int:
        return len(self._children)

    # Orders of the node.

    def register(self, message: dict[str, Any]) -> None:
        setup = to_bytes(message["setup"] and message["setup"] + "\n")
        self._pools[message["pool"]] = Pool(CommandOrder(**message["order"]), message["size_max"], setup)

    def unregister(self, message: dict[str, Any]) -> None:
        """No more calls come for this pool: its children end when they are idle."""
        pool = self._pools.pop(message["pool"])
        pool.is_closed = True
        while pool.idle:
            self._dismiss(pool.idle.pop())

    def call(self, message: dict[str, Any]) -> None:
        order = CallOrder(**message)
        pool = self._pools[order.pool]
        pool.waiting.append(order)
        self._waiting[pool] = None
        self._assign_calls(pool)

    def cancel(self, id: str) -> None:
        """Refuse this call if it still waits."""
        self._refuse(lambda order: order.id == id)

    def recall(self, message: dict[str, Any]) -> None:
        """The node wants the messages of a batch back that have not started."""
        id = message["id"]
        if (child := self._by_call.get(id)) and child.call:
            self._report_not_started(child, child.call, child.call.messages)
        else:
            self.cancel(id)

    def _report_not_started(self, child: Child, call: CallTask, count_max: int) -> None:
        """Report how many messages the child has not started and will not start; the answers to earlier
        messages are reported first."""
        revoked = child.permits.revoke(call.messages)
        while child.wire.fileno() >= 0 and self._receive(child):
            pass
        count = revoked if child.permits.fd >= 0 else call.not_started()
        self._warden.report("part", id=call.id, part=min(count, count_max))

    def add_messages(self, message: dict[str, Any]) -> None:
        """Pass further messages to a batch, unless it has ended."""
        child = self._by_call.get(message["id"])
        if child and child.call and not child.call.is_answered:
            child.call.messages += message["messages"]
            child.permits.grant(message["messages"])
            child.outgoing += message["request"] + b"\n"
            self._send(child)

    def hang_up(self) -> None:
        """The node is gone.  Running calls end by their terms."""
        self._is_node_gone = True
        self._waiting.clear()
        for child in self._children.values():
            child.pool.waiting.clear()
            if child.call is None:
                child.tree.signal(signal.SIGKILL)

    # Regular checks.

    def pause_s(self) -> float:
        return STALLED_S if self._waiting else math.inf

    def check(self, now: float) -> None:
        for pool in [*self._waiting]:
            self._assign_calls(pool)
            if not pool.waiting:
                del self._waiting[pool]
            elif self._has_room() and pool.wants_another(now):
                self._start(pool)
        if now >= self._check_at:
            self._check_at = now + CHECK_S
            self._refuse(lambda order: now >= order.term_by)
            self._end_overdue(now)

    def _has_room(self) -> bool:
        return self._starting < STARTING_MAX and len(self._children) < CHILDREN_MAX

    def _refuse(self, applies: Callable[[CallOrder], bool]) -> None:
        for pool in self._waiting:
            for order in [order for order in pool.waiting if applies(order)]:
                pool.waiting.remove(order)
                self._warden.report("refused", id=order.id)

    def _end_overdue(self, now: float) -> None:
        for child in [*self._children.values()]:
            if now >= child.kill_by:
                child.tree.signal(signal.SIGKILL)
            elif child in child.pool.idle and now >= child.since + IDLE_S:
                child.pool.idle.remove(child)
                self._dismiss(child)

    # Calls.

    def _assign_calls(self, pool: Pool) -> None:
        while pool.waiting and pool.idle:
            order = pool.waiting.popleft()
            lane_fd = self._warden.take_lane(order, order.term_by)
            if lane_fd is not None:
                self._assign(order, pool.idle.pop(), lane_fd)

    def _assign(self, order: CallOrder, child: Child, lane_fd: int) -> None:
        child.tree = self._tree(child.pid, child.cgroup, frozenset(map(to_bytes, order.tags)))
        child.call = call = CallTask(order, child.tree)
        call.lane_fd = lane_fd
        child.calls += 1
        self._warden.tasks.add(call, kernel.boottime())
        self._by_call[call.id] = child
        self._warden.report("started", id=call.id, pid=child.pid)
        child.permits.grant(order.messages)
        child.outgoing += order.request + b"\n"
        self._send(child)

    def _send(self, child: Child) -> None:
        """Send as much as the socket takes now, and the rest when it can."""
        if not child.send():
            child.tree.signal(signal.SIGKILL)
        elif bool(child.outgoing) != child.is_full:
            child.is_full = bool(child.outgoing)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.is_full else 0)
            self._warden.selector.modify(child.wire, events, partial(self._serve, child))

    def _serve(self, child: Child, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._send(child)
        if mask & selectors.EVENT_READ:
            self._receive(child)

    def call_gone(self, call: CallTask) -> None:
        """No process of the call is left, except perhaps its child."""
        child = self._by_call.pop(call.id)
        if call.messages and not call.is_answered:  # it died of a message, or of the request itself
            self._report_not_started(child, call, call.messages - 1)
        child.call = None
        why = child.why_last or call.why_killed()
        if not why and child.pid in self._children and not child.pipe.is_open:
            why = "a call closed its output: the output of the next call would be lost"
        if why:
            self._warden.report("replaced", id=call.id, why=why)
        if child.pipe.is_open:
            child.pipe.drain(call.output)
        call.output.close()
        child.since = kernel.boottime()
        if child.pid not in self._children:
            self._clean_up(child)
        elif self._is_node_gone:
            child.tree.signal(signal.SIGKILL)
        elif child.is_reusable and child.calls < CALLS_MAX and not child.pool.is_closed:
            child.pool.idle.append(child)
            self._assign_calls(child.pool)
        else:
            self._dismiss(child)

    # The life of a child.

    def _start(self, pool: Pool) -> None:
        self._started += 1
        order = pool.order._replace(id=f"child-{self._started}")
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs), contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            try:
                child = self._spawn(pool, order, (ours, theirs.fileno()))
            except (Failure, OSError) as error:
                text = error.text if isinstance(error, Failure) else f"could not be started: {error.strerror}"
                self._warden.report_failure(pool.waiting.popleft().id, Failure(NOT_RUNNABLE, text))
                return
            undo.pop_all()
        ours.setblocking(False)
        pool.children += 1
        pool.starting += 1
        self._starting += 1
        self._children[child.pid] = child
        self._warden.orphans.mains.add(child.pid)
        self._warden.selector.register(ours, selectors.EVENT_READ, partial(self._serve, child))
        self._warden.selector.register(child.pipe.fd, selectors.EVENT_READ, lambda _: self._read(child))

    def _spawn(self, pool: Pool, order: CommandOrder, wire: tuple[socket.socket, int]) -> Child:
        cgroup, permits = self._create_cgroup(order), StartPermits()
        target = SpawnTarget(cgroup, self._warden.home) if cgroup and self._warden.home else None
        try:
            spawned = spawn(order, target, permits.fd, wire[1])
        except (Failure, OSError):
            permits.close()
            if cgroup:
                cgroup.remove()
            raise
        child = Child(pool, wire[0], spawned, permits)
        child.cgroup, child.tree = cgroup, self._tree(child.pid, cgroup, frozenset())
        return child

    def _create_cgroup(self, order: CommandOrder) -> Cgroup | None:
        if not self._warden.cgroup:
            return None
        cgroup = Cgroup(f"{self._warden.cgroup}/{order.id}")
        with contextlib.suppress(OSError):
            cgroup.create()
            return cgroup
        return None

    def _tree(self, pid: int, cgroup: Cgroup | None, tag: frozenset[bytes]) -> ProcessTree:
        if not kernel.HAS_PROC:
            return ProcessGroupTree(pid)
        orphans = self._warden.orphans
        if cgroup is None:
            return CallTree(pid, CallDescentTree(orphans, pid, tag, leaves=False), None)
        return CallTree(pid, EscapedTree(orphans, pid, tag, cgroup.parent), cgroup)

    def _read(self, child: Child) -> None:
        """The output belongs to the running call; between calls it is dropped."""
        if not child.pipe.read(child.call.output if child.call else None):
            self._close_pipe(child)
            child.is_reusable = False

    def _receive(self, child: Child) -> bool:
        """False: nothing has arrived."""
        lines = child.receive()
        if lines is None or not all(self._handle(child, line) for line in lines):
            self._disconnect(child)
        return bool(lines)

    def _handle(self, child: Child, line: bytes) -> bool:
        """False: the protocol does not allow this line."""
        if not child.is_ready:
            if is_greeting := line == b"{}":
                self._became_ready(child)
            return is_greeting
        if line.startswith(b"["):
            return self._pass_on_answers(child, line)
        if line in IMPORTS and child.call:
            child.call.imports(kernel.boottime(), is_under_way=IMPORTS[line])
            if child.call.messages:
                self._warden.report("part", id=child.call.id, part=IMPORTS[line])
            return True
        try:
            said = loads(line)
            answer = Answer(int(said["status"]), str(said["error"])[:ERROR_MAX], str(said["result"]))
            id, last, took_s = str(said["id"]), str(said["last"])[:ERROR_MAX], float(said["took_s"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        if child.call is None or child.call.id != id or child.call.status is not None:
            return False
        child.permits.revoke(child.call.messages)  # for messages that arrived too late
        if child.calls > 1:  # the first call is slow, as it imports its module
            child.pool.learn(took_s, kernel.boottime())
        child.why_last = last
        child.call.answered(answer, is_last=bool(last))
        return True

    def _pass_on_answers(self, child: Child, line: bytes) -> bool:
        """Some messages of a batch have ended.  The node reads the answers."""
        call = child.call
        if call is None or not call.messages or call.is_answered or call.status is not None:
            return False
        call.message_answered(kernel.boottime())
        self._warden.report("part", id=call.id, part=line.decode("utf-8", "replace"))
        return True

    def _disconnect(self, child: Child) -> None:
        """The child has ended, is about to end after its last answer, or broke the protocol."""
        self._close_wire(child)
        child.is_reusable = False
        if child in child.pool.idle:
            child.pool.idle.remove(child)
        if child.call is None or not child.call.is_answered:
            child.tree.signal(signal.SIGKILL)

    def _became_ready(self, child: Child) -> None:
        child.is_ready, child.kill_by = True, math.inf
        child.close_failure()
        self._no_longer_starting(child)
        child.outgoing = child.pool.setup
        self._send(child)
        if child.pool.is_closed and not child.pool.waiting:
            self._dismiss(child)
        else:
            child.pool.idle.append(child)
            self._assign_calls(child.pool)

    def _no_longer_starting(self, child: Child) -> None:
        self._starting, child.pool.starting = self._starting - 1, child.pool.starting - 1

    def _dismiss(self, child: Child) -> None:
        """The child exits when its socket closes."""
        child.kill_by = kernel.boottime() + FAREWELL_S
        self._close_wire(child)

    def process_ended(self, pid: int, status: int) -> None:
        """A process has ended that may be a child."""
        child = self._children.pop(pid, None)
        if child is None:
            return
        failure = child.read_failure()
        child.close_failure()
        while child.is_ready and child.wire.fileno() >= 0 and self._receive(child):
            pass  # what it sent before it died counts
        self._close_wire(child)
        child.pool.children -= 1
        if not child.is_ready:
            self._no_longer_starting(child)
            if status == OUTDATED:
                while child.pool.waiting:
                    self._warden.report("refused", id=child.pool.waiting.popleft().id, why=WHY_OUTDATED)
            if child.pool.waiting:
                text = f"the Python process for it did not start (status {status})"
                id = child.pool.waiting.popleft().id
                self._warden.report_failure(id, failure or Failure(NOT_RUNNABLE, text))
        if child in child.pool.idle:
            child.pool.idle.remove(child)
        if child.call:
            child.call.child_ended(status, failure)
        else:
            self._clean_up(child)

    def _clean_up(self, child: Child) -> None:
        child.tree.signal(signal.SIGKILL)  # processes that it left between calls
        child.permits.close()
        if child.pipe.is_open:
            self._close_pipe(child)
        self._warden.orphans.mains.discard(child.pid)
        if child.cgroup:
            self._warden.unremoved.append(child.cgroup)

    def _close_wire(self, child: Child) -> None:
        if child.wire.fileno() >= 0:
            self._warden.selector.unregister(child.wire)
            child.wire.close()

    def _close_pipe(self, child: Child) -> None:
        self._warden.selector.unregister(child.pipe.fd)
        child.pipe.close()
