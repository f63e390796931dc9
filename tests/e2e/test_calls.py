"""Python calls, from the manifest to the history, also when the node or the warden dies."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.equipment.fleet import NEVER, Fleet, NodeProcess, wait_for

from detent.model import Outcome
from detent.warden.program import host_locks, kernel

MODULE = """
import asyncio, logging, os, time
from pathlib import Path
import detent

def invoice(customer, *, copies=1, fire: detent.Fire):
    print(f"invoice for {customer}, attempt {fire.attempt}")
    if fire.attempt < 2:
        raise ConnectionError("printer on fire")
    return {"customer": customer, "copies": copies, "key": fire.key}
def stay(path):
    Path(path).write_text(str(os.getpid()))
    time.sleep(1000)
def wait_for(path, go):
    Path(path).write_text(str(os.getpid()))
    while not Path(go).exists():
        time.sleep(0.01)
    logging.getLogger("slow").info("done")
    return "done"
async def nap(path):
    Path(path).write_text(str(os.getpid()))
    await asyncio.sleep(1000)
"""


def job(fleet: Fleet, function: str, *args: str, **fields: Any) -> dict[str, Any]:
    (fleet.directory / "billing.py").write_text(MODULE)
    fleet.env["PYTHONPATH"] += os.pathsep + str(fleet.directory)  # for calls in the node itself
    inside = "isolation" in fields
    at = {} if inside else {"work_dir": str(fleet.directory)}
    return {"name": "job", "schedule": NEVER, "call": f"billing:{function}", "args": [*args], **at, **fields}


def pid_in(path: Path) -> int:
    return int(wait_for(lambda: path.exists() and path.read_text(), what=f"a process in {path.name}"))


def is_alive(pid: int) -> bool:
    return not kernel.is_over(pid)


def test_a_call_runs_is_repeated_and_leaves_its_output_and_its_value(fleet: Fleet) -> None:
    again = {"retries": {"max_attempts": 2, "min_seconds": 0}}
    args = {"customer": "${CUSTOMER:-ACME}", "copies": 2}
    fleet.write(job(fleet, "invoice", policy=again) | {"args": args})
    fleet.start()

    key = fleet.wait_over(fleet.fire("job")).fire.key
    row = fleet.row(key)
    first, second = row.attempts
    assert row.outcome == Outcome("succeeded")
    assert first.outcome == Outcome("failed", "ConnectionError: printer on fire")
    assert first.tail.decode().startswith("invoice for ACME, attempt 1\nTraceback (most recent call last):\n")
    assert (second.tail, second.status) == (b"invoice for ACME, attempt 2\n", 0)

    kept = {"customer": "ACME", "copies": 2, "key": key}
    (record,) = json.loads(fleet.ask("history", "t.job", "-o", "json"))
    assert [attempt["result"] for attempt in record["attempts"]] == [None, kept]
    assert fleet.ask("logs", key).decode().endswith("invoice for ACME, attempt 2\n")
    words = [sys.executable, "-m", "detent", "logs", key, "--store", fleet.url]
    said = subprocess.run(words, env=fleet.env, capture_output=True, check=True).stderr.decode()
    assert 'returned {"customer": "ACME", "copies": 2' in said


def test_when_the_node_is_killed_its_calls_are_killed(either_fleet: Fleet) -> None:
    path = either_fleet.directory / "pid"
    either_fleet.write(job(either_fleet, "stay", str(path)))
    node = either_fleet.start()
    either_fleet.fire("job")
    child = pid_in(path)
    node.process.kill()
    wait_for(lambda: not is_alive(child), what="the end of the call")


def test_a_call_that_is_too_long_is_killed(fleet: Fleet) -> None:
    path = fleet.directory / "pid"
    fleet.write(job(fleet, "stay", str(path), policy={"timeout_seconds": 1}))
    fleet.start()
    row = fleet.wait_over(fleet.fire("job"))
    assert row.outcome == Outcome("timed-out", "after 1 s")
    assert not is_alive(int(path.read_text()))


# In the node itself.


def test_a_thread_keeps_its_claim_and_its_lane_until_it_has_really_ended(fleet: Fleet) -> None:
    path, go = fleet.directory / "pid", fleet.directory / "go"
    policy = {"claim_seconds": 2}
    fleet.write(job(fleet, "wait_for", str(path), str(go), isolation="thread", policy=policy))
    node = fleet.start()
    key = fleet.fire("job")
    assert pid_in(path) == node.process.pid
    fleet.ask("kill", key)
    wait_for(lambda: fleet.row(key).stop, what="the stop in the store")
    second = fleet.wait_over(fleet.fire("job"))
    assert second.outcome is not None and second.outcome.kind == "skipped"
    assert fleet.row(key).state == "claimed"
    go.touch()
    row = fleet.row(fleet.wait_over(key).fire.key)
    assert row.outcome is not None and row.outcome.kind == "cancelled"
    assert row.attempts[0].tail.decode().endswith("INFO slow: done\n")


def test_a_timeout_of_a_thread_is_reported_when_the_thread_has_ended(fleet: Fleet) -> None:
    path, go = fleet.directory / "pid", fleet.directory / "go"
    fleet.write(
        job(fleet, "wait_for", str(path), str(go), isolation="thread", policy={"timeout_seconds": 1}),
        {"name": "late", "schedule": "@every 1s", "command": f"test -e {path} && touch {go}-$DETENT_DUE"},
    )
    fleet.start()
    key = fleet.fire("job")
    pid_in(path)
    wait_for(lambda: len(list(fleet.directory.glob("go-*"))) >= 3, what="more than the timeout")
    assert fleet.row(key).state == "claimed"
    go.touch()
    assert fleet.wait_over(key).outcome == Outcome("timed-out", "after 1 s")


def test_an_async_call_on_the_loop_ends_when_it_is_too_long(fleet: Fleet) -> None:
    path = fleet.directory / "pid"
    fleet.write(job(fleet, "nap", str(path), isolation="loop", policy={"timeout_seconds": 1}))
    node = fleet.start()
    row = fleet.wait_over(fleet.fire("job"))
    assert row.outcome == Outcome("timed-out", "after 1 s")
    assert int(path.read_text()) == node.process.pid and node.process.poll() is None


def ended(node: NodeProcess) -> int:
    return wait_for(lambda: node.process.poll() is not None and (node.process.returncode,), what="its end")[0]


def test_a_node_that_cannot_renew_the_claim_of_a_thread_is_ended_by_its_warden(fleet: Fleet) -> None:
    path, go = fleet.directory / "pid", fleet.directory / "go"
    policy = {"claim_seconds": 3, "on_lost": "rerun"}
    fleet.write(job(fleet, "wait_for", str(path), str(go), isolation="thread", policy=policy))
    node = fleet.start()
    key = fleet.fire("job")
    pid_in(path)
    node.process.send_signal(signal.SIGSTOP)
    assert ended(node) == -signal.SIGKILL
    go.touch()
    fleet.start()
    row = fleet.row(fleet.wait_over(key).fire.key)
    assert [attempt.outcome.kind for attempt in row.attempts] == ["lost", "succeeded"]
    assert json.loads(row.attempts[1].result) == "done"


def test_a_node_in_a_hurry_does_not_wait_for_a_thread(fleet: Fleet) -> None:
    path, go = fleet.directory / "pid", fleet.directory / "go"
    fleet.write(job(fleet, "wait_for", str(path), str(go), isolation="thread"), node={"drain_seconds": 3600})
    node = fleet.start()
    key = fleet.fire("job")
    pid_in(path)
    node.process.terminate()
    node.wait("draining")
    node.process.terminate()
    assert ended(node) == -signal.SIGKILL
    fleet.start()
    outcome = fleet.wait_over(key).outcome
    assert outcome is not None and outcome.kind == "lost"


def test_when_the_warden_dies_its_successor_guards_the_thread(fleet: Fleet) -> None:
    path, go = fleet.directory / "pid", fleet.directory / "go"
    fleet.write(job(fleet, "wait_for", str(path), str(go), isolation="thread", policy={"claim_seconds": 3}))
    node = fleet.start()
    fleet.fire("job")
    pid_in(path)
    wardens = kernel.children(node.process.pid)
    for warden in wardens:
        os.kill(warden, signal.SIGKILL)
    lane = str(fleet.instances / "lanes" / "t.job")
    wait_for(lambda: set(host_locks.holders(lane, 1)) - wardens, what="another warden that holds its lane")
    assert node.process.poll() is None
    node.process.send_signal(signal.SIGSTOP)
    assert ended(node) == -signal.SIGKILL
