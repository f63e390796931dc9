"""The faults of a chaos run, chosen by a seeded random generator and recorded with their times.

1. A fault has a target: a node's processes, its network or its clock; the store's processes, file or clock;
   the manifests.  A target has one fault at a time; faults of different targets overlap.  SQLite has no
   server and no network, and so none of their faults.
2. Two faults are outside of the guarantees and left out: node and warden stopped together for longer than
   the margin of their claims, with no other node on their host; and a store's clock that is set back by
   more than a few seconds.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from tests.chaos.world import PATIENCE_S, Member, World, send

HOUR_S = 3600.0
STORE_STEPS_S = (-3.0, -1.5, 0.3, 0.45, 0.7, 0.95, 1.5, 3.0, 3.0, HOUR_S)
LEAPS_MAX = 2  # steps of the store's clock by an hour
LAST_S = 6.0  # the last fault starts this long before the end
TICK_S = 0.1  # how often a drifting clock is moved
TARGETS = {
    "store": "store",
    "file": "store",
    "store-clock": "store",
    "fleet": "fleet",
}  # all others are faults of a node


class Fault(NamedTuple):
    kind: str
    target: str  # a, b, c, store or fleet
    at: float  # of the monotonic clock
    until: float
    detail: str = ""


class Deed(NamedTuple):
    """One kind of fault.  Its function returns when the fault ends."""

    kind: str
    weight: int
    target: str  # node | net | clock | store | file | store-clock | fleet
    act: Callable[[Chaos, Member, Random], str]


class Chaos:
    def __init__(self, world: World, seed: int, only: frozenset[str] = frozenset()) -> None:
        self.world, self._rng = world, Random(seed)
        self._deeds = [
            deed for deed in DEEDS if deed.target in world.store.targets and (not only or deed.kind in only)
        ]
        self._threads: list[threading.Thread] = []
        self._log_lock = threading.Lock()
        self._store_clock_busy = threading.Lock()
        self.log: list[Fault] = []
        self.broken: list[str] = []
        self.leaps = 0

    def run(self, seconds: float, pause_s: float) -> None:
        """Inject faults for this long, one every `pause_s` on average, and wait for the last one."""
        until = time.monotonic() + seconds - LAST_S
        while time.monotonic() < until:
            self._begin_one()
            self._look_after_nodes()
            time.sleep(min(self._rng.expovariate(1 / pause_s), 3 * pause_s))
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def end_all(self) -> None:
        """End all faults."""
        for member in self.world.members:
            member.proxy.restore()
            member.clock.set(0.0)
            member.deploy(self.world.deploys)
        self._look_after_nodes()

    def _begin_one(self) -> None:
        for _ in range(20):
            (deed,) = self._rng.choices(self._deeds, [deed.weight for deed in self._deeds])
            member = self._rng.choice(self.world.members)
            lock = self._lock_of(deed, member)
            own = Random(self._rng.random())
            if lock.acquire(blocking=False):
                thread = threading.Thread(target=self._carry_out, args=(deed, member, own, lock), daemon=True)
                self._threads.append(thread)
                thread.start()
                return

    def _lock_of(self, deed: Deed, member: Member) -> threading.Lock:
        locks = {
            "node": member.busy,
            "net": member.net_busy,
            "clock": member.clock_busy,
            "store": self.world.store_busy,
            "file": self.world.store_busy,
            "store-clock": self._store_clock_busy,
            "fleet": self.world.deploy_busy,
        }
        return locks[deed.target]

    def _carry_out(self, deed: Deed, member: Member, rng: Random, lock: threading.Lock) -> None:
        began = time.monotonic()
        try:
            detail = deed.act(self, member, rng)
        except Exception as error:
            detail = f"could not: {type(error).__name__}: {error}"
            self.broken.append(f"the fault {deed.kind} of {member.name} {detail}")
        finally:
            lock.release()
        self.record(Fault(deed.kind, TARGETS.get(deed.target, member.name), began, time.monotonic(), detail))

    def record(self, fault: Fault) -> None:
        with self._log_lock:
            self.log.append(fault)

    def _look_after_nodes(self) -> None:
        """Report a node that exited although it was not killed: that is a bug."""
        for member in self.world.members:
            if member.busy.acquire(blocking=False):
                try:
                    if not member.is_up():
                        code = member.node.process.returncode
                        self.broken.append(f"node {member.name} ended by itself: {code}, {member.node.log}")
                        member.start()
                finally:
                    member.busy.release()


# Processes.


def _kill_node(_: Chaos, member: Member, rng: Random) -> str:
    send(member.pids(node=True), signal.SIGKILL)
    member.reap()
    time.sleep(rng.choice((0.0, 0.5, rng.uniform(1, 7))))
    member.start()
    return ""


def _kill_warden(_: Chaos, member: Member, rng: Random) -> str:
    send(member.pids(warden=True), signal.SIGKILL)
    return ""


def _kill_both(_: Chaos, member: Member, rng: Random) -> str:
    send(member.pids(node=True, warden=True), signal.SIGKILL)
    member.reap()
    time.sleep(rng.choice((0.0, 0.5, rng.uniform(1, 7))))
    member.start()
    return ""


def _stop_node(chaos: Chaos, member: Member, rng: Random) -> str:
    return _pause(chaos, rng.choice((rng.uniform(0.2, 2), rng.uniform(5, 9))), member.pids(node=True))


def _stop_warden(chaos: Chaos, member: Member, rng: Random) -> str:
    return _pause(chaos, rng.choice((rng.uniform(0.2, 2), rng.uniform(4, 7))), member.pids(warden=True))


def _stop_both(chaos: Chaos, member: Member, rng: Random) -> str:
    return _pause(chaos, rng.uniform(0.05, 0.3), member.pids(node=True, warden=True))


def _pause(chaos: Chaos, seconds: float, pids: Sequence[int]) -> str:
    began = time.monotonic()
    send(pids, signal.SIGSTOP)
    is_locked = chaos.world.store.is_locked_by(pids)
    time.sleep(seconds)
    send(pids, signal.SIGCONT)  # its node may have killed the warden
    if is_locked:
        chaos.record(Fault("lock store", "store", began, time.monotonic(), f"by {pids}, which were stopped"))
    return f"{seconds:.1f} s, {pids}"


def _end_node(_: Chaos, member: Member, rng: Random) -> str:
    send(member.pids(node=True), signal.SIGTERM)
    if rng.random() < 0.3:
        time.sleep(rng.uniform(0, 1))
        send(member.pids(node=True), signal.SIGTERM)
    member.reap(60.0)
    time.sleep(rng.uniform(0, 1))
    member.start()
    return ""


# Networks.


def _reset_net(_: Chaos, member: Member, rng: Random) -> str:
    member.proxy.cut()
    return ""


def _lose_answers(_: Chaos, member: Member, rng: Random) -> str:
    """Reset connections so rarely that no claim is lost."""
    answers = rng.randint(1, 2)
    member.proxy.lose(answers)
    time.sleep(2.0)
    return f"{answers} answers"


def _cut_net(_: Chaos, member: Member, rng: Random) -> str:
    return _disturb(member, member.proxy.refuse, rng.choice((rng.uniform(0.3, 2), rng.uniform(4, 8))))


def _swallow(_: Chaos, member: Member, rng: Random) -> str:
    return _disturb(member, member.proxy.swallow, rng.choice((rng.uniform(0.3, 3), rng.uniform(4, 9))))


def _delay_net(_: Chaos, member: Member, rng: Random) -> str:
    late_s = rng.choice((0.2, 1.0, 2.0, 4.0, 4.7))  # a client times out after 5 s
    _disturb(member, lambda: member.proxy.delay(late_s), rng.uniform(2, 6))
    return f"answers {late_s:g} s late"


def _disturb(member: Member, begin: Callable[[], None], seconds: float) -> str:
    begin()
    time.sleep(seconds)
    member.proxy.restore()
    return f"{seconds:.1f} s"


# The store.


def _restart_store(chaos: Chaos, _: Member, rng: Random) -> str:
    down_s = rng.choice((0.0, 0.5, rng.uniform(1, 5)))
    chaos.world.store.kill()
    time.sleep(down_s)
    chaos.world.store.start()
    return f"down for {down_s:.1f} s"


def _stop_store(chaos: Chaos, _: Member, rng: Random) -> str:
    seconds = rng.choice((rng.uniform(0.2, 1.5), rng.uniform(3, 7)))
    chaos.world.store.signal(signal.SIGSTOP)
    time.sleep(seconds)
    chaos.world.store.signal(signal.SIGCONT)
    return f"{seconds:.1f} s"


def _lock_store(chaos: Chaos, _: Member, rng: Random) -> str:
    seconds = rng.choice((rng.uniform(0.2, 1.5), rng.uniform(3, 7)))
    chaos.world.store.lock(seconds)
    return f"{seconds:.1f} s"


# Clocks.


def _step_clock(_: Chaos, member: Member, rng: Random) -> str:
    ahead_s = rng.choice((-HOUR_S, -3.0, 0.0, 3.0, HOUR_S))
    member.clock.set(ahead_s)
    return f"now {ahead_s:+g} s"


def _drift_clock(_: Chaos, member: Member, rng: Random) -> str:
    rate, ahead_s = rng.choice((-0.5, -0.1, 0.1, 0.5)), member.clock.ahead_s
    for passed_s in _ticks(rng.uniform(2, 8)):
        member.clock.set(ahead_s + rate * passed_s)
    return f"{rate:+.0%}"


def _step_store_clock(chaos: Chaos, _: Member, rng: Random) -> str:
    step_s, clock = rng.choice(STORE_STEPS_S), chaos.world.store.clock
    if step_s == HOUR_S and chaos.leaps >= LEAPS_MAX:
        step_s = 20.0
    chaos.leaps += step_s == HOUR_S
    clock.set(clock.ahead_s + step_s)
    return f"by {step_s:+g} s"


def _drift_store_clock(chaos: Chaos, _: Member, rng: Random) -> str:
    clock, rate = chaos.world.store.clock, rng.choice((-0.05, 0.05))
    ahead_s = clock.ahead_s
    for passed_s in _ticks(rng.uniform(2, 8)):
        clock.set(ahead_s + rate * passed_s)
    return f"{rate:+.0%}"


def _ticks(seconds: float) -> Iterator[float]:
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < seconds:
        yield passed_s
        time.sleep(TICK_S)


# Manifests.


def _deploy(chaos: Chaos, _: Member, rng: Random) -> str:
    """Deploy host by host; some also get a signal."""
    chaos.world.deploys += 1
    number = chaos.world.deploys
    for member in rng.sample(chaos.world.members, 3):
        member.deploy(number)
        if rng.random() < 0.3 and member.node.events("started"):  # before that, SIGHUP would kill it
            send(member.pids(node=True), signal.SIGHUP)
        time.sleep(rng.uniform(0, 1.5))
    return f"number {number}"


DEEDS = (
    Deed("kill node", 10, "node", _kill_node),
    Deed("kill warden", 7, "node", _kill_warden),
    Deed("kill both", 5, "node", _kill_both),
    Deed("stop node", 9, "node", _stop_node),
    Deed("stop warden", 6, "node", _stop_warden),
    Deed("stop both", 4, "node", _stop_both),
    Deed("end node", 4, "node", _end_node),
    Deed("reset", 6, "net", _reset_net),
    Deed("lose answers", 14, "net", _lose_answers),
    Deed("cut", 6, "net", _cut_net),
    Deed("black hole", 7, "net", _swallow),
    Deed("delay", 6, "net", _delay_net),
    Deed("restart store", 3, "store", _restart_store),
    Deed("stop store", 3, "store", _stop_store),
    Deed("lock store", 6, "file", _lock_store),
    Deed("step clock", 8, "clock", _step_clock),
    Deed("drift clock", 4, "clock", _drift_clock),
    Deed("step store clock", 3, "store-clock", _step_store_clock),
    Deed("drift store clock", 3, "store-clock", _drift_store_clock),
    Deed("deploy", 3, "fleet", _deploy),
)
