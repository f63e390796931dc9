"""If the node or the warden is killed or stopped, no process of a fire outlives its claim."""

import asyncio
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.warden.warden_world import (
    PATIENCE_S,
    Node,
    World,
    begin,
    daemon,
    is_alive,
    pid_in,
    spawn,
    until,
    wait_until,
    warden_pid,
)

from detent.clock import boottime
from detent.model import Outcome
from detent.rules.outcomes import NODE_STOPPED, WARDEN_DIED
from detent.warden import client as processes_module
from detent.warden.client import FAREWELL_S
from detent.warden.program import kernel
from detent.warden.program.cgroups import instance_directory
from detent.warden.program.sweep import sweep


def test_when_the_node_is_killed_nothing_of_the_fire_stays_alive(world: World) -> None:
    pid_file = world.directory / "pid"
    with Node(world, *daemon(pid_file, main_stays_s=1000)) as node:
        pids = [pid_in(pid_file), node.main, node.warden]
        assert all(map(is_alive, pids)) and not node.lock_is_free()
        node.process.kill()
        wait_until(lambda: not any(map(is_alive, pids)), PATIENCE_S)
        assert node.lock_is_free()
        assert not world.cgroup or not Path(instance_directory(world.cgroup, world.instance)).exists()


def test_when_the_node_is_killed_work_that_ignores_sigterm_dies_too_and_the_lock_waits_for_it(
    world: World,
) -> None:
    mark = world.directory / "mark"
    script = f"trap '' TERM; echo >{mark}; sleep 1000"
    with Node(world, "sh", "-c", script, kill_after_s=100.0) as node:
        wait_until(mark.exists)
        node.process.kill()
        while is_alive(node.main):
            assert not node.lock_is_free() or not is_alive(node.main), "the lock is proof of death"
            time.sleep(0.01)
        wait_until(node.lock_is_free, PATIENCE_S)


def test_while_the_node_is_stopped_the_command_is_dead_before_its_trust_ends(world: World) -> None:
    pid_file = world.directory / "pid"
    with Node(world, *daemon(pid_file, main_stays_s=1000), for_s=3.0, kill_after_s=1.0) as node:
        pids = [pid_in(pid_file), node.main]
        node.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: not any(map(is_alive, pids)))
        assert boottime() < node.trusted_by
        assert is_alive(node.warden)
        node.process.send_signal(signal.SIGCONT)
        assert node.process.stdout is not None
        assert b"kind='lost'" in node.process.stdout.readline()


@pytest.mark.parametrize("clears_env", [False, True])
def test_when_the_warden_is_killed_all_is_dead_before_it_is_lost_and_the_next_one_runs(
    world: World, clears_env: bool
) -> None:
    async def main() -> None:
        pid_file = world.directory / "pid"
        async with world.processes() as processes:
            words = daemon(pid_file, main_stays_s=1000)
            work = await begin(processes, world.spec(*(("env", "-i", *words) if clears_env else words)))
            await until(pid_file.exists)
            pids = [pid_in(pid_file), work.pid]
            assert all(map(is_alive, pids))
            os.kill(warden_pid(processes), signal.SIGKILL)
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert end.outcome == WARDEN_DIED
            assert not any(map(is_alive, pids))
            again = await begin(processes, world.spec("echo", "again"))
            assert (await asyncio.wait_for(again.gone, PATIENCE_S)).tail == b"again\n"

    asyncio.run(main())


def test_a_spawn_while_the_warden_is_dead_waits_for_the_next(world: World) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            first = warden_pid(processes)
            os.kill(first, signal.SIGKILL)
            for _ in range(5):
                work = await begin(processes, world.spec("true"))
                end = await asyncio.wait_for(work.gone, PATIENCE_S)
                assert end.outcome in (Outcome("succeeded"), WARDEN_DIED)
            assert end.outcome == Outcome("succeeded")
            assert warden_pid(processes) != first

    asyncio.run(main())


def test_closing_while_the_warden_is_being_replaced_ends_that_one_too(bare_world: World) -> None:
    async def main() -> None:
        async with bare_world.processes() as processes:
            work = await begin(processes, bare_world.spec("sleep", "1000"))
            os.kill(warden_pid(processes), signal.SIGKILL)
            await asyncio.wait_for(work.gone, PATIENCE_S)
            closed_at = time.monotonic()
        assert time.monotonic() - closed_at < FAREWELL_S, "it was asked, not killed"
        assert await spawn(processes, bare_world.spec("true"), boottime() + 30) is None

    asyncio.run(main())


def test_a_stopped_warden_is_killed_before_another_node_can_get_its_claims(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes_module, "UNANSWERED_MAX", 1_000_000)  # not for being silent alone

    async def main() -> None:
        async with world.processes() as processes:
            work = await spawn(processes, world.spec("sleep", "1000"), boottime() + 2.0)
            assert work is not None
            os.kill(warden_pid(processes), signal.SIGSTOP)
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert end.outcome == WARDEN_DIED
            assert not is_alive(work.pid)
            again = await begin(processes, world.spec("true"))
            assert (await asyncio.wait_for(again.gone, PATIENCE_S)).outcome == Outcome("succeeded")

    asyncio.run(main())


def test_a_warden_that_answers_is_not_killed_for_work_that_it_cannot_end(bare_world: World) -> None:
    async def main() -> None:
        async with bare_world.processes() as processes:
            warden = warden_pid(processes)
            work = await begin(processes, bare_world.spec("sleep", "1000"))
            work.trusted_by = boottime() - 100.0  # the warden has another deadline
            heard = asyncio.Event()
            processes._handle = lambda event: (
                processes_module.WardenClient._handle(processes, event),
                heard.set(),
            )
            for _ in range(5):
                heard.clear()
                await asyncio.wait_for(heard.wait(), PATIENCE_S)
            assert warden_pid(processes) == warden and is_alive(work.pid)

    asyncio.run(main())


def test_processes_left_on_purpose_outlive_the_warden_but_their_command_does_not(bare_world: World) -> None:
    async def main() -> int:
        pid_file = bare_world.directory / "pid"
        async with bare_world.processes() as processes:
            spec = bare_world.spec(*daemon(pid_file, main_stays_s=1000), children="leave")
            work = await begin(processes, spec)
            await until(pid_file.exists)
            os.kill(warden_pid(processes), signal.SIGKILL)
            await asyncio.wait_for(work.gone, PATIENCE_S)
            assert not is_alive(work.pid)
        return pid_in(pid_file)

    left = asyncio.run(main())
    assert sweep(bare_world.instance, PATIENCE_S) and is_alive(left)
    os.kill(left, signal.SIGKILL)
    os.waitpid(left, 0)


def test_the_warden_ignores_the_signals_of_a_terminal(bare_world: World) -> None:
    async def main() -> None:
        async with bare_world.processes() as processes:
            warden = warden_pid(processes)
            assert os.getsid(warden) == warden
            work = await begin(processes, bare_world.spec("sleep", "0.3"))
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                os.kill(warden, signum)
            assert (await asyncio.wait_for(work.gone, PATIENCE_S)).outcome == Outcome("succeeded")
            assert warden_pid(processes) == warden

    asyncio.run(main())


def test_closing_ends_all_work_and_the_warden(world: World) -> None:
    async def main() -> None:
        pid_file = world.directory / "pid"
        async with world.processes() as processes:
            work = await begin(processes, world.spec(*daemon(pid_file, main_stays_s=1000)))
            await until(pid_file.exists)
            pids = [warden_pid(processes), work.pid, pid_in(pid_file)]
        assert not any(map(is_alive, pids))
        assert (await work.gone).outcome == NODE_STOPPED

    asyncio.run(main())


def kill_all_but_the_work(node: Node, left: int) -> None:
    """Kill the node, its warden and their reaper at once."""
    os.kill(node.warden, signal.SIGSTOP)  # so that it cannot act between the two
    for reaper in kernel.children(node.warden) - {node.main, left}:
        os.kill(reaper, signal.SIGKILL)
    node.process.kill()
    os.kill(node.warden, signal.SIGKILL)


def test_a_sweep_does_not_wait_for_strangers_before_it_kills(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a process executes a program with low priority, whoever reads its environment has to wait."""
    pid_file, is_readable, environ = world.directory / "pid", threading.Event(), kernel.environ
    with Node(world, *daemon(pid_file, main_stays_s=1000)) as node:
        left = pid_in(pid_file)
        kill_all_but_the_work(node, left)
    stranger = subprocess.Popen(["sleep", "1000"])

    def read(pid: int) -> frozenset[bytes]:
        assert pid != stranger.pid or is_readable.wait(PATIENCE_S)
        return environ(pid)

    monkeypatch.setattr(kernel, "environ", read)
    with ThreadPoolExecutor() as threads:
        swept = threads.submit(sweep, world.instance, PATIENCE_S)
        try:
            wait_until(lambda: not is_alive(left) and not is_alive(node.main))
            assert not swept.done()
        finally:
            is_readable.set()
            stranger.kill()
            stranger.wait()
        assert swept.result()


def test_after_node_and_warden_are_killed_a_sweep_kills_their_processes_and_no_others(world: World) -> None:
    pid_file, mine = world.directory / "pid", World(world.directory, "")
    other = subprocess.Popen(
        ["sleep", "1000"], env={"DETENT_NODE": mine.instance, "PATH": os.environ["PATH"]}
    )
    try:
        with Node(world, *daemon(pid_file, main_stays_s=1000)) as node:
            left = pid_in(pid_file)
            kill_all_but_the_work(node, left)
        if not world.cgroup:
            wait_until(lambda: not is_alive(node.main))  # by the parent-death signal
        assert is_alive(left), "out of reach of it"
        assert sweep(world.instance, PATIENCE_S)
        assert not is_alive(left) and not is_alive(node.main)
        assert is_alive(other.pid)
    finally:
        other.kill()
        other.wait()
