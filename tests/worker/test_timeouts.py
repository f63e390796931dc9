"""Timeouts of messages: a message ends with all its processes, and its neighbours keep their full time."""

from __future__ import annotations

import math
import os

from tests.worker.worker_world import Works, assert_once, is_alive, outcomes, wait_for

from detent.model import Outcome
from detent.warden.program.process_trees import ProcessGroupTree
from detent.warden.program.task import IMPORT_S, CallOrder, CallTask


def kinds(row: object) -> list[str]:
    return [one.outcome.kind for one in row.attempts]  # type: ignore[attr-defined]


def test_a_timeout_ends_a_sync_message_with_its_processes(works: Works) -> None:
    works.start_warm()
    limited = works.tasks.limited
    works.wait_over(limited.push_many([()] * 100))  # the worker learns that it is short
    works.witness.write_bytes(b"")
    handles = limited.push_many([["spawn-and-wait", 1000], ["sleep", 1.2], ["sleep", 1.2], ["sleep", 1.2]])
    rows = works.wait_over(handles)
    assert outcomes(rows) == {"timed-out": 1, "succeeded": 3}
    assert rows[0].outcome is not None and rows[0].outcome.reason == "after 3 s"
    assert kinds(rows[0]) == ["timed-out", "timed-out"]
    assert [row.attempt for row in rows[1:]] == [1, 1, 1], "each has all of its own time"
    for one in works.seen("spawned"):
        wait_for(lambda pid=one.pid: not is_alive(pid), what="the end of its process")  # type: ignore[misc]
    assert len(works.seen("spawned")) == 2
    assert_once(works.starts())


def test_each_message_of_a_batch_has_its_full_time(works: Works) -> None:
    """Together they take longer than the timeout of one."""
    works.start_warm()
    limited = works.tasks.limited
    works.wait_over(limited.push_many([()] * 100))
    rows = works.wait_over(limited.push_many([["sleep", 0.5]] * 8))
    assert outcomes(rows) == {"succeeded": 8}
    assert {row.attempt for row in rows} == {1}


def test_an_async_message_is_cancelled_and_the_others_go_on(works: Works) -> None:
    works.start(concurrency=8, processes=1)
    late = works.tasks.limited_nap.push_many([[0.1], [1000], [0.2], [1000]])
    others = works.tasks.nap.push_many([[3.0]] * 3)
    rows = works.wait_over([*late, *others])
    works.wait_over([works.tasks.nap.push(0.01)])
    assert [row.outcome.kind for row in rows if row.outcome] == [
        "succeeded", "timed-out", "succeeded", "timed-out", *["succeeded"] * 3,
    ]  # fmt: skip
    assert rows[1].outcome is not None and rows[1].outcome.reason == "after 1 s"
    assert len({start.pid for start in works.starts()}) == 1, "no child was ended for it"
    assert_once(works.starts())


def test_an_async_message_that_blocks_its_loop_times_out(works: Works) -> None:
    works.start(concurrency=2, processes=1)
    stuck = works.tasks.limited_nap.push(1000, blocks=True)
    (row,) = works.wait_over([stuck])
    assert row.outcome is not None and row.outcome == Outcome("timed-out", "after 1 s")
    handle = works.tasks.nap.push(0.01, "after it")
    assert handle.get(30) == "after it"


def test_the_import_of_a_task_is_not_counted_against_its_time(works: Works) -> None:
    works.env["WORKER_IMPORT_S"] = "4"
    works.start()
    handles = [works.tasks.hasty.push("sleep", 0.2), works.tasks.limited_nap.push(0.2)]
    rows = works.wait_over(handles)
    assert outcomes(rows) == {"succeeded": 2}
    assert max(row.attempts[0].took_s for row in rows) < 4, "nor is it what the task took"
    (row,) = works.wait_over([works.tasks.hasty.push("sleep", 1000)])
    assert row.outcome == Outcome("timed-out", "after 1 s")


def test_an_import_has_its_own_timeout() -> None:
    order = CallOrder("a", "h", "", [], math.inf, math.inf, 2.0, 1.0, "", "", 0)
    call = CallTask(order, ProcessGroupTree(os.getpid()))
    began = call.started_at
    assert began + 1.9 < call.next_at() < began + 3
    for later_s in (0.0, 10.0):  # a repeated report gets no more time
        call.imports(began + later_s, is_under_way=True)
        assert call.next_at() == began + IMPORT_S + 2
    call.imports(began + 50, is_under_way=False)
    assert call.next_at() == began + 52
    call.output.close()
