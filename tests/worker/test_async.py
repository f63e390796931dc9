"""Async messages share a process while they run."""

from __future__ import annotations

from tests.worker.worker_world import Works, assert_once, outcomes

AT_ONCE = 50


def most_at_once(works: Works) -> int:
    """Return how many messages ran together, as the witness saw it."""
    steps = [(one.at, 1) for one in works.seen("start")] + [(one.at, -1) for one in works.seen("end")]
    now = most = 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return most


def test_many_async_messages_run_at_once_in_few_processes(works: Works) -> None:
    works.start(concurrency=AT_ONCE, processes=2)
    works.wait_over(works.tasks.nap.push_many([[0.01]] * 4))
    works.witness.write_bytes(b"")
    rows = works.wait_over(works.tasks.nap.push_many([[2.0]] * AT_ONCE))
    assert outcomes(rows) == {"succeeded": AT_ONCE}
    assert len({one.pid for one in works.starts()}) <= 2
    assert most_at_once(works) >= AT_ONCE * 0.8
    assert_once(works.starts())


def test_later_async_messages_join_running_ones(works: Works) -> None:
    """Push one after the other, while the earlier ones still run."""
    works.start(concurrency=AT_ONCE, processes=2)
    handles = []
    for number in range(10):
        handles.append(works.tasks.nap.push(8.0))
        works.wait_starts(number + 1)
    assert works.seen("end") == [] and len({one.pid for one in works.starts()}) <= 2
    assert outcomes(works.wait_over(handles)) == {"succeeded": 10}
    assert_once(works.starts())


def test_async_messages_that_use_threads_stay_in_few_processes(works: Works) -> None:
    worker = works.start(concurrency=4, processes=2)
    handles = [works.tasks.nap_in_thread.push() for _ in range(AT_ONCE)]
    assert outcomes(works.wait_over(handles)) == {"succeeded": AT_ONCE}
    assert len({one.pid for one in works.starts()}) <= 2
    assert worker.events("child-replaced") == []


def test_the_output_of_each_async_message_is_kept_apart(works: Works) -> None:
    works.start(concurrency=20, processes=1)
    handles = works.tasks.nap.push_many([[0.5, f"number-{n}"] for n in range(20)])
    for number, row in enumerate(works.wait_over(handles)):
        lines = row.attempts[0].tail.decode().splitlines()
        mine = [f"number-{number}", f"number-{number} again"]
        assert [line.split(" ", 1)[1] for line in lines if line.startswith("printed")] == mine
        assert [line.rpartition("logged ")[2] for line in lines if "logged" in line] == mine
        assert len(lines) == 6, lines
    assert len({one.pid for one in works.starts()}) == 1
