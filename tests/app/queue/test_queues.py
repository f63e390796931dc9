"""Queues: their messages, rates, dead letters and retries, on each store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from detent import Detent, RateLimited, UsageError
from detent.app.queue.tasks import TaskFunction
from detent.model import Query, Rate, Size
from detent.testing import FakeClock

Task = TaskFunction[..., Any, Any]


def sending(app: Detent, **options: Any) -> Task:
    def send(to: str) -> str:
        if to == "bad":
            raise ValueError("no such customer")
        return to

    return app.task(**{"queue": "mail", "keep_result": True, "backoff": 0, **options})(send)


# What is on it.


def test_sizes_count_waiting_running_and_dead_messages(shop: Detent) -> None:
    send, queue = sending(shop), shop.queue("mail")
    assert queue.size() == Size(0, 0, 0, 0)
    send.options(priority="high").push("bad")
    shop.drain()
    send.push_many([("a",)] * 3)
    send.options(priority="low", delay=600).push("b")
    queue.claim(1)
    assert queue.size() == Size(pending=2, delayed=1, running=1, dead=1)
    assert shop.queue("other").size() == Size(0, 0, 0, 0)


def test_peeking_shows_what_is_next_and_takes_nothing(shop: Detent) -> None:
    send, queue = sending(shop), shop.queue("mail")
    for name, options in {
        "later": {"delay": 600, "priority": "high"},
        "low": {"priority": "low"},
        "first": {},
        "second": {},
        "high": {"priority": "high"},
    }.items():
        send.options(**options).push(name)  # type: ignore[arg-type]
    expected = ["high", "first", "second", "low", "later"]
    assert [one.args[0] for one in queue.peek()] == expected
    assert [one.args[0] for one in queue.peek(2)] == expected[:2]
    assert [(one.state, one.priority) for one in queue.peek()][-1] == ("delayed", "high")
    assert [delivery.args[0] for delivery in queue.claim(10)] == expected[:4]  # type: ignore[index]


def test_a_queue_has_a_name(shop: Detent) -> None:
    with pytest.raises(UsageError, match=r'test_\w*queues\.py:\d+: queue: "mail\^high" is not a name'):
        shop.queue("mail^high")


# Dead letters.


def test_dead_letters_have_their_last_error_and_the_newest_is_first(shop: Detent) -> None:
    send, queue = sending(shop, max_retries=1), shop.queue("mail")
    keys = [send.push("bad").key for _ in range(3)]
    send.push("good")
    shop.drain()
    dead = queue.dead()
    assert [one.key for one in dead] == keys[::-1]
    assert {(one.state, one.reason, one.attempts) for one in dead} == {
        ("failed", "ValueError: no such customer", 2)
    }
    assert (dead[0].task, dead[0].args) == ("send", ["bad"]) and dead[0].over_at
    assert [one.key for one in queue.dead(1)] == keys[-1:]


def test_a_dead_letter_is_retried_as_a_new_message_and_only_once(shop: Detent) -> None:
    send, queue = sending(shop), shop.queue("mail")
    old = send.options(priority="high", rate_key="tenant", expires=60).push("bad")
    shop.drain()
    (first,) = queue.retry(old.key)
    assert first.is_new and first.key == f"{old.key}~1"
    assert queue.retry(old.key) == []
    assert (queue.size().dead, queue.size().pending) == (0, 1)
    (row,) = shop.open_store().find(Query(key=first.key))
    assert row.fire.queue == "mail^high" and row.fire.policy.rate_key == "tenant"
    assert row.fire.start_by and (row.fire.start_by - row.fire.due_at).total_seconds() == 60
    assert [(one.key, one.attempt) for one in shop.drain()] == [(first.key, 1)]
    (second,) = queue.retry(first.key)
    assert second.key == f"{old.key}~2"


def test_an_interrupted_retry_makes_no_second_message(shop: Detent) -> None:
    """The new message was stored, and the old one was not deleted yet."""
    send, queue, store = sending(shop), shop.queue("mail"), shop.open_store()
    old = send.push("bad")
    shop.drain()
    forget = store.forget
    store.forget = lambda keys: 0  # type: ignore[method-assign]
    queue.retry(old.key)
    store.forget = forget  # type: ignore[method-assign]
    (again,) = queue.retry(old.key)
    assert not again.is_new
    assert queue.size() == Size(pending=1, delayed=0, running=0, dead=0)


def test_a_unique_dead_letter_is_retried_under_its_own_key(shop: Detent) -> None:
    send, queue = sending(shop), shop.queue("mail")
    old = send.options(unique="order-7").push("bad")
    shop.drain()
    (again,) = queue.retry(old.key)
    assert again.is_new and again.key == old.key
    assert not send.options(unique="order-7").push("good").is_new
    with pytest.raises(UsageError, match="is not dead: it is pending"):
        queue.retry(old.key)


def test_a_retry_takes_the_settings_that_the_task_has_now(shop: Detent) -> None:
    old = sending(shop).push("bad")
    shop.drain()
    newer = Detent(shop.name, store=shop.open_store(), signing=("raw:a secret of the shop",))
    sending(newer, max_retries=4, timeout_seconds=7)
    (again,) = newer.queue("mail").retry(old.key)
    (row,) = newer.open_store().find(Query(key=again.key))
    assert (row.fire.policy.retries.max_attempts, row.fire.policy.timeout_s) == (5, 7)


@pytest.mark.parametrize("what", ["payload", "policy"])
def test_a_retry_does_not_sign_a_forged_message(shop: Detent, what: str) -> None:
    send, queue, store = sending(shop), shop.queue("mail"), shop.open_store()
    donor = Detent(shop.name, store="memory:", signing=("raw:a secret of the shop",))
    handle = sending(donor).push("good")
    (fire,) = (row.fire for row in donor.open_store().find(Query(key=handle.key)))
    if what == "payload":
        fire = fire._replace(payload=fire.payload.replace("good", "evil"))
    else:
        fire = fire._replace(policy=fire.policy._replace(timeout_s=999.0))
    store.put([fire])
    (refused,) = shop.drain()
    assert (refused.outcome, refused.reason.partition(":")[0]) == ("rejected", "forged")
    assert [one.key for one in queue.dead()] == [fire.key]
    with pytest.raises(UsageError, match="cannot be retried: forged"):
        queue.retry(fire.key)
    assert queue.size() == Size(0, 0, 0, dead=1)
    assert send("good") == "good"


REFUSED = {
    "shop.send#nothing": 'there is no message "shop.send#nothing"',
    "GOOD": "is not dead: it is succeeded",
    "OTHER": 'is not a message of the queue "mail"',
}


@pytest.mark.parametrize("key", REFUSED)
def test_only_dead_letters_of_the_queue_are_retried(shop: Detent, key: str) -> None:
    send = sending(shop, also_from=("bulk",))
    keys = {"GOOD": send.push("good").key, "OTHER": send.options(queue="bulk").push("bad").key}
    shop.drain()
    with pytest.raises(UsageError) as caught:
        shop.queue("mail").retry(keys.get(key, key))
    assert REFUSED[key] in str(caught.value)


def test_purging_deletes_dead_letters_and_cancels_waiting_messages(shop: Detent) -> None:
    send, queue = sending(shop), shop.queue("mail")
    dead = send.push_many([("bad",)] * 3)
    good = send.push("good")
    shop.drain()
    waiting = send.options(delay=600).push("later")
    assert queue.purge(dead=True) == 3
    assert (dead[0].state(), good.state(), waiting.state()) == ("unknown", "succeeded", "delayed")
    (delivery,) = (send.push("runs"), *queue.claim(1))[1:]
    assert queue.purge(pending=True) == 1
    assert waiting.state() == "cancelled" and queue.size() == Size(0, 0, 1, 0)
    delivery.ack()
    with pytest.raises(UsageError, match="choose what to purge"):
        queue.purge()


# Rates.


def test_a_limit_holds_for_every_claimer_and_can_be_lifted(shop: Detent) -> None:
    send, queue = sending(shop), shop.queue("mail")
    queue.limit(3, per=600)
    assert queue.rate() == Rate(3, 600)
    send.push_many([("a",)] * 5)
    assert len(queue.claim(10)) == 3 and queue.claim(10) == []
    usage = queue.usage()
    assert usage.used == 3 and 0 < usage.free_in_s <= 601
    queue.reset()
    assert queue.usage().used == 0 and len(queue.claim(1)) == 1
    queue.unlimit()
    assert queue.rate() is None and queue.usage() == (0, 0.0)
    assert len(queue.claim(10)) == 1


def test_a_limit_by_key_counts_each_key_by_itself(shop: Detent) -> None:
    send, queue = sending(shop), shop.queue("mail")
    queue.limit(1, per=600, by_key=True)
    for tenant in ("a", "a", "b"):
        send.options(rate_key=tenant).push(tenant)
    assert sorted(delivery.args[0] for delivery in queue.claim(10)) == ["a", "b"]  # type: ignore[index]
    assert (queue.usage("a").used, queue.usage("c").used) == (1, 0)
    queue.reset("a")
    assert queue.usage("a").used == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"most": 0}, "most: 0 is not a whole number from 1"),
        ({"most": 1, "per": 0}, "per: 0 is not a number from 0.001"),
        ({"most": 1, "smooth": "yes"}, 'smooth: "yes" is not true or false'),
    ],
)
def test_a_bad_limit_is_refused(arguments: dict[str, Any], message: str) -> None:
    queue = Detent("shop", store="memory:").queue("mail")
    with pytest.raises(UsageError) as caught:
        queue.limit(**arguments)
    assert message in str(caught.value) and "test_queues.py" in str(caught.value)


def test_a_throttle_raises_beyond_its_limit(shop: Detent) -> None:
    for _ in range(3):
        shop.throttle("sms", 3, per=600)
    with pytest.raises(RateLimited) as caught:
        shop.throttle("sms", 3, per=600)
    assert 0 < caught.value.free_in_s <= 601
    assert '"sms" is limited to 3 in 600 s: free in ' in str(caught.value)
    shop.throttle("other", 3, per=600)


def test_a_throttle_is_not_a_queues_rate(shop: Detent) -> None:
    queue = shop.queue("sms")
    queue.limit(1, per=600)
    shop.throttle("sms", 1, per=600)
    assert queue.usage().used == 0


def test_a_throttle_opens_when_its_window_has_passed(detent_clock: FakeClock, detent_app: Detent) -> None:
    detent_app.throttle("sms", 1, per=60)
    detent_clock.advance(59)
    with pytest.raises(RateLimited):
        detent_app.throttle("sms", 1, per=60)
    detent_clock.advance(2)
    detent_app.throttle("sms", 1, per=60)


def test_an_unreadable_message_is_shown_as_far_as_possible(shop: Detent) -> None:
    send, store = sending(shop), shop.open_store()
    handle = send.push("a")
    (fire,) = (row.fire for row in store.find(Query(key=handle.key)))
    store.cancel(handle.key)
    store.put(
        [
            fire._replace(key=f"{fire.key}x", payload="{"),
            fire._replace(key=f"{fire.key}y", payload=json.dumps([])),
        ]
    )
    assert {(one.task, one.args) for one in shop.queue("mail").peek()} == {("send", None)}
    assert {one.reason.partition(":")[0] for one in shop.drain()} == {"malformed"}
