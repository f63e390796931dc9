"""What a warden promises of the commands in its task, with real processes; with and without a cgroup."""

import asyncio
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.warden.warden_world import (
    OPEN_FDS,
    PATIENCE_S,
    World,
    begin,
    daemon,
    is_alive,
    pid_in,
    python,
    spawn,
    until,
    warden_pid,
)

from detent.clock import boottime
from detent.model import Outcome
from detent.rules.outcomes import CLAIM_EXPIRED, replaced_by
from detent.warden.program import kernel
from detent.warden.program.cgroups import KEPT_MAX, instance_directory
from detent.warden.program.output import SEGMENT_MAX, TAIL_MAX
from detent.warden.program.process_trees import DescentTree, OrphanTracker

WEAKER = ["setpriv", "--bounding-set=-setuid,-setgid"]  # words before a command of root
BECOME = """
import sys
from pathlib import Path
from warden_world import World
world = World(Path(sys.argv[1]), "")
end = world.run("true", user=sys.argv[2])
world.clear_up()
print(end.outcome.kind, end.status, end.outcome.reason)
"""
IGNORES_TERM = ("sh", "-c", "trap '' TERM; echo on; sleep 1000")


# How it ends.


@pytest.mark.parametrize(
    ("script", "outcome", "status"),
    [
        ("exit 0", Outcome("succeeded"), 0),
        ("exit 3", Outcome("failed", "exit 3"), 3),
        ("kill -SEGV $$", Outcome("failed", "killed by SIGSEGV"), -11),
    ],
)
def test_the_exit_of_a_command_is_reported(world: World, script: str, outcome: Outcome, status: int) -> None:
    end = world.run("sh", "-c", f"echo out; echo err >&2; {script}")
    assert (end.outcome, end.status, end.tail) == (outcome, status, b"out\nerr\n")
    assert 0 < end.took_s < PATIENCE_S


@pytest.mark.parametrize(
    ("words", "fields", "status", "reason"),
    [
        (("no-such-command",), {}, 127, 'command not found: "no-such-command" in PATH'),
        (("/no/such/command",), {}, 127, 'command not found: "/no/such/command"'),
        (("/etc",), {}, 126, 'cannot run "/etc": Permission denied'),
        ((), {}, 127, "its list of words is empty"),
        (("true",), {"work_dir": "/no/such"}, 126, 'cannot enter work_dir "/no/such": No such file'),
        (("true",), {"user": "no-such-user"}, 126, 'unknown user "no-such-user"'),
        (("echo", "a\0b"), {}, 126, "cannot be passed on: embedded null byte"),
        (("echo", "x" * 3_000_000), {}, 126, 'cannot run "echo": Argument list too long'),
    ],
)
def test_a_command_that_cannot_be_started_fails_with_a_reason(
    world: World, words: tuple[str, ...], fields: dict[str, str], status: int, reason: str
) -> None:
    end = world.run(*words, **fields)
    assert (end.outcome.kind, end.status) == ("failed", status)
    assert reason in end.outcome.reason
    assert "Traceback" not in end.outcome.reason
    assert end.tail.decode() == f"detent: {end.outcome.reason}\n"


def test_the_reason_says_whether_the_script_or_its_interpreter_is_missing(world: World) -> None:
    for name, first_line, status, reason in (
        ("lost", "#!/no/such/interpreter\n", 127, "the interpreter in its first line does not exist"),
        ("none", "true\n", 126, "a script must begin with a line like #!/bin/sh"),
    ):
        script = world.directory / name
        script.write_text(first_line)
        script.chmod(0o755)
        end = world.run(str(script))
        assert (end.status, end.outcome.kind) == (status, "failed")
        assert reason in end.outcome.reason


def test_a_timeout_ends_the_whole_tree(world: World) -> None:
    pid_file = world.directory / "pid"
    script = f"sleep 100 & echo $! >{pid_file}; sleep 100"
    end = world.run("sh", "-c", script, timeout_s=0.5, kill_after_s=15.0, dead=pid_file)
    assert end.outcome == Outcome("timed-out", "after 0.5 s")
    assert (end.status, end.took_s >= 0.5) == (-15, True)


def test_a_command_that_ignores_sigterm_is_killed(world: World) -> None:
    end = world.run(*IGNORES_TERM, timeout_s=0.5, kill_after_s=0.4)
    assert (end.outcome.kind, end.status) == ("timed-out", -9)
    assert end.took_s >= 0.9


def test_a_stopped_command_gets_sigterm_too(world: World) -> None:
    end = world.run("sh", "-c", "kill -STOP $$", timeout_s=0.3, kill_after_s=15.0)
    assert (end.outcome.kind, end.status) == ("timed-out", -15)


def test_a_command_that_closes_its_pipes_is_waited_for(world: World) -> None:
    end = world.run("sh", "-c", "echo last; exec >&- 2>&-; sleep 1; exit 5")
    assert (end.outcome, end.tail) == (Outcome("failed", "exit 5"), b"last\n")
    assert end.took_s >= 0.4  # it may be a while until its start is heard of


def test_a_stop_ends_it_with_the_reason_given(world: World) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            work = await begin(processes, world.spec("sleep", "100"))
            work.stop(replaced_by("a newer fire"))
            work.stop(Outcome("cancelled", "too late: the first reason stands"))
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert (end.outcome, end.status) == (replaced_by("a newer fire"), -15)

    asyncio.run(main())


def test_a_second_stop_hurries_it(world: World) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            output = world.directory / "output"
            spec = world.spec(*IGNORES_TERM, kill_after_s=1000.0, output_path=str(output))
            work = await begin(processes, spec)
            await until(lambda: output.exists() and output.stat().st_size)
            work.stop(Outcome("lost", "shutdown"))
            work.stop(Outcome("lost", "shutdown"), 0.0)
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert (end.outcome, end.status) == (Outcome("lost", "shutdown"), -9)

    asyncio.run(main())


# What it leaves.


@pytest.mark.parametrize("clears_env", [False, True])
def test_a_daemon_that_a_command_leaves_is_ended_before_the_task_is_gone(
    world: World, clears_env: bool
) -> None:
    pid_file = world.directory / "pid"
    words = daemon(pid_file, main_stays_s=0.5)
    end = world.run(*(("env", "-i", *words) if clears_env else words), dead=pid_file)
    assert end.outcome == Outcome("succeeded")


def test_a_daemon_that_ignores_sigterm_is_killed_before_the_task_is_gone(world: World) -> None:
    pid_file = world.directory / "pid"
    script = f'trap "" TERM; sleep 1000 >/dev/null 2>&1 & echo $! >{pid_file}; sleep 0.2'
    end = world.run("sh", "-c", script, kill_after_s=0.3, dead=pid_file)
    assert end.outcome == Outcome("succeeded")
    assert end.took_s >= 0.5


def test_a_background_child_with_its_output_elsewhere_is_ended(world: World) -> None:
    pid_file = world.directory / "pid"
    end = world.run("sh", "-c", f"sleep 1000 >/dev/null 2>&1 & echo $! >{pid_file}", dead=pid_file)
    assert end.outcome == Outcome("succeeded")


def test_daemons_of_one_fire_are_not_ended_with_another(world: World) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            theirs, ours = world.directory / "theirs", world.directory / "ours"
            work = await begin(processes, world.spec(*daemon(ours, main_stays_s=1.0)))
            other = await begin(processes, world.spec(*daemon(theirs, main_stays_s=1000)))
            await until(theirs.exists)
            await asyncio.wait_for(work.gone, PATIENCE_S)
            assert not is_alive(pid_in(ours))
            assert is_alive(pid_in(theirs)) and is_alive(other.pid)

    asyncio.run(main())


def test_children_that_are_left_on_purpose_live_on_and_can_still_write(world: World) -> None:
    async def main() -> int:
        pid_file, output = world.directory / "pid", world.directory / "output"
        script = f"while echo on; do sleep 0.02; done & echo $! >{pid_file}"
        async with world.processes() as processes:
            spec = world.spec("sh", "-c", script, children="leave", output_path=str(output))
            work = await begin(processes, spec)
            assert (await asyncio.wait_for(work.gone, PATIENCE_S)).outcome == Outcome("succeeded")
            await until(output.exists)
            left, size = int(pid_file.read_text()), output.stat().st_size
            await until(lambda: output.stat().st_size > size + 20)
            assert is_alive(left)
        return left

    left = asyncio.run(main())
    if is_alive(left):  # SIGPIPE ends it when its reader is gone
        os.kill(left, 9)


def test_a_timeout_ends_the_whole_tree_even_if_children_may_be_left(world: World) -> None:
    pid_file = world.directory / "pid"
    script = f"setsid sleep 1000 & echo $! >{pid_file}; wait"
    end = world.run("sh", "-c", script, children="leave", timeout_s=0.5, dead=pid_file)
    assert end.outcome.kind == "timed-out"


# What it is given.


def test_words_arrive_byte_for_byte(world: World) -> None:
    words = (";|&$()`", "two\nlines", "--", "-rf", "", " ", "*", "ü", os.fsdecode(b"\xff\xfe"), "'\"\\")
    program = "import os, sys; os.write(1, b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
    end = world.run(*python(program, *words))
    assert end.tail == b"\0".join(map(os.fsencode, words))


def test_the_environment_arrives_byte_for_byte_and_nothing_else(world: World) -> None:
    spec = world.spec("env", "-0")
    given = {**spec.env, "ODD": os.fsdecode(b"a\xff\n"), "EMPTY": ""}
    end = world.run("env", "-0", env=given)
    seen = {entry for entry in end.tail.split(b"\0") if entry}
    assert seen == {os.fsencode(f"{name}={value}") for name, value in given.items()}


def test_only_the_three_standard_descriptors_are_open(world: World) -> None:
    assert world.run(*python(OPEN_FDS)).tail == b"0\n1\n2\n"


LIBC_SIGNALS = 1 << 31 | 1 << 32  # 32 and 33 are the C library's own: no program can set them


def test_it_has_a_session_no_input_and_all_its_signals(world: World) -> None:
    program = "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == '', os.getcwd())"
    end = world.run("sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status", work_dir="/")
    masks = [int(line.split()[1], 16) & ~LIBC_SIGNALS for line in end.tail.splitlines()]
    assert masks == [0, 0]
    end = world.run(*python(program), work_dir="/usr")
    assert end.tail == b"True True /usr\n"


@pytest.mark.root
def test_a_command_gets_user_groups_and_home_of_another_user(world: World) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    nobody = pwd.getpwnam("nobody")
    program = (
        "import os; print(os.getresuid(), os.getresgid(), os.getgroups(), *map(os.getenv, ['HOME', 'USER']))"
    )
    uid, gid = nobody.pw_uid, nobody.pw_gid
    groups = os.getgrouplist("nobody", gid)
    end = world.run("python3", "-I", "-S", "-c", program, user="nobody")
    assert end.tail.decode() == f"{(uid,) * 3} {(gid,) * 3} {groups} {nobody.pw_dir} nobody\n"


def test_a_node_that_may_not_become_another_user_says_so(tmp_path: Path) -> None:
    """As most users may not, nor root in a container without the capabilities for it."""
    before, user = ([], "root") if os.geteuid() else (WEAKER, "nobody")
    words = [*before, sys.executable, "-c", BECOME, str(tmp_path), user]
    done = subprocess.run(
        words, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.startswith(f'failed 126 cannot become user "{user}": only root may'), done
    assert f"this node runs as user {os.geteuid()}" in done.stdout


# Its output.


def test_a_long_output_needs_little_memory_and_its_end_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path, "")
    output = world.directory / "output"
    script = "for _ in range(150): print('x' * 999_999)\nprint('the end', end='')"

    async def main() -> None:
        async with world.processes() as processes:
            before = _resident(os.getpid())
            work = await begin(processes, world.spec(*python(script), output_path=str(output)))
            peak = 0
            quick = []
            while not work.gone.done():
                peak = max(peak, _resident(warden_pid(processes)) + _resident(os.getpid()) - before)
                other = await begin(processes, world.spec("true"))
                quick.append((await asyncio.wait_for(other.gone, PATIENCE_S)).outcome.kind)
            end = work.gone.result()
            assert end.outcome == Outcome("succeeded")
            assert len(end.tail) == TAIL_MAX and end.tail.endswith(b"xxx\nthe end")
            assert peak < 100 << 20, "the warden, and what the node grew by"
            assert quick and set(quick) == {"succeeded"}, "others went on beside it"

    asyncio.run(main())
    rotated = output.with_name("output.1")
    assert output.read_bytes().endswith(b"xxx\nthe end")
    assert (rotated.stat().st_size, output.stat().st_size <= SEGMENT_MAX) == (SEGMENT_MAX, True)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (output, rotated)] == [0o600, 0o600]


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_link_in_the_place_of_the_output_is_not_followed(world: World) -> None:
    output, precious = world.directory / "output", world.directory / "precious"
    precious.write_text("precious")
    output.symlink_to(precious)
    end = world.run("echo", "mine", output_path=str(output))
    assert (end.tail, precious.read_text()) == (b"mine\n", "precious")
    assert (output.is_symlink(), output.read_bytes()) == (False, b"mine\n")


def test_if_no_output_file_can_be_written_the_tail_is_still_kept(world: World) -> None:
    end = world.run("echo", "mine", output_path=str(world.directory / "no/such/output"))
    assert (end.outcome, end.tail) == (Outcome("succeeded"), b"mine\n")


# Trust.


def test_a_late_spawn_is_refused(world: World) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            mark = world.directory / "mark"
            assert await spawn(processes, world.spec("touch", str(mark)), boottime() - 0.1) is None
            assert await spawn(processes, world.spec("touch", str(mark)), boottime() + 0.5) is None
            work = await begin(processes, world.spec("true"))
            await asyncio.wait_for(work.gone, PATIENCE_S)
            assert not mark.exists()

    asyncio.run(main())


def test_work_that_is_not_extended_is_dead_when_its_trust_ends(world: World) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            spec = world.spec("sleep", "100", kill_after_s=1.0)
            work = await begin(processes, spec, for_s=2.5)
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert end.outcome == CLAIM_EXPIRED
            assert work.term_by <= boottime() < work.trusted_by

    asyncio.run(main())


def test_work_that_ignores_sigterm_is_killed_when_its_trust_ends(world: World) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            spec = world.spec(*IGNORES_TERM, kill_after_s=0.5)
            work = await begin(processes, spec, for_s=2.0)
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert (end.outcome.kind, end.status) == ("lost", -9)
            assert work.trusted_by <= boottime() < work.trusted_by + 0.5

    asyncio.run(main())


def test_an_extension_moves_the_end_of_trust(world: World) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            spec = world.spec("sleep", "2", kill_after_s=0.5)
            work = await begin(processes, spec, for_s=1.8)
            work.extend(boottime() + 1.9)
            work.extend(boottime() + 10.0)
            work.extend(boottime() + 0.1)  # an answer that came late takes nothing back
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert end.outcome == Outcome("succeeded")

    asyncio.run(main())


# Many.


def test_many_commands_at_once_all_end(world: World) -> None:
    async def main() -> None:
        async with world.processes() as processes:
            specs = [world.spec("sh", "-c", f"echo {n}; exit {n % 3}") for n in range(150)]
            works = await asyncio.gather(*(begin(processes, spec) for spec in specs))
            ends = await asyncio.wait_for(asyncio.gather(*(work.gone for work in works)), 60)
            assert [end.status for end in ends] == [n % 3 for n in range(150)]
            assert [end.tail for end in ends] == [b"%d\n" % n for n in range(150)]
            warden = warden_pid(processes)
            await until(lambda: len(kernel.children(warden)) == 1)  # its reaper
            fds = [str(fd.readlink()) for fd in Path(f"/proc/{warden}/fd").iterdir()]
            kept = [fd for fd in fds if "/cgroup." in fd]  # of cgroups that are used again
            assert len(fds) - len(kept) < 20 and len(kept) <= 2 * KEPT_MAX + 1, "no descriptor is left open"

    asyncio.run(main())


def test_a_child_that_is_older_than_the_first_task_belongs_to_no_task() -> None:
    """A node's reaper: it may have started in the same tick, or the age of the fire may not be known."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as reaper:
        orphan_tracker = OrphanTracker()
        with subprocess.Popen(["sleep", "60"]) as main, subprocess.Popen(["sleep", "60"]) as left:
            orphan_tracker.mains.add(main.pid)
            descent = DescentTree(orphan_tracker, main.pid, frozenset(), leaves=False)
            descent._started = 0
            assert {main.pid, left.pid} <= descent.members() and reaper.pid not in descent.members()
            for process in (reaper, main, left):
                process.kill()


def test_an_empty_cgroup_is_reused(cgroup_world: World, tmp_path: Path) -> None:
    """Also one whose fire left a process behind, that was ended; and none that has cgroups below it."""
    world = cgroup_world
    instance = Path(instance_directory(world.cgroup, world.instance))
    nest = ("sh", "-c", f"mkdir {instance}/fire-1/nested")

    async def main() -> None:
        async with world.processes() as processes:
            for words in (("true",), daemon(tmp_path / "pid", 0.0), ("true",)):
                await (await begin(processes, world.spec(*words))).gone
            assert [path.name for path in instance.iterdir() if path.is_dir()] == ["fire-1"]
            await (await begin(processes, world.spec(*nest))).gone
            await until(lambda: not (instance / "fire-1").exists())
            await (await begin(processes, world.spec("true"))).gone
            assert [path.name for path in instance.iterdir() if path.is_dir()] == ["fire-2"]

    asyncio.run(main())
