"""Where commands are that are started together: each in its own cgroup, and the warden in none of them."""

import asyncio

from tests.warden.warden_world import PATIENCE_S, World, until, warden_pid

from detent.clock import boottime
from detent.runners.command import Spec
from detent.warden.client import TaskHandle
from detent.warden.program import kernel

TOGETHER = 20
OURS = b"0::"


def place_of(pid: int) -> bytes:
    return next(line for line in kernel.cgroups(pid).splitlines() if line.startswith(OURS))


def test_each_of_many_commands_has_its_own_cgroup_and_the_warden_returns_to_its_own(
    cgroup_world: World,
) -> None:
    world = cgroup_world

    async def main() -> None:
        async with world.processes() as processes:
            home = place_of(warden_pid(processes))

            def begin(spec: Spec) -> TaskHandle:
                return processes.begin(spec, boottime() + PATIENCE_S)

            works = [begin(world.spec("sleep", "1000")) for _ in range(TOGETHER)]
            left = begin(world.spec("sleep", "1000", children="leave"))  # a fork, right after the others
            works += [begin(world.spec("sleep", "1000")) for _ in range(TOGETHER)]
            await until(lambda: all(work.pid for work in (*works, left)))
            places = {place_of(work.pid) for work in works}
            assert len(places) == len(works) and home not in places
            assert place_of(left.pid) == home == place_of(warden_pid(processes))

    asyncio.run(main())


def test_only_the_command_enters_its_directory(world: World) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            outputs = []
            for place in ("/", "", "/usr", ""):
                work = processes.begin(world.spec("pwd", work_dir=place), boottime() + PATIENCE_S)
                outputs.append((await asyncio.wait_for(work.gone, PATIENCE_S)).tail)
            assert outputs[0] == b"/\n" and outputs[2] == b"/usr\n"
            assert outputs[1] == outputs[3] and outputs[1] not in (outputs[0], outputs[2])

    asyncio.run(main())
