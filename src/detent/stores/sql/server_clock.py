"""Distinguishes a step of a database server's clock from the passing of time.

A database server has a wall clock, and no clock that is never set.  So the store keeps one: `steady` is the
server's wall clock minus the steps that were noticed (`World.steps`).

A client remembers the steady clock of its last reply.  Its own boot time clock, which is never set, says how
many seconds have passed since: at least from that reply to this request, at most from that request to this
reply.  If the steady clock says something else, the server's clock was set.  A new client remembers nothing:
for it, the newest call of any client counts (`World.seen`).  If that was long ago, the client cannot tell,
and claims and charges get the time that may not have passed, once (`World.doubted`).

Everything here is a decision over plain values; `stores.sql.corrections` writes it.
"""

from __future__ import annotations

import json
import threading
from typing import Literal, NamedTuple

from detent.rules.rates import charges_of
from detent.rules.trust import STEP_S, is_in_doubt
from detent.stores.base import ORPHANS_TTL_S

BACK_S = 1.0  # a smaller step back looks like rounding and drift
DRIFT = 1 / 1000  # how much two clocks may differ in speed
SEEN_S = 0.25  # how exactly `World.seen` is kept


class World(NamedTuple):
    """The state of the store as a whole.  Instants but `steps` are readings of the steady clock."""

    epoch: str
    previous: str  # the epoch before
    system: str  # the server and its history: a new one begins a new epoch
    steps: float  # wall clock minus steady clock
    seen: float  # the newest call of any client
    born: float  # when the store was created
    doubted: float  # claims and charges from before got time in doubt
    quarantined_until: float
    longest_ttl_s: float

    @property
    def claim_s(self) -> float:
        return self.longest_ttl_s or ORPHANS_TTL_S


class Memory(NamedTuple):
    """What a client remembers."""

    epoch: str
    steady: float
    least_s: float  # at least so much time has passed since
    most_s: float


class Correction(NamedTuple):
    """What to change before the store can be used."""

    world: World  # as it becomes
    now: float  # the steady clock, corrected
    step: float = 0.0  # by which the wall clock was set; delays move with it
    since: float = float("inf")  # what was granted or charged later went by a clock that was behind
    seen: float = 0.0  # `World.seen` as it was
    stretch: Literal["", "all", "undoubted"] = ""  # whose claims and charges get the time since `seen`
    stretch_after: float = float("-inf")  # only what was granted or charged after this
    is_new_epoch: bool = False


def judge(world: World, memory: Memory | None, wall: float, system: str) -> Correction | None:
    """What must be corrected, if anything.  A new epoch gets the name `system`, to be replaced."""
    step = ahead_s(world, memory, wall - world.steps)
    now = wall - world.steps - step
    is_new_epoch, is_orphaned = system != world.system, has_orphans(world, memory, now)
    is_silent = is_in_doubt(now - world.seen, world.claim_s)
    is_doubtful = memory is None and not is_new_epoch and is_silent
    if not (step or is_new_epoch or is_orphaned or is_doubtful):
        return None
    after = world._replace(steps=world.steps + step, seen=now, doubted=min(world.doubted, now))
    if step:
        calm = min(world.quarantined_until, now + max(world.claim_s, ORPHANS_TTL_S))
        after = after._replace(quarantined_until=calm)
    if is_new_epoch:
        calm = now + world.claim_s
        after = after._replace(epoch="", previous=world.epoch, system=system, quarantined_until=calm)
    if is_orphaned:
        after = after._replace(quarantined_until=world.born + ORPHANS_TTL_S)
    if is_doubtful:
        after = after._replace(doubted=now)
    return Correction(
        world=after,
        now=now,
        step=step,
        since=_behind_since(world, memory, wall - world.steps),
        seen=world.seen,
        stretch="all" if is_new_epoch else "undoubted" if is_doubtful else "",
        stretch_after=world.doubted if is_doubtful else float("-inf"),
        is_new_epoch=is_new_epoch,
    )


def ahead_s(world: World, memory: Memory | None, steady: float) -> float:
    """By how much the steady clock is ahead of what it should be; 0: it is right, as far as one can tell."""
    if memory is None or memory.epoch not in (world.epoch, world.previous):
        return steady - world.seen if steady < world.seen - BACK_S else 0.0
    passed, least_s, most_s = steady - memory.steady, memory.least_s, memory.most_s
    if passed < least_s - BACK_S - least_s * DRIFT:
        return passed - least_s
    # The clock of this client may have stood still.  Then, as a rule, other clients called meanwhile, and so
    # much has not passed since the newest call of any of them.
    moved = steady - world.seen - max(0.0, memory.steady + least_s - world.seen)
    slack_s = STEP_S + most_s * DRIFT
    return moved if passed > most_s + slack_s and moved > slack_s else 0.0


def has_orphans(world: World, memory: Memory | None, now: float) -> bool:
    """Whether this client knows an older store, whose claims may still be live."""
    if memory is None or memory.epoch in (world.epoch, world.previous):
        return False
    calm = world.born + ORPHANS_TTL_S
    return now < calm and world.quarantined_until < calm


def _behind_since(world: World, memory: Memory | None, steady: float) -> float:
    """From when the steady clock may have been behind.  If it is not behind the newest call, then the clock
    was not set: clients whose own clock stood still set it back, and the time of that is not known."""
    if steady >= world.seen:
        return float("-inf")
    return memory.steady if memory else world.seen


def moved_charges(text: str, correction: Correction) -> str:
    """The text of a cell with charges (`rates.charges_text`), corrected."""
    lasts_s, charges = charges_of(text)
    return json.dumps([lasts_s, [[_moved(at, lasts_s, correction), count] for at, count in charges]])


def _moved(at: float, lasts_s: float, correction: Correction) -> float:
    if correction.step < 0 and at > correction.since:
        at -= correction.step
    if correction.stretch and at > max(correction.seen - lasts_s, correction.stretch_after):
        at += max(0.0, correction.now - correction.seen)
    return min(at, correction.now)


class Recollection:
    """What this process remembers of the newest reply.  Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: tuple[str, float, float, float] | None = None  # epoch, steady, sent, answered

    def recall(self, sent: float, answered: float) -> Memory | None:
        """What was known when this request was sent, compared with this reply.  None: nothing."""
        if (newest := self._newest) is None:
            return None
        epoch, steady, sent_before, answered_before = newest
        return Memory(epoch, steady, max(0.0, sent - answered_before), max(0.0, answered - sent_before))

    def learn(self, epoch: str, steady: float, sent: float, answered: float) -> None:
        """Keep the newest reply; another thread may have got a newer one."""
        with self._lock:
            if self._newest is None or self._newest[0] != epoch or self._newest[1] < steady:
                self._newest = epoch, steady, sent, answered
