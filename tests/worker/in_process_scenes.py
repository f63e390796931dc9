"""Scenes of calls in a node's process.  Each scene has its own process, because the warden may kill it.

`python in_process_scenes.py SCENE`.  A scene that comes to its end exits with 0.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable

from detent.clock import boottime, now
from detent.model import Call, Claim, End, Fire, Outcome
from detent.runners.call.spec import guard_spec
from detent.warden.client import WardenClient
from detent.worker.batch_size import BatchSize
from detent.worker.in_process import GuardedCall, InProcessCalls
from detent.worker.in_process_queue import InProcessQueue

PATIENCE_S, TTL_S = 30.0, 30.0
KILL_AFTER_S = 0.5  # calls that can end before trust ends are interrupted this long before
SHORT_S = 2.0  # of trust
GO = threading.Event()
Act = Callable[[str], None]
CALLED: list[str] = []


def wait(name: str) -> None:
    CALLED.append(name)
    GO.wait()


def note(name: str) -> None:
    CALLED.append(name)


class World:
    def __init__(self, processes: WardenClient) -> None:
        self.processes, self.calls, self.queue = (
            processes,
            InProcessCalls(processes),
            InProcessQueue(1, BatchSize(1)),
        )
        self.fence = 0

    def start(self, function: Act, trusted_s: float = TTL_S) -> GuardedCall:
        """Start a call in a thread."""
        self.fence += 1
        name = f"{function.__name__}-{self.fence}"
        fire = Fire(name, "t.f", now(), run_id=name, origin="push")
        call = Call(
            f"in_process_scenes:{function.__name__}", f'["{name}"]', "thread", kill_after_s=KILL_AFTER_S
        )
        claim = Claim(fire, "n.1", self.fence, attempt=1, ttl_s=TTL_S, expires_at=now())
        return self.calls.start(call, claim, guard_spec(claim, ""), boottime() + trusted_s)

    def ask(self, function: Act, trusted_s: float = TTL_S) -> GuardedCall:
        """Queue a message.  One runs at a time."""
        one = self.start(function, trusted_s)
        self.queue.add(one)
        return one

    def hold(self, function: Act, trusted_s: float = TTL_S) -> GuardedCall:
        """Start a message that runs when the scene says so."""
        one = self.start(function, trusted_s)
        one.on_guarded = lambda: None
        return one


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.005)


async def outlive(one: GuardedCall) -> None:
    """Wait past the end of trust.  A warden that still guarded the call would have killed this process."""
    await until(lambda: boottime() > one.trusted_by + 1.0)


async def stopped_with_work_that_waits(world: World) -> None:
    first, second = world.ask(wait), world.ask(note, SHORT_S)
    await until(lambda: second.is_guarded and CALLED)
    assert CALLED == ["wait-1"] and not first.gone.done()
    os.kill(os.getpid(), signal.SIGSTOP)


async def trust_ends_while_it_waits(world: World) -> None:
    short, long = world.hold(note, SHORT_S), world.hold(note)
    await until(lambda: long.is_guarded)
    assert short.is_guarded
    await until(short.gone.done)
    assert short.gone.result() is None and boottime() < short.trusted_by
    await outlive(short)
    assert not short.begin() and long.begin()
    await until(long.gone.done)
    assert CALLED == ["note-2"]


async def an_extension_is_heeded_while_it_waits(world: World) -> None:
    one, was = world.hold(note, SHORT_S), boottime() + SHORT_S
    await until(lambda: one.is_guarded)
    one.extend(boottime() + TTL_S)
    await until(lambda: boottime() > was + 1.0)
    assert one.begin()
    await until(one.gone.done)
    assert CALLED == ["note-1"]


async def one_whose_trust_is_about_to_end_is_not_begun(world: World) -> None:
    held = world.hold(note)
    await until(lambda: held.is_guarded)  # and so looked at, but not at every moment
    one = world.ask(note, KILL_AFTER_S / 2)
    await until(one.gone.done)
    assert one.gone.result() is None and not CALLED
    await outlive(one)


async def recalled(world: World) -> None:
    first, guarded = world.ask(wait), world.ask(note, SHORT_S)
    await until(lambda: guarded.is_guarded)
    asked = world.ask(note, SHORT_S)
    world.queue.recall()
    assert guarded.gone.result() is None and asked.gone.result() is None and not first.gone.done()
    await outlive(asked)
    GO.set()
    await until(first.gone.done)
    assert CALLED == ["wait-1"]


async def asked_to_stop_while_it_waits(world: World) -> None:
    guarded = world.hold(note, SHORT_S)
    await until(lambda: guarded.is_guarded)
    asked = world.hold(note, SHORT_S)
    for one in (guarded, asked):
        one.stop(Outcome("lost", "shutdown"), 0.0)
        assert one.gone.result() is None
    await outlive(asked)
    assert not guarded.begin() and not asked.begin() and not CALLED


async def the_warden_dies(world: World) -> None:
    first, second = world.ask(wait), world.ask(note)
    await until(lambda: second.is_guarded)
    os.kill(world.processes._warden.pid, signal.SIGKILL)
    await until(second.gone.done)
    assert second.gone.result() is None, "nothing of it was begun"
    await until(lambda: first.is_guarded and world.processes._is_up.is_set())
    third = world.ask(note)
    GO.set()
    await until(third.gone.done)
    assert CALLED == ["wait-1", "note-3"]
    assert isinstance(end := first.gone.result(), End) and end.outcome == Outcome("succeeded")


async def play(name: str) -> None:
    processes = WardenClient(f"in-process.{os.getpid()}")
    await processes.start()
    await SCENES[name](World(processes))
    await processes.close()


SCENES = {
    scene.__name__: scene
    for scene in (
        stopped_with_work_that_waits,
        trust_ends_while_it_waits,
        an_extension_is_heeded_while_it_waits,
        one_whose_trust_is_about_to_end_is_not_begun,
        recalled,
        asked_to_stop_while_it_waits,
        the_warden_dies,
    )
}

if __name__ == "__main__":
    sys.modules["in_process_scenes"] = sys.modules["__main__"]
    asyncio.run(play(sys.argv[1]))
