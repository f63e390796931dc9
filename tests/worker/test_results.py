"""Results that a task asks to keep: an attempt whose result cannot be kept fails, and is not repeated."""

from __future__ import annotations

import pytest
from tests.worker.worker_world import Works, outcomes

from detent import TaskFailed

UNKEPT = {
    "object": "the result, of type object, cannot be kept as JSON: ",
    "long": "it has 70,002 characters, at most 65,536 are allowed; return less",
    "nan": "the result, of type float, cannot be kept as JSON: ",
}
TASKS = ["quick", "lone", "threaded", "give_async", "give_on_loop"]


def test_an_attempt_whose_result_cannot_be_kept_is_rejected_with_the_reason(works: Works) -> None:
    works.start()
    for task in TASKS:
        for kind, reason in UNKEPT.items():
            given = [kind] if task.startswith("give") else ["give-odd", kind]
            handle = getattr(works.tasks, task).push(*given)
            with pytest.raises(TaskFailed) as caught:
                handle.get(60)
            assert caught.value.outcome == "rejected" and reason in caught.value.reason, task
            (attempt,) = works.row(handle).attempts  # its work was done: it is not done again
            assert reason in attempt.tail.decode()


def test_a_message_that_needs_a_rejected_result_does_not_run(works: Works) -> None:
    """`then` follows a success only."""
    works.start()
    after = works.tasks.noted.message_with_result("after")
    handle = works.tasks.quick.options(then=after).push("give-odd", "object")
    (row,) = works.wait_over([handle])
    assert outcomes([row]) == {"rejected": 1}
    assert works.seen("noted: [None, 'after']") == [] and len(works.rows()) == 1


def test_a_task_that_keeps_no_result_may_return_anything(works: Works) -> None:
    works.start()
    handles = [works.tasks.once.push("give-odd", "object"), works.tasks.lone_without_result.push({"a": 1})]
    handles.append(works.tasks.lone_without_keeping.push("object"))
    assert outcomes(works.wait_over(handles)) == {"succeeded": 3}
