"""A lane on this host is the kernel's: it is taken as long as a process of the fire has its lock."""

import asyncio
import os
import signal

import pytest
from tests.warden.warden_world import (
    OPEN_FDS,
    PATIENCE_S,
    Node,
    World,
    begin,
    is_alive,
    pid_in,
    python,
    spawn,
    wait_until,
)

from detent.clock import boottime
from detent.runners.command import Spec
from detent.runners.running import LaneHeld
from detent.warden.client import WardenClient
from detent.warden.program import host_locks
from detent.warden.program.sweep import sweep

# A daemon that gives up all by which it could be known: its session, environment, cgroup and parent.
FUGITIVE = """
import os, sys
import time
if os.fork():
    os.wait()
    time.sleep(1000)
os.setsid()
if os.fork():
    os._exit(0)
if len(sys.argv) > 2:
    open(sys.argv[2] + "/cgroup.procs", "w").write("0")
program = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(1000)"
null = os.open(os.devnull, os.O_RDWR)
[os.dup2(null, fd) for fd in (0, 1, 2)]
os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", program, sys.argv[1]], {})
"""
STAYS = ("sleep", "1000")


def lane_of(world: World) -> str:
    return str(world.directory / "shop.settle")


async def held_by(processes: WardenClient, spec: Spec) -> str:
    with pytest.raises(LaneHeld) as held:
        await spawn(processes, spec, boottime() + PATIENCE_S)
    return str(held.value)


@pytest.mark.parametrize("places", [1, 2])
def test_a_place_of_a_lane_is_free_when_its_work_is_gone(world: World, places: int) -> None:
    async def main() -> None:
        in_lane = {"lane": lane_of(world), "places": places}
        async with world.processes() as processes:
            works = [await begin(processes, world.spec(*STAYS, **in_lane)) for _ in range(places)]
            said = await held_by(processes, world.spec("true", **in_lane))
            assert all(str(work.pid) in said for work in works), said
            await begin(processes, world.spec("true", lane=str(world.directory / "another")))
            os.kill(works[0].pid, signal.SIGKILL)
            await asyncio.wait_for(works[0].gone, PATIENCE_S)
            end = await (await begin(processes, world.spec("true", **in_lane))).gone
            assert end.outcome.kind == "succeeded"

    asyncio.run(main())


def test_the_work_has_the_lock_of_its_lane_and_no_other_descriptor(world: World) -> None:
    end = world.run(*python(OPEN_FDS), lane=lane_of(world))
    assert end.tail.split() == [b"0", b"1", b"2", str(host_locks.LANE_FD).encode()]


def test_processes_left_on_purpose_do_not_hold_the_lane(world: World) -> None:
    async def main() -> None:
        pid_file = world.directory / "pid"
        left = ("sh", "-c", f"sleep 1000 >/dev/null 2>&1 & echo $! > {pid_file}")
        async with world.processes() as processes:
            spec = world.spec(*left, children="leave", lane=lane_of(world))
            await (await begin(processes, spec)).gone
            try:
                await (await begin(processes, world.spec("true", lane=lane_of(world)))).gone
                assert is_alive(pid_in(pid_file))
            finally:
                os.kill(pid_in(pid_file), signal.SIGKILL)

    asyncio.run(main())


def test_an_attempt_fails_if_its_lane_cannot_be_locked(world: World) -> None:
    end = world.run("true", lane=str(world.directory / "no" / "such"))
    assert (end.outcome.kind, end.outcome.reason) == (
        "failed",
        "cannot take its lane: No such file or directory",
    )


def test_a_process_that_cannot_be_found_still_holds_its_lane(world: World) -> None:
    async def next_life(fugitive: int) -> None:
        async with World(world.directory, world.cgroup).processes() as processes:
            said = await held_by(processes, world.spec("true", lane=lane_of(world)))
            assert str(fugitive) in said
            os.kill(fugitive, signal.SIGKILL)
            wait_until(lambda: not is_alive(fugitive))
            await (await begin(processes, world.spec("true", lane=lane_of(world)))).gone

    pid_file = world.directory / "pid"
    words = python(FUGITIVE, str(pid_file), *([world.cgroup] if world.cgroup else []))
    with Node(world, *words, lane=lane_of(world)) as node:
        fugitive = pid_in(pid_file)
        os.kill(node.warden, signal.SIGSTOP)  # so that it cannot act between the two
        node.process.kill()
        os.kill(node.warden, signal.SIGKILL)
    assert sweep(world.instance, PATIENCE_S)
    assert is_alive(fugitive), "the sweep knows nothing of it"
    asyncio.run(next_life(fugitive))
