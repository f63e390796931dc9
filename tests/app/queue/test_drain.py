"""`app.drain()`: queues in tests, with following messages, breakers and lanes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent import BackendError, Detent, Fire, UsageError
from detent.messages.message import DEPTH_MAX
from detent.testing import FakeClock

done: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


def noting(app: Detent, **options: Any) -> Any:
    def note(what: Any = None) -> Any:
        done.append(what)
        if what == "bad":
            raise ValueError("bad")
        if what == "down":
            raise BackendError("down")
        return what

    return app.task(**{"max_retries": 0, "backoff": 0, **options})(note)


def test_drain_returns_every_attempt(detent_app: Detent) -> None:
    note = noting(detent_app, max_retries=1)
    note.push("bad")
    first, second = detent_app.drain()
    assert (first.task, first.outcome, first.reason, first.attempt) == (
        "note",
        "failed",
        "ValueError: bad",
        1,
    )
    assert (first.again_in_s, second.again_in_s, second.attempt) == (0.0, None, 2)
    assert isinstance(second.error, ValueError)


def test_a_result_that_cannot_be_stored_is_a_failure(detent_app: Detent) -> None:
    kept, dropped = noting(detent_app, keep_result=True, max_retries=3), noting(detent_app, name="dropped")
    for task in (kept, dropped):
        task.push(0.5)
    detent_app.task(keep_result=True, name="odd", max_retries=3)(lambda: object()).push()
    ended = {one.task: (one.outcome, one.again_in_s) for one in detent_app.drain()}
    assert ended == {
        "note": ("succeeded", None),
        "dropped": ("succeeded", None),
        "odd": ("rejected", None),
    }


def test_a_retry_that_is_due_later_waits_for_the_clock(detent_clock: FakeClock, detent_app: Detent) -> None:
    note = noting(detent_app, max_retries=2, backoff=(10, 60))
    note.push("bad")
    assert [one.again_in_s for one in detent_app.drain()] == [10.0]
    assert detent_app.drain() == []
    detent_clock.advance(10)
    assert [one.again_in_s for one in detent_app.drain()] == [20.0]
    detent_clock.advance(20)
    assert [one.again_in_s for one in detent_app.drain()] == [None]
    assert done == ["bad"] * 3


def test_drain_runs_what_a_task_pushes(detent_app: Detent) -> None:
    note = noting(detent_app)

    async def start(fire: Fire, count: int) -> str:
        for i in range(count):
            await note.apush(i)
        return fire.key

    handle = detent_app.task(name="start", keep_result=True)(start).push(3)  # type: ignore[call-arg, arg-type]
    assert [one.task for one in detent_app.drain()] == ["start", "note", "note", "note"]
    assert done == [0, 1, 2] and handle.get(0) == handle.key


def test_drain_works_within_a_running_loop(detent_app: Detent) -> None:
    async def main() -> list[Any]:
        async def task() -> int:
            await asyncio.sleep(0)
            return 7

        detent_app.task(name="task")(task).push()
        return [one.result for one in detent_app.drain()]

    assert asyncio.run(main()) == [7]


# What follows.


def test_then_follows_success_catch_follows_failure_and_finally_both(shop: Detent) -> None:
    note = noting(shop)
    follow = {
        "then": note.message("then"),
        "catch": [note.message("catch")],
        "finally_": note.message("finally"),
    }
    note.options(**follow).push("good")
    shop.drain()
    assert sorted(done) == ["finally", "good", "then"]
    done.clear()
    note.options(**follow).push("bad")
    shop.drain()
    assert sorted(done) == ["bad", "catch", "finally"]


def test_following_messages_wait_for_the_last_attempt(shop: Detent) -> None:
    note = noting(shop, max_retries=2)
    note.options(catch=note.message("catch")).push("bad")
    shop.drain()
    assert done == ["bad", "bad", "bad", "catch"]


def test_a_chain_may_have_the_maximum_length_and_not_more(detent_app: Detent) -> None:
    note = noting(detent_app)

    def chain(links: int) -> Any:
        message = note.message(links)
        for number in range(links - 1, 0, -1):
            message = note.options(then=message).message(number)
        return message

    note.options(then=chain(DEPTH_MAX - 1)).push(0)
    detent_app.drain()
    assert done == [*range(DEPTH_MAX)]
    with pytest.raises(UsageError, match=r'drain\.py:\d+: task "note": a chain of more than 20 messages'):
        note.options(then=chain(DEPTH_MAX))


def test_following_messages_keep_their_options(detent_app: Detent) -> None:
    note = noting(detent_app, also_from=("bulk",))
    message = note.options(queue="bulk", priority="low", unique="once").message("then")
    note.options(then=message).push_many([("a",), ("b",)])
    detent_app.drain()
    assert sorted(done) == ["a", "b", "then"]


def test_messages_claimed_without_a_worker_are_followed_too(shop: Detent) -> None:
    note = noting(shop)
    note.options(then=note.message("then")).push("a")
    with shop.queue("default").claim()[0]:
        pass
    shop.drain()
    assert done == ["then"]


@pytest.mark.parametrize("options", [{"delay": 5}, {"connection": object()}])
def test_a_following_message_takes_no_delay_and_no_connection(
    detent_app: Detent, options: dict[str, Any]
) -> None:
    note = noting(detent_app)
    with pytest.raises(UsageError, match="is not allowed for a message that follows another"):
        note.options(**options).message("x")


def test_a_task_of_another_app_cannot_follow(detent_app: Detent) -> None:
    other = noting(Detent("other", store="memory:"))
    with pytest.raises(UsageError, match='then: a task of "other" cannot follow one of "test"'):
        noting(detent_app).options(then=other.message("x"))


def test_a_following_message_of_an_unknown_task_waits_for_a_worker_that_has_it(detent_app: Detent) -> None:
    """A worker of an older version may settle the message before it: nothing is lost, nothing breaks."""
    note = noting(detent_app)
    newer = detent_app.task(name="newer")(lambda: None)
    note.options(then=newer.message()).push("a")
    del detent_app.task_functions["newer"]
    drained = detent_app.drain()
    ended = [(one.outcome, one.again_in_s is None) for one in drained]
    assert ended == [("succeeded", True), ("lost", False)]
    assert drained[1].reason == 'this node has no task "newer"'
    (waiting,) = detent_app.queue("default").peek()
    assert (waiting.task, waiting.attempts) == ("newer", 0)


# Breakers.


def test_a_breaker_opens_probes_and_closes(detent_clock: FakeClock, detent_app: Detent) -> None:
    note = noting(detent_app, breaker="smtp", breaker_threshold=2, breaker_cooldown_seconds=60)
    breaker = detent_app.breaker("smtp")
    assert (breaker.state(), breaker.errors()) == ("closed", 0)
    note.push_many([("bad",), ("down",), ("down",), ("a",), ("b",)])
    detent_app.drain()
    assert done == ["bad", "down", "down"]
    assert (breaker.state(), breaker.errors()) == ("open", 2)
    detent_clock.advance(61)
    assert breaker.state() == "half-open"
    detent_app.drain()
    assert done[3:] == ["a", "b"] or done[3:] == ["a"]
    assert breaker.state() == "closed"
    detent_clock.advance(2)
    detent_app.drain()
    assert done[3:] == ["a", "b"]


def test_reset_closes_a_breaker(shop: Detent) -> None:
    note = noting(shop, breaker="smtp", breaker_threshold=1, breaker_cooldown_seconds=600)
    note.push("down")
    shop.drain()
    assert shop.breaker("smtp").state() == "open"
    shop.breaker("smtp").reset()
    assert (shop.breaker("smtp").state(), shop.breaker("smtp").errors()) == ("closed", 0)
    note.push("a")
    assert [one.outcome for one in shop.drain()] == ["succeeded"]


def test_the_state_of_a_breaker_is_not_mixed_up_with_a_longer_name(detent_app: Detent) -> None:
    noting(detent_app, breaker="smtp-2", breaker_threshold=1).push("down")
    detent_app.drain()
    assert (detent_app.breaker("smtp").state(), detent_app.breaker("smtp-2").state()) == ("closed", "open")


# Lanes.


def test_a_single_task_whose_lane_is_taken_waits_or_fails(shop: Detent) -> None:
    waiting = noting(shop, name="waiting", single="account")
    failing = noting(shop, name="failing", single="account", on_contention="fail")
    waiting.push("first")
    (held,) = shop.queue("default").claim()
    waits, fails = waiting.push("second"), failing.push("third")
    (contended,) = shop.drain()
    assert (contended.task, contended.outcome, contended.attempt) == ("failing", "failed", 0)
    assert contended.cause == "lane"
    assert (waits.state(), fails.state(), done) == ("pending", "failed", [])
    held.ack()
    assert [one.key for one in shop.drain()] == [waits.key]


# Forged ones.


def test_a_refused_message_ends_with_a_named_reason(shop: Detent) -> None:
    forger = Detent(shop.name, store=shop.open_store())
    note = noting(forger)
    note.push("unsigned")
    other = forger.task(name="other")(lambda: None)
    noting(shop)
    other.push()
    reasons = sorted(one.reason.partition(":")[0] for one in shop.drain())
    assert (reasons, done) == (["unsigned", "unsigned"], [])


@pytest.mark.parametrize(
    ("options", "runs"),
    [({}, 1), ({"on_lost": "rerun"}, 2), ({"max_retries": 3}, 4), ({"max_retries": 3, "on_lost": "skip"}, 1)],
)
def test_a_message_of_a_lost_worker_runs_again_as_its_task_says(
    detent_app: Detent, detent_clock: FakeClock, options: dict[str, Any], runs: int
) -> None:
    @detent_app.task(backoff=0, **options)
    def send() -> None: ...

    handle = send.push()
    begun = 0
    while detent_app.queue("default").claim(1, ttl_seconds=5):  # claims and never acknowledges
        begun += 1
        detent_clock.advance(6)
        detent_app.queue("default").claim(1)  # this claim finds the lost fire and settles it
    assert begun == runs and handle.state() == "lost"


@pytest.mark.parametrize(("days", "outcome"), [(1, "succeeded"), (3, "rejected")])
def test_a_message_older_than_the_history_is_stale(
    detent_app: Detent, detent_clock: FakeClock, days: int, outcome: str
) -> None:
    app = Detent("shop", store=detent_app.open_store(), node={"keep_days": 2})
    noting(app).push("a")
    detent_clock.advance(days * 86_400)
    (drained,) = app.drain()
    assert drained.outcome == outcome and drained.reason.startswith("stale: " if days == 3 else "")
