"""Batches of messages in real children, where a message ends its child."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.equipment.redis_server import RedisServer
from tests.worker.conftest import worked
from tests.worker.worker_world import Works, assert_once, is_alive, outcomes, wait_for

DEATHS: dict[str, tuple[list[Any], str]] = {
    "os._exit": (["exit", 3], "exit 3"),
    "os._exit(0)": (["exit", 0], "its process exited with status 0 before the function returned"),
    "a segfault": (["segfault"], "killed by SIGSEGV"),
    "kill -9 from inside": (["kill-child"], "killed by SIGKILL"),
}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory, worker_redis: RedisServer) -> Iterator[Works]:
    """A worker that takes large batches, for tests that leave it alive."""
    for works in worked(tmp_path_factory.mktemp("warm"), worker_redis.url):
        works.start_warm()
        yield works


@pytest.mark.parametrize("death", DEATHS)
def test_a_child_that_dies_fails_only_the_message_that_ran(warm: Works, death: str) -> None:
    """Answered messages are done, the running one is retried, and those that had not started count no
    attempt."""
    works = warm
    deed, reason = DEATHS[death]
    handles = works.tasks.quick.push_many([()] * 8 + [deed] + [()] * 8)
    rows = works.wait_over(handles)
    bad, others = rows.pop(8), handles[:8] + handles[9:]
    assert outcomes(rows) == {"succeeded": 16}
    assert {row.attempt for row in rows} == {1}
    assert bad.outcome is not None and (bad.outcome.kind, bad.outcome.reason) == ("failed", reason)
    assert [one.outcome.kind for one in bad.attempts] == ["failed"] * 3
    assert len(works.starts(handles[8])) == 3
    assert len(works.starts(*others)) == 16, "each of the others once"
    assert_once(works.starts())


def test_answers_of_a_child_count_after_its_death(works: Works) -> None:
    """The warden is suspended, and then receives more answers than it reads at once."""
    worker = works.start_warm()
    warden, go = worker.warden, works.directory / "go"
    pushed = [["wait-for", str(go)], *[["write-much"]] * 5, ["exit", 3], ()]
    handles = works.tasks.quick.push_many(pushed)
    (start,) = works.wait_starts(1, handles[0])
    os.kill(warden, signal.SIGSTOP)
    go.touch()
    give_up_at = time.monotonic() + 2.0  # a warden that is silent for longer is replaced
    while is_alive(start.pid) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    os.kill(warden, signal.SIGCONT)
    rows = works.wait_over(handles)
    assert [row.attempt for row in rows] == [1] * 6 + [3, 1]
    assert len(works.starts(*handles[:6])) == 6
    assert_once(works.starts())


def test_the_message_of_a_killed_child_is_retried(works: Works) -> None:
    works.start_warm()
    go = works.directory / "go"
    first, *rest = works.tasks.quick.push_many([["wait-for", str(go)]] + [()] * 8)
    (start,) = works.wait_starts(1, first)
    go.touch()  # for its next attempt
    os.kill(start.pid, signal.SIGSTOP)  # so that it does not see this before it is killed
    os.kill(start.pid, signal.SIGKILL)
    rows = works.wait_over([first, *rest])
    assert outcomes(rows) == {"succeeded": 9}
    assert rows[0].attempt >= 1 and {row.attempt for row in rows[1:]} == {1}
    assert_once(works.starts())


ODD: dict[str, tuple[list[Any], str, str]] = {
    "prints and logs": (["write", "this"], "succeeded", ""),
    "leaves a process": (["spawn"], "succeeded", ""),
    "exits with 3": (["sys-exit", 3], "failed", "exit 3"),
    "exits with 0": (["sys-exit", 0], "succeeded", ""),
    "raises what is no Exception": (["odd"], "failed", "Odd: out of line"),
    "raises KeyboardInterrupt": (["interrupt"], "failed", "KeyboardInterrupt"),
    "comes back twice": (["fork"], "succeeded", ""),
    "spoils its surroundings": (["spoil"], "succeeded", ""),
    "closes its streams": (["close-streams"], "succeeded", ""),
    "closes the descriptors of its streams": (["close-descriptors"], "succeeded", ""),
    "gives something awaitable": (["awaitable", 0.01], "succeeded", ""),
}


def test_a_message_that_misbehaves_harms_no_neighbour(warm: Works) -> None:
    """All in one batch, each beside a message that checks its environment; twice, so that the child is
    reused."""
    works = warm
    for _ in range(2):
        pushed = [one for deed, _, _ in ODD.values() for one in (deed, ["write", "neighbour"])]
        rows = works.wait_over(works.tasks.quick.push_many(pushed))
        for (what, (_, kind, reason)), row, neighbour in zip(ODD.items(), rows[::2], rows[1::2], strict=True):
            assert row.outcome is not None and row.outcome[:2] == (kind, reason), what
            assert neighbour.outcome is not None and neighbour.outcome.kind == "succeeded", what
            tail = neighbour.attempts[-1].tail.decode()
            assert "printed neighbour" in tail and "logged neighbour" in tail, (what, tail)
            assert "this" not in tail
    forks = [row for row in works.rows() if "the child" in "".join(one.result for one in row.attempts)]
    assert len(forks) == 2


def test_environment_and_directory_are_restored_after_a_batch(warm: Works) -> None:
    works = warm
    quick = works.tasks.quick
    before = works.wait_over([quick.push("around")])
    works.wait_over(quick.push_many([["spoil"]] + [()] * 5))
    after = works.wait_over([quick.push("around")])
    assert before[0].attempts[0].result == after[0].attempts[0].result != ""


def test_processes_that_a_message_left_end_with_its_batch(warm: Works) -> None:
    works, (worker,) = warm, warm.workers
    rows = works.wait_over(works.tasks.quick.push_many([["spawn"]] + [()] * 5))
    pid = int(rows[0].attempts[0].result)
    wait_for(lambda: not is_alive(pid), what="the end of what was left")
    assert worker.process.poll() is None


def test_a_result_goes_with_its_message(warm: Works) -> None:
    handles = warm.tasks.quick.push_many([["give", {"n": n}] for n in range(40)])
    assert [handle.get(30) for handle in handles] == [{"n": n} for n in range(40)]


def test_an_awaited_message_ends_before_the_next_one_starts(warm: Works) -> None:
    """A plain function may return an awaitable.  If the next message ends the child, the next one fails."""
    works = warm
    handles = works.tasks.quick.push_many([["awaitable", 0.01], ["exit", 3], ()])
    rows = works.wait_over(handles)
    assert [row.outcome.kind for row in rows if row.outcome] == ["succeeded", "failed", "succeeded"]
    assert [row.attempt for row in rows] == [1, 3, 1]
    assert rows[0].attempts[0].result == '"awaited"'


def test_large_messages_arrive_in_batches_of_any_size(warm: Works) -> None:
    """Larger than the buffer of a socket."""
    handles = warm.tasks.quick.push_many([["give", n, "x" * 250_000] for n in range(10)])
    assert [handle.get(30) for handle in handles] == [*range(10)]
    assert len(warm.starts(*handles)) == 10


def test_messages_behind_a_stuck_one_run_elsewhere(works: Works) -> None:
    """The messages behind it in its batch are returned, and run elsewhere."""
    go = works.directory / "go"
    works.start_warm()
    first, *rest = works.tasks.quick.push_many([["wait-for", str(go)]] + [()] * 30)
    (stuck,) = works.wait_starts(1, first)
    works.start()  # a second worker, which is idle
    wait_for(lambda: len(works.seen("end")) == 30, what="the end of the others")
    assert not works.seen("end", [first.key])
    go.touch()
    rows = works.wait_over([first, *rest])
    assert {row.attempt for row in rows} == {1}
    assert len(works.starts()) == 31 and stuck.pid not in {one.pid for one in works.starts(*rest)}


def test_a_leftover_thread_ends_with_its_child_and_is_reported(works: Works) -> None:
    """Its message does not wait until its claim expires, which would be a failure."""
    worker = works.start()
    first = works.tasks.once.push("leave-thread")
    second = works.tasks.once.push()
    rows = works.wait_over([first, second])
    assert outcomes(rows) == {"succeeded": 2}
    assert '1 thread ("late") still ran 1 s after the function returned' in rows[0].attempts[0].tail.decode()
    assert rows[0].attempts[0].took_s > 0.1, "more than its function: its process was kept for it"
    (event,) = worker.events("child-replaced")
    left = '1 thread ("late") that still ran 1 s after it had returned'
    assert event["reason"] == f"worker_app:once left {left}"
    assert len({one.pid for one in works.starts(first, second)}) == 2
