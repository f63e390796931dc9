"""What happens to the messages of workers that are killed, suspended or drained."""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests.worker.worker_world import Works, alive, assert_once, is_alive, outcomes, wait_for

from detent.model import Outcome


def gone(works: Works) -> bool:
    """Return whether no process of a message is left."""
    return not any(is_alive(one.pid) for one in works.starts())


@pytest.mark.parametrize(
    ("any_works", "whom"),
    [("sqlite", "the worker"), ("redis", "the worker and its warden")],
    indirect=["any_works"],
)
def test_messages_of_a_killed_worker_are_delivered_again(any_works: Works, whom: str) -> None:
    works = any_works
    first = works.start(concurrency=2, processes=2)
    handles = works.tasks.short.push_many([["spawn-and-wait", 1000 if n < 2 else 0] for n in range(2)])
    works.wait_starts(2)
    warden = first.warden
    first.kill()
    if whom != "the worker":
        os.kill(warden, signal.SIGKILL)
    wait_for(lambda: gone(works), what="the end of its children")
    wait_for(lambda: not any(is_alive(one.pid) for one in works.seen("spawned")), what="and of theirs")
    works.start(concurrency=2, processes=2)
    again = works.wait_starts(4, *handles)
    assert sorted(one.attempt for one in again) == [1, 1, 2, 2], "a crash counts as an attempt"
    assert_once(again)


@pytest.mark.parametrize(
    ("served_works", "poison"),
    [("redis", "kill-worker"), ("postgresql", "kill-both")],
    indirect=["served_works"],
)
def test_a_poison_message_ends_dead_after_its_retries(served_works: Works, poison: str) -> None:
    works = served_works
    handle = works.tasks.short.push(poison)
    for attempt in (1, 2, 3):
        worker = works.start()
        works.wait_starts(attempt)
        worker.process.wait(30)
    last = works.start()
    (row,) = works.wait_over([handle])
    assert row.outcome is not None and row.outcome.kind == "lost"
    assert [one.number for one in row.attempts] == [1, 2, 3]
    assert [one.attempt for one in works.starts()] == [1, 2, 3]
    assert works.app.queue("q").size().dead == 1
    assert last.end() == 0


def test_a_worker_drains_on_sigterm(any_works: Works) -> None:
    works = any_works
    worker = works.start_warm()
    first, *rest = works.tasks.quick.push_many([["sleep", 2]] + [["sleep", 0.5]] * 6)
    works.wait_starts(1, first)
    worker.send(signal.SIGTERM)
    assert worker.process.wait(30) == 0
    row = works.row(first)
    assert row.outcome is not None and row.outcome.kind == "succeeded"
    waiting = [works.row(handle) for handle in rest]
    assert {row.state for row in waiting} <= {"over", "pending"}
    assert [row for row in waiting if row.state == "pending"] != [], "it did not do all of them first"
    assert {row.attempt for row in waiting if row.state == "pending"} == {0}, "nothing is counted"
    works.start()
    assert outcomes(works.wait_over([first, *rest])) == {"succeeded": 7}
    assert_once(works.starts())
    assert len(works.starts()) == 7


def test_a_second_signal_stops_messages_at_once(works: Works) -> None:
    worker = works.start(concurrency=2, processes=2)
    handles = works.tasks.short.push_many([["sleep", 1000], ["sleep", 1000]])
    works.wait_starts(2)
    worker.send(signal.SIGTERM)
    worker.wait("draining")
    worker.send(signal.SIGTERM)
    assert worker.process.wait(30) == 0
    assert gone(works)
    rows = [works.row(handle) for handle in handles]
    assert {(row.state, row.attempt) for row in rows} == {("pending", 1)}
    assert {row.attempts[0].outcome for row in rows} == {Outcome("lost", "shutdown", "shutdown")}


def test_a_worker_that_was_suspended_too_long_runs_nothing_twice(served_works: Works) -> None:
    works = served_works
    stopped = works.start()
    handle = works.tasks.short.push("sleep", 5)
    (start,) = works.wait_starts(1)
    stopped.send(signal.SIGSTOP)
    wait_for(lambda: not is_alive(start.pid), what="the warden's end of it")
    ended = time.monotonic()
    works.start()
    again = works.wait_starts(2)[1]
    assert again.attempt == 2 and again.at > ended, "never two at once"
    stopped.send(signal.SIGCONT)
    (row,) = works.wait_over([handle])
    assert row.outcome is not None and (row.outcome.kind, row.attempt) == ("succeeded", 2)
    assert len(works.starts()) == 2
    assert len(works.seen("end")) == 1
    assert stopped.end() == 0
    assert alive(DETENT_RUN_ID=row.fire.run_id) == set()
