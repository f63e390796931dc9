"""Workers of two versions of an app side by side: a message waits for a worker that has its task."""

from __future__ import annotations

from tests.worker.worker_world import Works, wait_for


def test_a_message_of_a_task_that_a_worker_lacks_waits_for_one_that_has_it(any_works: Works) -> None:
    works = any_works
    works.env["WORKER_LACKS"] = "quick"
    older = works.start(concurrency=2)
    del works.env["WORKER_LACKS"]
    newer_messages = works.tasks.quick.push_many([("give", n) for n in range(5)])
    known = works.tasks.nap.push(0)
    wait_for(lambda: older.events("task-unknown"), what="the unknown task")
    wait_for(lambda: works.row(known).state == "over", what="the message behind them")
    more = works.tasks.quick.push("give", 5)
    last = works.tasks.nap.push(0)
    wait_for(lambda: works.row(last).state == "over", what="the message behind the newest")
    waiting = [works.row(one) for one in (*newer_messages, more)]
    assert [(row.state, row.attempt) for row in waiting] == [("pending", 0)] * 6
    assert works.row(more).outcome is None, "the older worker claims no more of them"
    works.start(concurrency=2)
    works.wait_over([*newer_messages, more])
    assert [one.get(30) for one in (*newer_messages, more)] == [*range(6)]
    assert [row.attempt for row in map(works.row, newer_messages)] == [1] * 5
    assert [one["task"] for one in older.events("task-unknown")] == ["quick"]
