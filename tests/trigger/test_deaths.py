"""Triggers that die, are stopped or are replaced leave no process, and their fire is settled."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import closing
from pathlib import Path

import pytest
from tests.equipment.fleet import START_S, Witness, alive, wait_for
from tests.runners.http_servers import serving as serving_script
from tests.runners.http_servers import silent
from tests.trigger.trigger_world import Host, TriggerProcess, minute, pass_by, serving

from detent.model import Row
from detent.stores.registry import open_store
from detent.warden.program import kernel

EVERY_SECOND = ["@every 1s"]
A_TREE = ["sh", "-c", "sleep 300 & setsid sleep 300 & sleep 300"]


def started(process: TriggerProcess) -> str:
    """Return the instance of a trigger whose work runs."""
    started = process.wait("fire-started")
    wait_for(lambda: alive(DETENT_NODE=started["node"]), what="its work")
    pass_by(started["fire"])
    return str(started["node"])


def outcome(row: Row) -> tuple[str, str]:
    assert row.outcome
    return row.outcome.kind, row.outcome.reason


def test_kill_9_of_a_trigger_ends_its_whole_tree(host: Host) -> None:
    """At once, not only when trust in its claim ends."""
    host.write("job", command=A_TREE, policy={"timeout_seconds": 600})
    process = host.start("job", "--due", minute(3))
    instance = str(process.wait("fire-started")["node"])
    wait_for(lambda: len(alive(DETENT_NODE=instance)) >= 4, what="the tree")
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not alive(DETENT_NODE=instance), what="the end of the tree")


def processes_of(process: TriggerProcess, host: Host) -> tuple[str, list[int]]:
    """Return the instance of a trigger whose work runs, and the processes of trigger, warden and reaper."""
    instance = str(process.wait("fire-started")["node"])
    wait_for(lambda: len(alive(DETENT_NODE=instance)) >= 4, what="the tree")
    [lock] = host.locks.rglob(f"{instance}.lock")
    warden = int(lock.read_text().split()[1])
    work = set(alive(DETENT_NODE=instance))
    wait_for(lambda: kernel.children(warden) - work, what="the reaper")
    return instance, [process.pid, warden, *(kernel.children(warden) - work)]


def kill_at_once(pids: list[int]) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none of them notices the death of another
        for pid in pids:
            os.kill(pid, number)


def test_kill_9_of_a_trigger_and_its_warden_at_once_ends_the_tree(host: Host) -> None:
    """The reaper does it: no other trigger starts."""
    host.write("job", command=A_TREE, policy={"timeout_seconds": 600})
    process = host.start("job", "--due", minute(3))
    instance, (trigger, warden, reaper) = processes_of(process, host)
    kill_at_once([trigger, warden])
    wait_for(lambda: not alive(DETENT_NODE=instance), what="the end of the tree")
    wait_for(lambda: kernel.is_over(reaper), what="the end of the reaper")


def test_after_kill_9_of_all_three_the_next_trigger_ends_the_work(host: Host) -> None:
    """It ends the work before it claims.  Until then the work keeps its lane on this host."""
    host.write("job", command=A_TREE, policy={"timeout_seconds": 600})
    process = host.start("job", "--due", minute(3))
    instance, three = processes_of(process, host)
    kill_at_once(three)
    process.over()
    assert alive(DETENT_NODE=instance)
    host.write("job", command="true", policy={"timeout_seconds": 600})
    said = host.trigger("job")
    assert (said.code, said.names[0], said.names[-1]) == (0, "lost", "success")
    assert not alive(DETENT_NODE=instance)


def test_nothing_is_left_of_a_trigger_that_ends_in_order(host: Host) -> None:
    """With work that takes more than a moment, so that there is a reaper."""
    host.write("job", command="sleep 3")
    process = host.start("job", "--due", minute(3))
    instance = str(process.wait("fire-started")["node"])
    [lock] = host.locks.rglob(f"{instance}.lock")
    wait_for(lambda: lock.read_text().split()[1:] not in ([], [str(process.pid)]))
    warden = int(lock.read_text().split()[1])
    wait_for(lambda: len(kernel.children(warden)) == 2, what="the reaper, and the work")
    both = kernel.children(warden)
    assert process.over().code == 0
    wait_for(lambda: all(map(kernel.is_over, both)), what="their end")


def test_the_claim_of_a_dead_trigger_is_lost_and_its_lane_free_at_once(host: Host) -> None:
    """Long before its claim expires, because its locks prove its death."""
    host.write("job", schedules=EVERY_SECOND, command="sleep 300", policy={"timeout_seconds": 600})
    process = host.start("job")
    key, _ = process.wait("fire-started")["fire"], started(process)
    os.kill(process.pid, signal.SIGKILL)
    process.over()
    host.write("job", schedules=EVERY_SECOND, command="true", policy={"timeout_seconds": 600})
    said = host.trigger("job")
    assert (said.code, said.one("lost")["fire"], said.names[-1]) == (0, key, "success")
    [row] = host.find(key=key)
    assert outcome(row)[0] == "lost"


def test_a_lost_fire_runs_again_if_its_job_wants_that(host: Host, witness: Witness) -> None:
    policy = {"on_lost": "rerun", "concurrency": "Allow"}
    host.write("job", command=witness.words("job", "sleep", "300"), policy=policy)
    process = host.start("job", "--due", minute(3))
    first = witness.wait_start("job")
    os.kill(process.pid, signal.SIGKILL)
    process.over()
    host.write("job", command=witness.words("job", "sleep", "0"), policy=policy)
    host.trigger("job")
    again = [seen for seen in witness.starts("job", first.key) if seen.attempt == 2]
    assert len(again) == 1 and again[0].run_id == first.run_id and again[0].fence > first.fence


def test_a_retry_whose_trigger_is_gone_is_settled_as_lost(host: Host) -> None:
    policy = {"retries": {"max_attempts": 2, "min_seconds": 1, "max_seconds": 1}}
    host.write("job", command="false", policy=policy)
    process = host.start("job", "--due", minute(3))
    key = process.wait("attempt-failed")["fire"]
    os.kill(process.pid, signal.SIGKILL)
    process.over()
    [row] = host.find(key=key)
    assert (row.state, row.attempt) == ("pending", 1)

    def is_settled() -> bool:  # once it is overdue for so long that no trigger can be waiting for it
        host.trigger("job", "--due", minute(3))
        return host.find(key=key)[0].state == "over"

    wait_for(is_settled, every_s=START_S)
    assert outcome(host.find(key=key)[0]) == ("lost", "its trigger is gone")
    assert host.find(key=key)[0].attempt == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_attempt_settles_it_and_is_128_plus_n(host: Host, number: int) -> None:
    host.write("job", command=A_TREE)
    process = host.start("job", "--due", minute(3))
    instance = started(process)
    os.kill(process.pid, number)
    said = process.over()
    assert (said.code, said.names[-1]) == (128 + number, "lost")
    assert not alive(DETENT_NODE=instance)
    [row] = host.find(key=said.one("lost")["fire"])
    assert (row.state, outcome(row)) == (
        "over",
        ("lost", f"its trigger was ended by {signal.Signals(number).name}"),
    )
    assert host.trigger("job", "--due", minute(3)).names == ["nothing-due"]


def test_a_signal_is_handled_at_any_moment(host: Host) -> None:
    """The signal arrives while the renewal thread starts, which is made slow for the test."""
    if not shutil.which("strace"):
        pytest.skip("needs strace, to hold a trigger up in a system call")
    slow = "inject=clone3:delay_exit=3000000"
    host.before = ["strace", "-D", "-qq", "-o", "/dev/null", "-e", "trace=clone3", "-e", slow]
    host.write("job", command="sleep 300")
    process = host.start("job", "--due", minute(3))
    tasks = Path(f"/proc/{process.pid}/task")
    wait_for(lambda: len(list(tasks.iterdir())) > 1, what="its thread")
    os.kill(process.pid, signal.SIGTERM)
    said = process.over()
    assert (said.code, said.names[-1]) == (128 + signal.SIGTERM, "lost")


def test_a_signal_ends_a_request_and_a_wait_for_the_next_attempt(host: Host) -> None:
    policy = {"retries": {"max_attempts": 2, "min_seconds": 60}}
    with serving(500) as app:
        host.write("job", request={"url": app.url}, policy=policy)
        process = host.start("job", "--due", minute(3))
        process.wait("attempt-failed")
        os.kill(process.pid, signal.SIGTERM)
        said = process.over()
    assert (said.code, said.names[-1]) == (143, "cancelled")
    assert host.find()[0].state == "over"


def test_a_long_request_is_ended_when_its_fire_is_cancelled(host: Host) -> None:
    """The renewal of its claim, which starts after a second, learns of it."""
    with serving_script(silent) as served, closing(open_store(host.url)) as store:
        host.write("job", request={"url": served.url}, policy={"timeout_seconds": 600})
        process = host.start("job", "--due", minute(3))
        key = process.wait("fire-started")["fire"]
        assert store.cancel(key, "by hand")
        said = process.over()
    assert (said.names[-1], said.one("cancelled")["reason"]) == ("cancelled", "by hand")
    assert outcome(host.find(key=key)[0]) == ("cancelled", "by hand")


def test_replace_ends_the_previous_fire_with_all_its_processes(host: Host, witness: Witness) -> None:
    policy = {"concurrency": "Replace"}
    host.write("job", schedules=EVERY_SECOND, command=A_TREE, policy=policy)
    before = host.start("job")
    instance, key = started(before), before.wait("fire-started")["fire"]
    host.write("job", schedules=EVERY_SECOND, command=witness.words("job", "sleep", "0"), policy=policy)
    said, replaced = host.trigger("job"), before.over()
    assert (said.code, said.names[-1]) == (0, "success")
    assert (replaced.code, replaced.one("replaced")["fire"]) == (4, key)
    assert not alive(DETENT_NODE=instance)


def test_replace_kills_a_trigger_that_does_not_react(host: Host) -> None:
    """A suspended trigger cannot end its work, so both are killed.  The lock identifies the trigger."""
    policy = {"concurrency": "Replace", "timeout_seconds": 600}
    host.write("job", schedules=EVERY_SECOND, command=A_TREE, policy=policy)
    before = host.start("job")
    instance, key = started(before), before.wait("fire-started")["fire"]
    os.kill(before.pid, signal.SIGSTOP)
    host.write("job", schedules=EVERY_SECOND, command="true", policy=policy | {"timeout_seconds": 10})
    said = host.trigger("job")
    assert (said.code, said.names[-1]) == (0, "success")
    assert before.process.wait(30) == -signal.SIGKILL
    assert not alive(DETENT_NODE=instance)
    begun = said.one("fire-started")
    assert begun["replaces"] == key
    [row] = host.find(key=key)
    assert (row.state, outcome(row)) == ("over", ("replaced", f"replaced by {begun['fire']}")), (
        "recorded at once"
    )


def test_replace_gives_up_on_a_holder_of_another_host_that_does_not_react(host: Host) -> None:
    policy = {"concurrency": "Replace", "timeout_seconds": 600}
    host.write("job", schedules=EVERY_SECOND, command=A_TREE, policy=policy)
    before = host.start("job", "--lock-dir", str(host.directory / "elsewhere"))
    key, _ = before.wait("fire-started")["fire"], started(before)
    os.kill(before.pid, signal.SIGSTOP)
    host.write("job", schedules=EVERY_SECOND, command="true", policy=policy | {"timeout_seconds": 1})
    said = host.trigger("job")
    os.kill(before.pid, signal.SIGCONT)
    assert (said.code, said.one("lock-contended")["holder"]) == (4, key)


def test_the_report_of_a_trigger_that_was_suspended_too_long_is_fenced(host: Host) -> None:
    """The warden ended the work in time.  Another trigger has settled the fire, and its verdict counts."""
    policy = {"claim_seconds": 3}
    host.write("job", schedules=EVERY_SECOND, command=A_TREE, policy=policy)
    process = host.start("job", "--lock-dir", str(host.directory / "elsewhere"))
    key, instance = process.wait("fire-started")["fire"], started(process)
    os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: not alive(DETENT_NODE=instance), what="the end of its work")
    host.write("job", schedules=EVERY_SECOND, command="true", policy=policy)
    wait_for(lambda: "lost" in host.trigger("job").names, every_s=START_S)
    os.kill(process.pid, signal.SIGCONT)
    said = process.over()
    assert (said.code, said.one("fenced")["fire"]) == (0, key)
    [row] = host.find(key=key)
    assert outcome(row)[0] == "lost"
