"""What a warden promises of the calls in its children, with real processes; with and without a cgroup."""

import asyncio
import json
import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.warden.call_world import CallWorld, carry_out, started
from tests.warden.warden_world import PATIENCE_S, TTL_S, is_alive, spawn, until, warden_pid

from detent.clock import boottime
from detent.model import End, Outcome
from detent.rules.outcomes import CLAIM_EXPIRED, NODE_STOPPED, WARDEN_DIED
from detent.runners.call import child_main
from detent.runners.call.spec import PROGRAM
from detent.runners.running import AttemptEnd
from detent.warden.client import FAREWELL_S
from detent.warden.program import kernel
from detent.warden.program.output import TAIL_MAX
from detent.warden.program.warm_children import CALLS_MAX, OUTDATED, WHY_OUTDATED

SUCCEEDED = Outcome("succeeded")


@pytest.fixture
def world_type() -> type[CallWorld]:
    return CallWorld


def value(end: End) -> object:
    assert end.outcome == SUCCEEDED, end
    return json.loads(end.result)


# What a call is given, and gives.


def test_functions_sync_and_async_get_their_arguments_and_their_value_is_kept(bare_world: CallWorld) -> None:
    ends = bare_world.calls(
        bare_world.call("add", 1, 2),
        bare_world.call("add", args='{"b": 5, "a": 2}'),
        bare_world.call("double", 4),
        bare_world.call("annotated", 3, args="[3]"),
    )
    assert [value(end) for end in ends] == [3, 7, 8, ["b", 3, 0]]
    assert [(end.status, end.tail) for end in ends] == [(0, b"")] * 4


def test_a_function_gets_its_fire_as_a_parameter_and_in_its_environment(bare_world: CallWorld) -> None:
    spec = bare_world.call("fire")
    env = json.loads(spec.request)["env"]
    (end,) = bare_world.calls(spec)
    due = env["DETENT_DUE"].replace("Z", "+00:00")
    assert value(end) == [env["DETENT_FIRE"], 1, int(env["DETENT_FENCE"]), due, env["DETENT_FIRE"]]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("object", "the result, of type object, cannot be kept as JSON: Encoding objects of type object is"),
        ("long", "the result, of type str, cannot be kept as JSON: it has 70,002 characters, at most 65,536"),
        ("nan", "the result, of type float, cannot be kept as JSON: Out of range float values are not JSON"),
        ("none", ""),
    ],
)
def test_a_job_may_return_a_value_that_cannot_be_kept(bare_world: CallWorld, kind: str, said: str) -> None:
    (end,) = bare_world.calls(bare_world.call("give", kind))
    assert (end.outcome, end.status, end.result) == (SUCCEEDED, 0, "")
    assert end.tail.decode().startswith(f"detent: {said}" if said else "")
    assert bool(end.tail) == bool(said)


def test_the_output_of_each_call_is_complete_and_its_own(world: CallWorld) -> None:
    first, second = world.calls(world.call("write", "one"), world.call("write", "two"))
    for end, what in ((first, "one"), (second, "two")):
        lines = end.tail.decode().splitlines()
        assert sorted(lines)[1:] == [f"c {what}", f"print {what}", f"process {what}", f"stderr {what}"]
        assert sorted(lines)[0].endswith(f"INFO billing: logged {what}")


def test_the_end_of_a_long_output_does_not_go_to_the_next_call(bare_world: CallWorld) -> None:
    much, after = bare_world.calls(bare_world.call("write_much"), bare_world.call("add", 1))
    assert (len(much.tail), much.tail[-8:], after.tail) == (TAIL_MAX, b"xthe end", b"")


FAILURES: list[tuple[str, tuple[object, ...], int, str, str]] = [
    ("fail", (), 1, "ValueError: no such customer", "ValueError: no such\n customer\n"),
    ("leave", (3,), 3, "exit 3", ""),
    ("leave_async", (4,), 4, "exit 4", ""),
    ("leave", ("sorry",), 1, "exit 1", "sorry\n"),
    ("no.such:thing", (), 1, "cannot import no.such: No module named 'no'", ""),
    ("work:nothing", (), 1, 'work has no function "nothing"', 'detent: work has no function "nothing"\n'),
    ("work:COUNT", (), 1, "work:COUNT is not a function: it is of type int", ""),
    ("add", (), 1, "TypeError: add() missing 1 required positional argument: 'a'", ""),
    ("crash", (), -11, "killed by SIGSEGV", ""),
    ("exit_at_once", (0,), 0, "its process exited with status 0 before the function returned", ""),
    ("exit_at_once", (3,), 3, "exit 3", ""),
]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[End, End]]]:
    """The end of each failing call, and of a call after it, in one warden."""
    world = CallWorld(tmp_path_factory.mktemp("failures"), "")
    specs = [spec for name, args, *_ in FAILURES for spec in (world.call(name, *args), world.call("add", 1))]
    ends = iter(world.calls(*specs))
    yield list(zip(ends, ends, strict=True))
    world.clear_up()


@pytest.mark.parametrize("number", range(len(FAILURES)), ids=[f"{one[0]} {one[3]}" for one in FAILURES])
def test_the_reason_of_a_failed_call_is_one_line(failures: list[tuple[End, End]], number: int) -> None:
    _, _, status, reason, tail = FAILURES[number]
    end, after = failures[number]
    assert (end.outcome, end.status) == (Outcome("failed", reason), status)
    assert end.tail.decode().endswith(tail)
    assert value(after) == 1


def test_a_traceback_begins_with_the_users_own_code(bare_world: CallWorld) -> None:
    (end,) = bare_world.calls(bare_world.call("fail"))
    assert end.tail.decode().splitlines()[1].startswith(f'  File "{bare_world.directory}/work.py", line')


# Warm children.


def test_a_child_is_reused_and_its_environment_is_restored_after_a_call(world: CallWorld) -> None:
    ends = world.calls(world.call("me"), world.call("count"), world.call("spoil"), world.call("around"),
                       world.call("count"), world.call("me"))  # fmt: skip
    assert [value(ends[0]), value(ends[1]), value(ends[4])] == [value(ends[5]), 1, 2]
    assert value(ends[3]) == [None, True, str(world.directory), None]


def test_process_state_that_a_call_changed_is_restored_for_the_next_call(bare_world: CallWorld) -> None:
    _, end = bare_world.calls(bare_world.call("spoil"), bare_world.call("kept"))
    assert value(end) == [False, False, False]
    assert end.tail == b"still heard\n"


def test_calls_with_another_environment_run_in_another_pool(bare_world: CallWorld) -> None:
    plain, extra = bare_world.call("around"), bare_world.call("around", env=(("EXTRA", "1"),))
    ends = bare_world.calls(plain, extra, bare_world.call("me"), bare_world.call("me", env=(("EXTRA", "1"),)))
    assert [value(ends[0]), value(ends[1])] == [
        [None, True, str(bare_world.directory), None],
        [None, True, str(bare_world.directory), "1"],
    ]
    assert value(ends[2]) != value(ends[3])


@pytest.mark.root
def test_a_call_runs_as_the_user_it_names(bare_world: CallWorld) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    bare_world.python = "/usr/bin/python3"
    looks = [bare_world.python, "-c", f"import sys; assert sys.version_info > (3, 11); open({PROGRAM!r})"]
    if subprocess.run(looks, user="nobody", stderr=subprocess.DEVNULL).returncode:
        pytest.skip("the user nobody cannot read this Python and package")
    (end,) = bare_world.calls(bare_world.call("os:getuid", user="nobody", work_dir="/"))
    assert value(end) == pwd.getpwnam("nobody").pw_uid


def test_if_no_child_can_be_started_the_calls_fail_with_a_reason(world: CallWorld) -> None:
    for fields, reason in (
        ({"work_dir": "/no/such"}, 'cannot enter work_dir "/no/such": No such file or directory'),
        ({"user": "no-such-user"}, 'unknown user "no-such-user": this host has no such account'),
    ):
        ends = world.calls(world.call("me", **fields), world.call("me", **fields))
        assert [(end.outcome, end.status) for end in ends] == [(Outcome("failed", reason), 126)] * 2
        assert ends[0].tail.decode() == f"detent: {reason}\n"


def test_calls_wait_if_the_package_on_disk_is_of_another_version_than_the_node(world: CallWorld) -> None:
    said: list[str] = []

    async def main() -> list[AttemptEnd]:
        async with world.processes() as processes:
            processes.outdated = said.append
            calls = [processes.begin(world.call("me"), boottime() + TTL_S) for _ in range(2)]
            return [await asyncio.wait_for(call.gone, PATIENCE_S) for call in calls]

    assert OUTDATED == child_main.OUTDATED
    world.protocol = "0"
    assert asyncio.run(main()) == [None, None], "both claims go back to the store, and no attempt counts"
    assert said == [WHY_OUTDATED]


def test_a_child_is_replaced_after_calls_max_calls(bare_world: CallWorld) -> None:
    specs = [bare_world.call("count") for _ in range(CALLS_MAX + 2)]
    counts = [value(end) for end in bare_world.calls(*specs)]
    assert counts == [*range(1, CALLS_MAX + 1), 1, 2]


def test_children_end_when_their_pool_is_closed(world: CallWorld) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            idle = value(await carry_out(processes, world.call("me")))
            assert is_alive(idle)
            go = world.directory / "go"
            busy = await started(processes, world.call("light:wait_for", str(go)))
            other = value(await carry_out(processes, world.call("me", env=(("EXTRA", "1"),))))
            processes.protocol.close_pools()
            await until(lambda: not is_alive(other))
            go.touch()
            assert value(await asyncio.wait_for(busy.gone, PATIENCE_S)) == idle
            await until(lambda: not is_alive(idle))
            assert value(await carry_out(processes, world.call("me"))) != idle

    asyncio.run(main())


def test_twenty_calls_at_once_have_twenty_children_and_short_ones_only_a_few(bare_world: CallWorld) -> None:
    world = bare_world

    async def main() -> None:
        async with world.processes() as processes:
            go = str(world.directory / "go")
            specs = [world.call("light:wait_for", go) for _ in range(20)]
            slow = [asyncio.create_task(started(processes, spec)) for spec in specs]
            works = await asyncio.wait_for(asyncio.gather(*slow), 60)
            assert len({work.pid for work in works}) == 20
            Path(go).touch()
            ends = await asyncio.wait_for(asyncio.gather(*(work.gone for work in works)), PATIENCE_S)
            assert [value(end) for end in ends] == [work.pid for work in works]
            processes.protocol.close_pools()
            short = [asyncio.create_task(carry_out(processes, world.call("light:me"))) for _ in range(300)]
            pids = {value(end) for end in await asyncio.wait_for(asyncio.gather(*short), 60)}
            assert len(pids) < 30

    asyncio.run(main())


# How a call is ended.


@pytest.mark.parametrize("function", ["stay", "deaf"])
def test_a_timeout_kills_the_child_and_its_process_and_the_next_call_has_another(
    world: CallWorld, function: str
) -> None:
    path = world.directory / "pids"
    ends = world.calls(world.call(function, str(path), timeout_s=2.0), world.call("me"))
    child, process = map(int, path.read_text().split())
    assert ends[0].outcome == Outcome("timed-out", "after 2 s")
    assert ends[0].status == (-15 if function == "stay" else -9)
    assert not is_alive(child) and not is_alive(process)
    assert value(ends[1]) != child


@pytest.mark.parametrize(
    ("function", "said"), [("tidy", b"tidied up\n"), ("tidy_async", b"cancelled, and tidied up\n")]
)
def test_a_call_that_is_stopped_can_clean_up(bare_world: CallWorld, function: str, said: bytes) -> None:
    async def main() -> None:
        async with bare_world.processes() as processes:
            path = bare_world.directory / "pids"
            work = await started(processes, bare_world.call(function, str(path), kill_after_s=15.0))
            await until(path.exists)
            work.stop(Outcome("cancelled", "by a user"))
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert (end.outcome, end.status, end.tail) == (Outcome("cancelled", "by a user"), -15, said)
            assert not is_alive(work.pid)

    asyncio.run(main())


def test_a_child_that_is_killed_is_a_failed_call(world: CallWorld) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            path = world.directory / "pids"
            work = await started(processes, world.call("stay", str(path)))
            await until(path.exists)
            child, process = map(int, path.read_text().split())
            os.kill(child, signal.SIGKILL)
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert (end.outcome, end.status) == (Outcome("failed", "killed by SIGKILL"), -9)
            assert not is_alive(process)
            idle = value(await carry_out(processes, world.call("me")))
            os.kill(idle, signal.SIGKILL)  # type: ignore[arg-type]
            await until(lambda: idle not in kernel.children(warden_pid(processes)))
            assert value(await carry_out(processes, world.call("add", 1))) == 1

    asyncio.run(main())


@pytest.mark.parametrize("daemon", ["process", "fork", "session", "detached"])
def test_processes_that_a_call_leaves_are_ended_before_the_call_is_gone(
    world: CallWorld, daemon: str
) -> None:
    path = world.directory / "pid"

    async def main() -> None:
        async with world.processes() as processes:
            end = await carry_out(processes, world.call("start", str(path), daemon))
            assert not is_alive(int(path.read_text()))
            assert value(end)
            assert value(await carry_out(processes, world.call("add", 1))) == 1, "it goes on"

    asyncio.run(main())


def test_a_fork_that_returns_from_the_function_sends_no_answer(world: CallWorld) -> None:
    ends = world.calls(world.call("come_back_twice"), world.call("add", 1))
    assert [value(end) for end in ends] == ["the child", 1]


def test_a_call_that_leaves_a_short_thread_ends_with_the_thread(world: CallWorld) -> None:
    path = world.directory / "thread"

    async def main() -> None:
        async with world.processes() as processes:
            end = await carry_out(processes, world.call("leave_a_thread", str(path)))
            assert path.read_text() == "the thread has ended"
            assert value(await carry_out(processes, world.call("me"))) == value(end), "it is used again"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("leave", "thread"),
    [("leave_a_thread", '"late"'), ("use_threads", '"ThreadPoolExecutor-0_0"')],
    ids=["a thread", "work in an executor"],
)
def test_a_thread_that_keeps_working_is_ended_with_its_child_and_reported(
    world: CallWorld, leave: str, thread: str
) -> None:
    path, why = world.directory / "thread", list[str]()
    args = (str(path), 1000) if leave == "leave_a_thread" else ("unfinished", 1000)

    async def main() -> None:
        async with world.processes() as processes:
            processes.replaced = why.append
            end = await carry_out(processes, world.call(leave, *args))
            assert not is_alive(value(end))  # type: ignore[arg-type]
            said = f"1 thread ({thread}) still ran 1 s after the function returned: ended with its process"
            assert end.tail.decode() == f"detent: {said}\n"
            assert value(await carry_out(processes, world.call("me"))) != value(end)

    asyncio.run(main())
    assert why == [f"work:{leave} left 1 thread ({thread}) that still ran 1 s after it had returned"]


@pytest.mark.parametrize("kind", ["executor", "daemon"])
def test_a_child_is_reused_although_a_call_left_an_idle_thread(world: CallWorld, kind: str) -> None:
    first, second = world.call("use_threads", kind), world.call("use_threads", kind)
    lookups = [world.call("look_up"), world.call("look_up")]
    assert len({value(end) for end in world.calls(first, *lookups, second)}) == 1


def test_the_reason_is_reported_why_a_child_takes_no_further_call(world: CallWorld) -> None:
    why = list[str]()

    async def main() -> None:
        async with world.processes() as processes:
            processes.replaced = why.append
            for function in ("add", "no.such:thing", "close_output", "crash", "leave_deaf_process"):
                await carry_out(processes, world.call(function, *([1] if function == "add" else [])))

    asyncio.run(main())
    assert why == [
        "the import of no.such:thing failed",
        "a call closed its output: the output of the next call would be lost",
        "processes that a call left did not end by SIGTERM",
    ]


def test_a_child_that_breaks_the_protocol_is_killed(bare_world: CallWorld) -> None:
    ends = bare_world.calls(bare_world.call("meddle"), bare_world.call("add", 1))
    assert ends[0].outcome == Outcome("failed", "killed by SIGKILL")
    assert value(ends[1]) == 1


# Trust.


def test_a_late_call_is_refused(world: CallWorld) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            path = world.directory / "mark"
            assert await spawn(processes, world.call("light:wait_for", str(path)), boottime() - 0.1) is None
            assert await spawn(processes, world.call("light:wait_for", str(path)), boottime() + 0.5) is None
            assert value(await carry_out(processes, world.call("count"))) == 1

    asyncio.run(main())


def test_a_call_that_is_not_extended_is_dead_when_its_trust_ends(world: CallWorld) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            path = world.directory / "pids"
            work = await started(processes, world.call("stay", str(path)), for_s=2.5)
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert end.outcome == CLAIM_EXPIRED
            assert boottime() < work.trusted_by
            assert not any(is_alive(int(pid)) for pid in path.read_text().split())

    asyncio.run(main())


def test_closing_ends_calls_and_idle_children(world: CallWorld) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            path = world.directory / "pids"
            idle = value(await carry_out(processes, world.call("me", env=(("EXTRA", "1"),))))
            work = await started(processes, world.call("stay", str(path)))
            await until(path.exists)
            closed_at = boottime()
        assert boottime() - closed_at < FAREWELL_S, "the warden ended it all by itself"
        pids = [idle, *map(int, path.read_text().split())]
        assert not any(map(is_alive, pids))  # type: ignore[arg-type]
        assert (await work.gone).outcome == NODE_STOPPED

    asyncio.run(main())


def test_when_the_warden_is_killed_its_children_die_and_the_next_one_has_others(world: CallWorld) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            path = world.directory / "pids"
            idle = value(await carry_out(processes, world.call("me", env=(("EXTRA", "1"),))))
            work = await started(processes, world.call("stay", str(path)))
            await until(path.exists)
            os.kill(warden_pid(processes), signal.SIGKILL)
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert end.outcome == WARDEN_DIED
            pids = [idle, *map(int, path.read_text().split())]
            assert not any(map(is_alive, pids))  # type: ignore[arg-type]
            assert value(await carry_out(processes, world.call("add", 1))) == 1

    asyncio.run(main())
