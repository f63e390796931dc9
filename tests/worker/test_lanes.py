"""Lanes of messages: two messages of one lane never run at once."""

from __future__ import annotations

import json
import signal
from itertools import pairwise

from tests.worker.worker_world import Works, assert_once, is_alive, outcomes, wait_for

MESSAGES = 80


def test_messages_of_one_lane_never_run_at_once(any_works: Works) -> None:
    """The task itself takes a flock, and fails if another message has it."""
    works = any_works
    handles = works.tasks.lone.push_many([["sleep", 0.002]] * MESSAGES)
    for _ in range(3):
        works.start(concurrency=4, processes=2)
    rows = works.wait_over(handles, within_s=240)
    assert outcomes(rows) == {"succeeded": MESSAGES}
    assert {row.attempt for row in rows} == {1}, "contention spends no attempt"
    ends = {one.key: one.at for one in works.seen("end")}
    spans = sorted((one.at, ends[one.key]) for one in works.starts())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert_once(works.starts())


def test_a_crashed_message_frees_its_lane(any_works: Works) -> None:
    works = any_works
    first = works.start()
    stuck = works.tasks.lone.push("sleep", 1000)
    (start,) = works.wait_starts(1)
    following = works.tasks.lone.push("nothing")
    first.kill()
    wait_for(lambda: not is_alive(start.pid), what="the end of the holder")
    works.start()
    works.wait_starts(1, following)
    again = works.wait_starts(2, stuck)[1]
    assert again.attempt == 2
    works.workers[-1].send(signal.SIGKILL)


def test_a_single_message_has_its_result_and_its_output(works: Works) -> None:
    works.start()
    kept, dropped = works.tasks.lone.push("give", [1, "two"]), works.tasks.lone_without_result.push(7)
    written = works.tasks.lone.push("write", "this")
    assert kept.get(30) == [1, "two"]
    rows = works.wait_over([kept, dropped, written])
    assert outcomes(rows) == {"succeeded": 3}
    assert json.loads(rows[0].attempts[0].result) == [1, "two"] and rows[1].attempts[0].result == ""
    tail = rows[2].attempts[0].tail.decode()
    assert "printed this" in tail and "errors this" in tail and "logged this" in tail
