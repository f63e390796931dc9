"""Warm children that carry out calls: who has which, who waits for one, who may stay.

1. A call is given to an idle child of its own pool, or waits for the first that is free or fresh.
   Its trust, its lane and its timeout are looked at when it is given away.
2. Never more children are started at once than there are processors.
3. A child is used again only when nothing of its last call is left but the child itself.  It goes after
   `CALLS_MAX` calls, after `IDLE_S` without one, when its pool is dissolved or its node is gone.
4. A child that dies before it is ready takes the call with it that has waited longest.
5. A child is a stranger, perhaps another user's: what it says is bounded and checked, and one that says
   anything unexpected is killed.
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
from typing import Any, NamedTuple

from . import kernel
from .cgroups import Cgroup, Home, Place
from .host_locks import NO_LANE, holders, take_lane
from .pool import STALLED_S, Child, Pool, Turns
from .process_trees import CallDescentTree, CallTree, EscapedTree, OrphanTracker, ProcessGroupTree, Tree
from .spawn import NOT_RUNNABLE, Failure, Order, spawn, to_bytes
from .task import IMPORTS, Answer, CallOrder, CallTask
from .tasks import Tasks

IDLE_S, LOOK_S = 300.0, 1.0
CALLS_MAX = 1000  # of one child: what leaks in it goes with it
CHILDREN_MAX = 1000
STARTING_MAX = max(2, os.cpu_count() or 2)
FAREWELL_S = 5.0  # for an idle child to end in order
ERROR_MAX = 2000  # characters


class Means(NamedTuple):
    """What children are looked after with."""

    selector: selectors.BaseSelector
    orphan_tracker: OrphanTracker
    tasks: Tasks
    say: Callable[..., None]
    fail: Callable[[str, Failure], None]
    cgroup: str  # "": there is none
    home: Home | None
    unremoved: list[Tree]  # whose cgroups are to be removed


class Children:
    def __init__(self, means: Means) -> None:
        self._means = means
        self._pools: dict[str, Pool] = {}
        self._wanting: dict[Pool, None] = {}  # those with calls that wait
        self._children: dict[int, Child] = {}
        self._by_call: dict[str, Child] = {}
        self._started = self._starting = 0
        self._look_at = 0.0
        self._is_alone = False

    def __len__(self) -> int:
        return len(self._children)

    # What the node asks for.

    def register(self, message: dict[str, Any]) -> None:
        """These are the surroundings of a pool."""
        setup = to_bytes(message["setup"] and message["setup"] + "\n")
        pool = Pool(Order(**message["order"]), message["size_max"], setup)
        self._pools[message["pool"]] = pool

    def unregister(self, message: dict[str, Any]) -> None:
        """No more calls come for it: its children go when they are idle."""
        pool = self._pools.pop(message["pool"])
        pool.is_closed = True
        while pool.idle:
            self._dismiss(pool.idle.pop())

    def call(self, message: dict[str, Any]) -> None:
        order = CallOrder(**message)
        pool = self._pools[order.pool]
        pool.waiting.append(order)
        self._wanting[pool] = None
        self._serve(pool)

    def drop(self, id: str) -> None:
        """Nobody wants the call any more, if it still waits."""
        for pool in self._wanting:
            for order in [order for order in pool.waiting if order.id == id]:
                pool.waiting.remove(order)
                self._means.say("refused", id=id)

    def recall(self, message: dict[str, Any]) -> None:
        """Of several messages those that are not begun are wanted back."""
        id = message["id"]
        if (child := self._by_call.get(id)) and child.call:
            self._tell_left(child, child.call, child.call.messages)
        else:
            self.drop(id)

    def _tell_left(self, child: Child, call: CallTask, most: int) -> None:
        """How many messages it had not begun, and will not: after all that it said of those before."""
        left = child.turns.recall(call.messages)
        while child.wire.fileno() >= 0 and self._hear(child):
            pass
        known = left if child.turns.fd >= 0 else call.unheard_of()
        self._means.say("part", id=call.id, part=min(known, most))

    def more(self, message: dict[str, Any]) -> None:
        """Further messages for a call that is under way; where it is over, nobody begins them."""
        child = self._by_call.get(message["id"])
        if child and child.call and not child.call.is_answered:
            child.call.messages += message["messages"]
            child.turns.give(message["messages"])
            child.outgoing += message["request"] + b"\n"
            self._tell(child)

    def hang_up(self) -> None:
        """The node is gone.  Calls that are under way end by their terms."""
        self._is_alone = True
        self._wanting.clear()
        for child in self._children.values():
            child.pool.waiting.clear()
            if child.call is None:
                child.tree.signal(signal.SIGKILL)

    # What there is to do.

    def pause_s(self) -> float:
        return STALLED_S if self._wanting else math.inf

    def look_after(self, now: float) -> None:
        for pool in [*self._wanting]:
            self._serve(pool)
            if not pool.waiting:
                del self._wanting[pool]
            elif self._has_room() and pool.wants_another(now):
                self._start(pool)
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._refuse_late(now)
            self._end_overdue(now)

    def _has_room(self) -> bool:
        return self._starting < STARTING_MAX and len(self._children) < CHILDREN_MAX

    def _refuse_late(self, now: float) -> None:
        for pool in self._wanting:
            for order in [order for order in pool.waiting if now >= order.term_by]:
                pool.waiting.remove(order)
                self._means.say("refused", id=order.id)

    def _end_overdue(self, now: float) -> None:
        for child in [*self._children.values()]:
            if now >= child.kill_by:
                child.tree.signal(signal.SIGKILL)
            elif child in child.pool.idle and now >= child.since + IDLE_S:
                child.pool.idle.remove(child)
                self._dismiss(child)

    # A call.

    def _serve(self, pool: Pool) -> None:
        while pool.waiting and pool.idle:
            order = pool.waiting.popleft()
            if kernel.boottime() >= order.term_by:
                self._means.say("refused", id=order.id)
                continue
            try:
                lane_fd = take_lane(order.lane, order.places) if order.lane else NO_LANE
            except OSError as error:
                self._means.fail(order.id, Failure(NOT_RUNNABLE, f"cannot take its lane: {error.strerror}"))
                continue
            if lane_fd is None:
                self._means.say("held", id=order.id, by=holders(order.lane, order.places))
            else:
                self._give(order, pool.idle.pop(), lane_fd)

    def _give(self, order: CallOrder, child: Child, lane_fd: int) -> None:
        child.tree = self._tree(child.pid, child.cgroup, frozenset(map(to_bytes, order.tags)))
        child.call = call = CallTask(order, child.tree)
        call.lane_fd = lane_fd
        child.calls += 1
        self._means.tasks.add(call, kernel.boottime())
        self._by_call[call.id] = child
        self._means.say("started", id=call.id, pid=child.pid)
        child.turns.give(order.messages)
        child.outgoing += order.request + b"\n"
        self._tell(child)

    def _tell(self, child: Child) -> None:
        """As much as it takes now; the rest when it can."""
        if not child.send():
            child.tree.signal(signal.SIGKILL)
        elif bool(child.outgoing) != child.is_full:
            child.is_full = bool(child.outgoing)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.is_full else 0)
            self._means.selector.modify(child.wire, events, partial(self._serve_child, child))

    def _serve_child(self, child: Child, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._tell(child)
        if mask & selectors.EVENT_READ:
            self._hear(child)

    def free(self, call: CallTask) -> None:
        """Nothing of the call is left but, perhaps, its child."""
        child = self._by_call.pop(call.id)
        if call.messages and not call.is_answered:  # it died, if not of what it began, of what it was given
            self._tell_left(child, call, call.messages - 1)
        child.call = None
        why = child.why_last or call.why_killed()
        if not why and child.pid in self._children and not child.pipe.is_open:
            why = "a call closed its output: nobody would see what the next one writes"
        if why:
            self._means.say("replaced", id=call.id, why=why)
        if child.pipe.is_open:
            child.pipe.drain(call.output)
        call.output.close()
        child.since = kernel.boottime()
        if child.pid not in self._children:
            self._clean_up(child)
        elif self._is_alone:
            child.tree.signal(signal.SIGKILL)
        elif child.is_fit and child.calls < CALLS_MAX and not child.pool.is_closed:
            child.pool.idle.append(child)
            self._serve(child.pool)
        else:
            self._dismiss(child)

    # A child.

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
                self._means.fail(pool.waiting.popleft().id, Failure(NOT_RUNNABLE, text))
                return
            undo.pop_all()
        ours.setblocking(False)
        pool.children += 1
        pool.starting += 1
        self._starting += 1
        self._children[child.pid] = child
        self._means.orphan_tracker.mains.add(child.pid)
        self._means.selector.register(ours, selectors.EVENT_READ, partial(self._serve_child, child))
        self._means.selector.register(child.pipe.fd, selectors.EVENT_READ, lambda _: self._read(child))

    def _spawn(self, pool: Pool, order: Order, wire: tuple[socket.socket, int]) -> Child:
        cgroup, turns = self._make_cgroup(order), Turns()
        place = Place(cgroup.path, self._means.home) if cgroup and self._means.home else None
        try:
            spawned = spawn(order, place, turns.fd, wire[1])
        except (Failure, OSError):
            turns.close()
            if cgroup:
                cgroup.remove()
            raise
        child = Child(pool, wire[0], spawned, turns)
        child.cgroup, child.tree = cgroup, self._tree(child.pid, cgroup, frozenset())
        return child

    def _make_cgroup(self, order: Order) -> Cgroup | None:
        if not self._means.cgroup:
            return None
        cgroup = Cgroup(f"{self._means.cgroup}/{order.id}")
        with contextlib.suppress(OSError):
            cgroup.create()
            return cgroup
        return None

    def _tree(self, pid: int, cgroup: Cgroup | None, tag: frozenset[bytes]) -> Tree:
        if not kernel.HAS_PROC:
            return ProcessGroupTree(pid)
        if cgroup is None:
            return CallTree(pid, CallDescentTree(self._means.orphan_tracker, pid, tag, leaves=False), None)
        return CallTree(pid, EscapedTree(self._means.orphan_tracker, pid, tag, cgroup.parent), cgroup)

    def _read(self, child: Child) -> None:
        """What a child writes belongs to the call that is under way, and to nobody between calls."""
        if not child.pipe.read(child.call.output if child.call else None):
            self._close_pipe(child)
            child.is_fit = False  # nobody would see what the next call writes

    def _hear(self, child: Child) -> bool:
        """False: it has nothing to say now."""
        lines = child.receive()
        if lines is None or not all(self._heed(child, line) for line in lines):
            self._break_with(child)
        return bool(lines)

    def _heed(self, child: Child, line: bytes) -> bool:
        """False: that is not what a child says."""
        if not child.is_ready:
            if is_greeting := line == b"{}":
                self._welcome(child)
            return is_greeting
        if line.startswith(b"["):
            return self._pass_on(child, line)
        if line in IMPORTS and child.call:
            child.call.imports(kernel.boottime(), is_under_way=IMPORTS[line])
            if child.call.messages:
                self._means.say("part", id=child.call.id, part=IMPORTS[line])
            return True
        try:
            said = loads(line)
            answer = Answer(int(said["status"]), str(said["error"])[:ERROR_MAX], str(said["result"]))
            id, last, took_s = str(said["id"]), str(said["last"])[:ERROR_MAX], float(said["took_s"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        if child.call is None or child.call.id != id or child.call.status is not None:
            return False
        child.turns.recall(child.call.messages)  # of what came too late for it
        if child.calls > 1:  # its first one is slow, as it has to import what it calls
            child.pool.learn(took_s, kernel.boottime())
        child.why_last = last
        child.call.answered(answer, is_last=bool(last))
        return True

    def _pass_on(self, child: Child, line: bytes) -> bool:
        """Of several messages some have ended: the next has all its time.  The node reads what is said."""
        call = child.call
        if call is None or not call.messages or call.is_answered or call.status is not None:
            return False
        call.go_on(kernel.boottime())
        self._means.say("part", id=call.id, part=line.decode("utf-8", "replace"))
        return True

    def _break_with(self, child: Child) -> None:
        """It has ended, or it has lost its mind; or it said its last word, and is ending."""
        self._close_wire(child)
        child.is_fit = False
        if child in child.pool.idle:
            child.pool.idle.remove(child)
        if child.call is None or not child.call.is_answered:
            child.tree.signal(signal.SIGKILL)

    def _welcome(self, child: Child) -> None:
        child.is_ready, child.kill_by = True, math.inf
        child.close_failure()
        self._started_up(child)
        child.outgoing = child.pool.setup
        self._tell(child)
        if child.pool.is_closed and not child.pool.waiting:
            self._dismiss(child)
        else:
            child.pool.idle.append(child)
            self._serve(child.pool)

    def _started_up(self, child: Child) -> None:
        self._starting, child.pool.starting = self._starting - 1, child.pool.starting - 1

    def _dismiss(self, child: Child) -> None:
        """It ends when nobody speaks to it any more."""
        child.kill_by = kernel.boottime() + FAREWELL_S
        self._close_wire(child)

    def ended(self, pid: int, status: int) -> None:
        """A process that we started has ended: if it was a child, see to what it had."""
        child = self._children.pop(pid, None)
        if child is None:
            return
        failure = child.read_failure()
        child.close_failure()
        while child.is_ready and child.wire.fileno() >= 0 and self._hear(child):
            pass  # what it said before it died counts
        self._close_wire(child)
        child.pool.children -= 1
        if not child.is_ready:
            self._started_up(child)
            self._fail_oldest_call(child, status, failure)
        if child in child.pool.idle:
            child.pool.idle.remove(child)
        if child.call:
            child.call.child_ended(status, failure)
        else:
            self._clean_up(child)

    def _fail_oldest_call(self, child: Child, status: int, failure: Failure | None) -> None:
        """It died before it could be of use."""
        if child.pool.waiting:
            text = f"the Python process for it did not come up (status {status})"
            self._means.fail(child.pool.waiting.popleft().id, failure or Failure(NOT_RUNNABLE, text))

    def _clean_up(self, child: Child) -> None:
        child.tree.signal(signal.SIGKILL)  # what it left, between calls
        child.turns.close()
        if child.pipe.is_open:
            self._close_pipe(child)
        self._means.orphan_tracker.mains.discard(child.pid)
        if child.cgroup:
            self._means.unremoved.append(child.cgroup)

    def _close_wire(self, child: Child) -> None:
        if child.wire.fileno() >= 0:
            self._means.selector.unregister(child.wire)
            child.wire.close()

    def _close_pipe(self, child: Child) -> None:
        self._means.selector.unregister(child.pipe.fd)
        child.pipe.close()
