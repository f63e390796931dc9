"""Messages claimed without a worker: renewed and answered; every answer is checked by its fence."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.equipment.fleet import wait_for

from detent import BackendError, ClaimLost, Detent, TaskFailed, UsageError
from detent.app.queue.deliveries import Delivery
from detent.app.queue.tasks import TaskFunction


def sending(app: Detent, **options: Any) -> TaskFunction[..., Any, Any]:
    def send(to: str) -> str:
        return to

    return app.task(**{"queue": "mail", "keep_result": True, "backoff": 0, **options})(send)


def one(app: Detent, **options: Any) -> Delivery:
    (delivery,) = app.queue("mail").claim(1, wait_seconds=30, **options)
    return delivery


def test_a_delivery_has_its_task_arguments_and_attempt(shop: Detent) -> None:
    handle = sending(shop, max_retries=1).push("a")
    first = one(shop)
    assert (first.key, first.task, first.args, first.attempt) == (handle.key, "send", ["a"], 1)
    assert first.queue == "mail" and first.fence > 0
    first.nack()
    second = one(shop)
    assert (second.attempt, second.run_id) == (2, first.run_id) and second.fence > first.fence


def test_an_acked_message_never_comes_back(shop: Detent) -> None:
    handle = sending(shop).push("a")
    one(shop).ack({"sent": True})
    assert handle.get(0) == {"sent": True}
    assert shop.queue("mail").claim() == []


def test_done_deliveries_are_acked_with_the_next_claim(shop: Detent) -> None:
    send, queue = sending(shop), shop.queue("mail")
    handles = [send.push(to) for to in "abc"]
    first = one(shop)
    (second,) = queue.claim(1, done=[first])
    assert [handle.state() for handle in handles] == ["succeeded", "running", "pending"]
    assert not first.is_lost
    with pytest.raises(UsageError, match="cannot be nacked: it was acked before"):
        first.nack()
    with pytest.raises(UsageError, match="cannot be acked: it was acked before"):
        queue.claim(1, done=[second, first])
    assert handles[1].state() == "running"
    assert len(queue.claim(9, done=[second])) == 1


@pytest.mark.parametrize("done", [None, "x", [7]], ids=repr)
def test_done_must_be_a_list_of_deliveries(shop: Detent, done: Any) -> None:
    sending(shop).push("a")
    with pytest.raises(
        UsageError, match=r"test_deliveries\.py:\d+: bad done .*: it must be a list of deliveries"
    ):
        shop.queue("mail").claim(1, done=done)
    delivery = one(shop)
    with pytest.raises(UsageError, match=r"bad done Delivery\("):
        shop.queue("mail").claim(1, done=delivery)  # type: ignore[arg-type]
    delivery.ack()


def test_a_delivery_that_is_done_too_late_is_lost_and_does_not_block_the_claim(shop: Detent) -> None:
    send, queue = sending(shop, max_retries=1), shop.queue("mail")
    handle = send.push("a")
    late = one(shop, ttl_seconds=2)
    again = one(shop)
    assert again.key == late.key
    other = send.push("b")
    (last,) = queue.claim(9, done=[late])
    assert (last.key, late.is_lost) == (other.key, True)
    with pytest.raises(ClaimLost):
        late.ack()
    assert queue.claim(done=[again, last]) == []
    assert handle.state() == other.state() == "succeeded"


def test_a_result_that_is_not_json_is_refused_and_the_claim_is_kept(shop: Detent) -> None:
    handle = sending(shop).push("a")
    delivery = one(shop)
    with pytest.raises(UsageError, match="the result, of type object, cannot be kept as JSON: Encoding"):
        delivery.ack(object())
    delivery.ack()
    assert handle.state() == "succeeded"


def test_a_nacked_message_comes_again_until_no_attempt_is_left(shop: Detent) -> None:
    handle = sending(shop, max_retries=2).push("a")
    for attempt in (1, 2, 3):
        delivery = one(shop)
        assert delivery.attempt == attempt
        delivery.nack(reason="busy")
    assert shop.queue("mail").claim() == []
    with pytest.raises(TaskFailed, match="failed after 3 attempts: busy"):
        handle.get(0)
    assert [dead.key for dead in shop.queue("mail").dead()] == [handle.key]


def test_a_nacked_message_waits_for_its_delay(shop: Detent) -> None:
    handle = sending(shop, max_retries=1).push("a")
    one(shop).nack(delay=600)
    assert handle.state() == "delayed" and shop.queue("mail").claim() == []
    with pytest.raises(UsageError, match="bad delay -1"):
        sending(shop, name="other").push("b") and one(shop).nack(delay=-1)


def test_an_abandoned_message_is_dead_at_once(shop: Detent) -> None:
    handle = sending(shop, max_retries=5).push("a")
    one(shop).abandon("no such address")
    assert handle.state() == "rejected"
    (dead,) = shop.queue("mail").dead()
    assert (dead.key, dead.reason, dead.attempts) == (handle.key, "no such address", 1)


def test_a_message_is_answered_once(shop: Detent) -> None:
    sending(shop).push("a")
    delivery = one(shop)
    delivery.ack()
    for again in (
        delivery.ack,
        delivery.nack,
        delivery.renew,
        lambda: delivery.abandon("x"),
        delivery.__enter__,
    ):
        with pytest.raises(UsageError, match="it was acked before"):
            again()


def test_an_expired_claim_goes_to_another_and_its_answer_is_refused(shop: Detent) -> None:
    handle = sending(shop, max_retries=1).push("a")
    late = one(shop, ttl_seconds=2)
    assert not late.is_lost
    newer = one(shop)
    assert (newer.key, newer.attempt) == (late.key, 2) and newer.fence > late.fence
    assert late.is_lost
    for answer in (late.ack, late.renew):
        with pytest.raises(ClaimLost):
            answer()
    assert handle.state() == "running"
    newer.ack("second")
    assert handle.get(0) == "second"


def test_a_crash_counts_as_an_attempt(shop: Detent) -> None:
    """So that no message that kills its workers comes for ever."""
    handle = sending(shop, max_retries=1).push("a")
    for attempt in (1, 2):
        assert one(shop, ttl_seconds=2).attempt == attempt
    wait_for(lambda: not shop.queue("mail").claim() and handle.state() == "lost")
    assert [dead.attempts for dead in shop.queue("mail").dead()] == [2]


def test_a_claim_is_renewed_by_renew_and_within_with(shop: Detent) -> None:
    sending(shop, max_retries=5).push_many([("a",), ("b",)])
    by_hand, entered = shop.queue("mail").claim(2, ttl_seconds=2)
    until = time.monotonic() + 3.0  # longer than the ttl
    with entered:
        while time.monotonic() < until:
            by_hand.renew()
            assert shop.queue("mail").claim() == []
            threading.Event().wait(0.2)
        assert not entered.is_lost and not by_hand.is_lost
    by_hand.ack()
    assert shop.queue("mail").size() == (0, 0, 0, 0)


def test_with_acks_a_delivery_at_its_end(shop: Detent) -> None:
    handle = sending(shop).push("a")
    with one(shop) as delivery:
        assert delivery.args == ["a"]
    assert handle.state() == "succeeded"


def test_a_delivery_may_be_answered_within_with(shop: Detent) -> None:
    handle = sending(shop).push("a")
    with one(shop) as delivery:
        delivery.ack(7)
    assert handle.get(0) == 7


@pytest.mark.parametrize(
    ("error", "reason", "cause"),
    [
        (ValueError("no"), "ValueError: no", "work"),
        (BackendError("down"), "BackendError: down", "backend"),
        (SystemExit(3), "SystemExit: 3", "work"),
        (SystemExit(69), "SystemExit: 69", "work"),
    ],
)
def test_an_error_within_with_fails_the_delivery_and_is_raised(
    shop: Detent, error: BaseException, reason: str, cause: str
) -> None:
    sending(shop, max_retries=1).push("a")
    with pytest.raises(type(error)), one(shop):
        raise error
    (waiting,) = shop.queue("mail").peek()
    assert (waiting.reason, waiting.cause, waiting.attempts) == (reason, cause, 1)


def test_a_delivery_that_is_cancelled_meanwhile_is_reported_as_cancelled(shop: Detent) -> None:
    handle = sending(shop, max_retries=1).push("a")
    with one(shop, ttl_seconds=3) as delivery:
        shop.open_store().cancel(handle.key, "not wanted")
        wait_for(lambda: delivery.is_lost)
    assert handle.state() == "cancelled"


def test_a_push_ends_the_wait_for_a_message(shop: Detent) -> None:
    send = sending(shop)
    timer = threading.Timer(0.3, lambda: send.push("a"))
    timer.start()
    assert one(shop).args == ["a"]
    timer.join()
    assert shop.queue("mail").claim(wait_seconds=0.1) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n: 0 is not a whole number from 1"),
        ({"ttl_seconds": 0.5}, "ttl_seconds: 0.5 is not a number"),
    ],
)
def test_bad_arguments_of_claim_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Detent("shop", store="memory:").queue("mail").claim(**arguments)
    assert message in str(caught.value)


def test_secrets_are_not_stored(shop: Detent) -> None:
    handles = sending(shop).push_many([("a",), ("b",)])
    one(shop).ack({"key": "a secret of the shop"})
    one(shop).nack(reason="401 for a secret of the shop")
    assert handles[0].get(0) == {"key": "***"}
    with pytest.raises(TaskFailed, match=r"failed: 401 for \*\*\*$"):
        handles[1].get(0)
