"""Handles: the state of a message and its result."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from detent import Detent, ResultTimeout, ResultUnknown, TaskFailed, UsageError
from detent.app.queue.tasks import TaskFunction
from detent.model import Query


def answering(app: Detent, **options: Any) -> TaskFunction[..., Any, Any]:
    def answer(value: Any = None) -> Any:
        if value == "bad":
            raise ValueError("no such customer")
        return {"got": value} if value else None

    return app.task(**{"keep_result": True, "backoff": 0, **options})(answer)


def test_a_result_is_what_the_function_returned(shop: Detent) -> None:
    answer = answering(shop)
    handles = answer.push_many([(1,), ([2, "ü"],), ()])
    shop.drain()
    assert [handle.get(0) for handle in handles] == [{"got": 1}, {"got": [2, "ü"]}, None]


def test_get_waits_for_the_result(shop: Detent) -> None:
    answer = answering(shop)
    handle = answer.push(1)
    timer = threading.Timer(0.2, shop.drain)
    timer.start()
    assert handle.get(timeout=30) == {"got": 1}
    timer.join()


def test_get_ends_after_its_timeout(shop: Detent) -> None:
    handle = answering(shop).push(1)
    with pytest.raises(ResultTimeout, match=r"has not ended after 0\.05 s"):
        handle.get(timeout=0.05)
    with pytest.raises(TimeoutError):
        handle.get(0)


def test_a_failure_is_raised_with_its_outcome_and_last_error(shop: Detent) -> None:
    handle = answering(shop, max_retries=2).push("bad")
    shop.drain()
    with pytest.raises(TaskFailed) as caught:
        handle.get(0)
    error = caught.value
    assert (error.outcome, error.reason, error.attempts) == ("failed", "ValueError: no such customer", 3)
    assert str(error) == f"{handle.key}: failed after 3 attempts: ValueError: no such customer"


def test_a_cancelled_message_has_no_result(shop: Detent) -> None:
    handle = answering(shop).push(1)
    shop.open_store().cancel(handle.key, "not wanted")
    assert handle.state() == "cancelled"
    with pytest.raises(TaskFailed, match="cancelled: not wanted"):
        handle.get(0)


def test_the_result_of_a_deleted_message_is_unknown(shop: Detent) -> None:
    handle = answering(shop).push(1)
    shop.drain()
    assert shop.open_store().forget([handle.key]) == 1
    assert handle.state() == "unknown"
    with pytest.raises(ResultUnknown, match=r"no longer stored: .*keep_fires.* result_ttl=") as caught:
        handle.get(0)
    assert not isinstance(caught.value, TaskFailed), "how it ended is not known"


def test_a_kept_result_outlives_the_limit_on_the_number_of_fires(shop: Detent) -> None:
    kept, brief = answering(shop), answering(shop, name="brief", result_ttl=0)
    handles, gone = kept.push_many([(n,) for n in range(1, 6)]), brief.push(1)
    shop.drain()
    shop.open_store().prune(shop.name, 86_400.0, 0)
    assert [handle.get(0) for handle in handles] == [{"got": n} for n in range(1, 6)]
    with pytest.raises(ResultUnknown):
        gone.get(0)


def test_results_are_kept_on_request_only(shop: Detent) -> None:
    handle = answering(shop, keep_result=False).push(1)
    shop.drain()
    (row,) = shop.open_store().find(Query(key=handle.key))
    assert (handle.state(), row.attempts[-1].result) == ("succeeded", "")
    with pytest.raises(
        UsageError, match='results of task "answer" are not kept: declare it with keep_result=True'
    ):
        handle.get(0)
