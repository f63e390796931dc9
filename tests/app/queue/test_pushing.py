"""Pushing: order, delays, priorities, uniqueness, options and signatures, on each store."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.equipment.fleet import wait_for

from detent import Detent, UsageError
from detent.app.queue.sending import TOKENS, Tokens
from detent.app.queue.tasks import TaskFunction
from detent.messages.envelope import open_envelope
from detent.messages.message import message_rules
from detent.model import Fire, Query
from detent.stores.base import find_all
from detent.testing import FakeClock, app_in_memory

Task = TaskFunction[..., Any, Any]


def sending(app: Detent, **options: Any) -> Task:
    def send(to: str, subject: str = "hi") -> str:
        if to == "bad":
            raise ValueError("no such customer")
        return f"{subject} {to}"

    return app.task(**{"queue": "mail", "keep_result": True, "backoff": 0, **options})(send)


def fires_of(app: Detent) -> list[Fire]:
    rows = find_all(app.open_store(), Query(app=app.name, limit=100_000))
    return sorted((row.fire for row in rows), key=lambda fire: fire.key)


def test_a_call_of_a_task_calls_its_function(shop: Detent) -> None:
    send = sending(shop)
    assert send("a") == "hi a"
    assert send.__name__ == "send" and send.__wrapped__ is send.task_function  # type: ignore[attr-defined]
    assert fires_of(shop) == []


def test_a_pushed_message_runs_with_its_arguments_and_its_result_is_kept(shop: Detent) -> None:
    send = sending(shop)
    first, second = send.push("a"), send.push("b", subject="ä")
    assert first.is_new and first.state() == "pending"
    assert [one.outcome for one in shop.drain()] == ["succeeded", "succeeded"]
    assert (first.get(0), second.get(0)) == ("hi a", "ä b")
    assert first.state() == "succeeded"
    assert shop.drain() == []


def test_push_many_uses_one_call_and_keeps_the_order(shop: Detent) -> None:
    send, calls, store = sending(shop), list[int](), shop.open_store()
    put = store.put
    store.put = lambda fires, delay_s=0: (calls.append(len(fires)), put(fires, delay_s))[1]  # type: ignore[method-assign]
    handles = send.push_many([(f"{i}",) if i % 2 else {"to": f"{i}"} for i in range(300)])
    assert calls == [300]
    assert len({handle.key for handle in handles}) == 300 and all(handle.is_new for handle in handles)
    keys = [delivery.key for delivery in shop.queue("mail").claim(300)]
    assert keys == [handle.key for handle in handles]


def test_push_many_of_nothing_pushes_nothing(shop: Detent) -> None:
    assert sending(shop).push_many([]) == []


def test_messages_pushed_one_by_one_run_in_their_order(shop: Detent) -> None:
    send = sending(shop)
    keys = [send.push("a").key for _ in range(30)]
    assert [delivery.key for delivery in shop.queue("mail").claim(100)] == keys


def test_async_code_pushes_and_waits(shop: Detent) -> None:
    send = sending(shop)

    async def main() -> list[str]:
        handles = [await send.apush("a"), *await send.apush_many([("b",), {"to": "c"}])]
        await asyncio.to_thread(shop.drain)
        return [await handle.aget(5) for handle in handles]

    assert asyncio.run(main()) == ["hi a", "hi b", "hi c"]


def test_high_priority_runs_first_and_low_priority_last(shop: Detent) -> None:
    send = sending(shop)
    for priority in ("low", "normal", "high"):
        send.options(priority=priority).push(priority)  # type: ignore[arg-type]
    assert [one.result for one in shop.drain()] == ["hi high", "hi normal", "hi low"]


def test_a_delayed_message_is_due_after_its_delay(shop: Detent) -> None:
    send = sending(shop)
    handle = send.options(delay=0.4).push("a")
    assert handle.state() == "delayed"
    assert shop.drain() == []
    wait_for(lambda: handle.state() == "pending")
    assert [one.outcome for one in shop.drain()] == ["succeeded"]


def test_at_is_compared_with_the_clock_of_the_store(shop: Detent) -> None:
    send = sending(shop)
    now = shop.sender.now()
    send.options(at=now + timedelta(hours=1)).push("later")
    send.options(at=now - timedelta(hours=1)).push("now")
    (fire,) = [fire for fire in fires_of(shop) if "later" in fire.payload]
    assert abs(fire.due_at - now - timedelta(hours=1)) < timedelta(seconds=1)
    assert [one.result for one in shop.drain()] == ["hi now"]


def test_messages_have_the_time_of_the_store() -> None:
    """One that is hours behind would make every message with a limit too late at once."""
    clock = FakeClock("2030-01-01T00:00:00Z")
    app = app_in_memory("shop", clock)
    send = sending(app, expires_seconds=60)
    send.push("a")
    (fire,) = fires_of(app)
    assert fire.due_at == clock.now() and fire.start_by == clock.now() + timedelta(seconds=60)
    assert [one.outcome for one in app.drain()] == ["succeeded"]
    clock.advance(3600)
    send.push("b")
    assert max(fire.due_at for fire in fires_of(app)) == clock.now()


def test_the_clock_of_the_store_is_read_once_and_then_extrapolated(shop: Detent) -> None:
    send, store = sending(shop), shop.open_store()
    send.push("a")
    advance, asked = store.advance, list[str]()
    store.advance = lambda app, plans: (asked.append(app), advance(app, plans))[1]  # type: ignore[method-assign]
    before = store.look(shop.name).now
    now = shop.sender.now()
    after = store.look(shop.name).now
    assert before - timedelta(seconds=0.5) <= now <= after + timedelta(seconds=0.5)
    assert not asked or type(store).__name__ == "MemoryStore"


def test_a_unique_message_is_pushed_once_while_it_waits_and_after_it_succeeded(shop: Detent) -> None:
    send = sending(shop)
    first = send.options(unique="order-7").push("a")
    second = send.options(unique="order-7").push("b")
    assert (first.is_new, second.is_new, first.key) == (True, False, second.key)
    assert first.key == f"{shop.name}.send#order-7"
    assert [one.result for one in shop.drain()] == ["hi a"]
    assert not send.options(unique="order-7").push("c").is_new
    assert send.options(unique="order-8").push("d").is_new
    assert second.get(0) == "hi a"


def test_a_unique_message_can_be_pushed_again_after_it_failed_for_good(shop: Detent) -> None:
    send = sending(shop, max_retries=1)
    assert send.options(unique=7).push("bad").is_new
    assert [one.again_in_s for one in shop.drain()] == [0.0, None]
    assert send.options(unique=7).push("good").is_new
    assert [one.outcome for one in shop.drain()] == ["succeeded"]


def test_uniqueness_ends_with_its_window(detent_clock: FakeClock, detent_app: Detent) -> None:
    send = sending(detent_app)
    assert send.options(unique="x", unique_for=60).push("a").is_new
    detent_app.drain()
    detent_clock.advance(59)
    assert not send.options(unique="x", unique_for=60).push("a").is_new
    detent_clock.advance(1)
    assert send.options(unique="x", unique_for=60).push("a").is_new


def test_an_expired_message_is_missed_and_dead(detent_clock: FakeClock, detent_app: Detent) -> None:
    send = sending(detent_app)
    handle = send.options(expires=60).push("a")
    send.push("b")
    detent_clock.advance(61)
    assert {(one.outcome, one.attempt) for one in detent_app.drain()} == {("missed", 0), ("succeeded", 1)}
    assert handle.state() == "missed"
    assert [one.key for one in detent_app.queue("mail").dead()] == [handle.key]


def test_a_message_may_go_to_a_queue_of_also_from(shop: Detent) -> None:
    send = sending(shop, also_from=("bulk",))
    send.options(queue="bulk", priority="low").push("a")
    assert shop.queue("bulk").size().pending == 1
    assert [one.outcome for one in shop.drain()] == ["succeeded"]
    with pytest.raises(UsageError, match='queue: "other" is not bulk or mail'):
        send.options(queue="other")


def test_a_pushed_message_is_signed_and_has_every_option(shop: Detent) -> None:
    send = sending(
        shop, max_retries=3, backoff=(2, 30), jitter=0.5, timeout_seconds=9, claim_seconds=11, single="acc",
        breaker="smtp", breaker_threshold=7, breaker_cooldown_seconds=13, expires_seconds=50,
    )  # fmt: skip
    send.options(rate_key="tenant", unique="u", unique_for=99).push("a")
    (fire,) = fires_of(shop)
    policy = fire.policy
    assert (policy.retries.max_attempts, policy.retries.min_s, policy.retries.max_s) == (4, 2, 30)
    assert (policy.retries.jitter, policy.on_lost, policy.timeout_s, policy.claim_s) == (0.5, "rerun", 9, 11)
    assert (policy.concurrency, policy.max_running, fire.lane) == ("Queue", 1, f"{shop.name}#acc")
    assert (policy.breaker, policy.breaker_threshold, policy.breaker_cooldown_s) == ("smtp", 7, 13)
    assert (policy.rate_key, policy.unique_s, policy.drop_result) == ("tenant", 99, False)
    assert fire.start_by == fire.due_at + timedelta(seconds=50)
    assert "sig" in json.loads(fire.payload)
    rules = message_rules(shop.tasks(), shop.signing())
    assert open_envelope(fire, rules).task == "send"  # type: ignore[union-attr]
    altered = fire._replace(policy=policy._replace(timeout_s=900))
    assert open_envelope(altered, rules).fault == "forged"  # type: ignore[union-attr]


def test_secrets_can_be_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW", "the-new-one")
    monkeypatch.setenv("OLD", "the-old-one")
    by_old, by_both = (
        Detent("shop", store="memory:", signing=refs) for refs in ("env:OLD", ("env:NEW", "env:OLD"))
    )
    sending(by_old).push("a")
    sending(by_both)
    by_both.open_store().put(fires_of(by_old))
    assert [one.outcome for one in by_both.drain()] == ["succeeded"]
    sending(only_new := Detent("shop", store="memory:", signing=("env:NEW",)))
    only_new.open_store().put(fires_of(by_old))
    (refused,) = only_new.drain()
    assert (refused.outcome, refused.reason.partition(":")[0]) == ("rejected", "forged")


def test_a_missing_secret_is_reported_when_it_is_needed() -> None:
    app = Detent("shop", store="memory:", signing=("env:NO_SUCH_SECRET",))
    with pytest.raises(UsageError, match=r"test_pushing\.py:\d+: no secret for signing messages.*NO_SUCH"):
        sending(app).push("a")
    assert app.queue("mail").size().pending == 0


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"priority": "urgent"}, 'priority: "urgent" is not high, normal or low'),
    ({"delay": -1}, "delay: -1 is not a number from 0"),
    ({"delay": float("nan")}, "delay: nan is not a number"),
    ({"delay": 1, "at": datetime.now(UTC)}, "delay and at are both given"),
    ({"at": datetime(2026, 1, 1)}, "at: it has no time zone"),
    ({"at": "2026-01-01"}, "at: it is of type str"),
    ({"unique": "a b"}, 'unique: "a b" is not a text or a whole number without blanks'),
    ({"unique": "a~1"}, 'unique: "a~1" is not'),
    ({"unique": ""}, "unique: the value is empty"),
    ({"unique_for": 5}, "unique_for has no effect without unique="),
    ({"expires": 0}, "expires: 0 is not a number from 0.001"),
    ({"rate_key": "a" * 300}, "rate_key: 300 characters are too many"),
    ({"queue": "Mail"}, 'queue: "Mail" is not a name'),
    ({"then": "audit"}, 'then: "audit" is neither a `task.message(…)`'),
    ({"dely": 5}, 'dely: unknown option "dely"; did you mean "delay"?'),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_bad_option_is_reported_at_once(options: dict[str, Any], message: str) -> None:
    send = sending(Detent("shop", store="memory:"))
    with pytest.raises(UsageError) as caught:
        send.options(**options)
    assert message in str(caught.value) and 'task "send": ' in str(caught.value)


def test_a_connection_is_for_postgresql_only() -> None:
    send = sending(Detent("shop", store="memory:"))
    with pytest.raises(UsageError, match="connection= is for apps whose store is PostgreSQL"):
        send.options(connection=object()).push("a")


# Tokens.


def test_tokens_grow_even_if_the_clock_is_set_back() -> None:
    tokens, now = Tokens(), datetime.now(UTC)
    made = tokens.take(3, now) + tokens.take(2, now - timedelta(hours=1)) + tokens.take(2, now)
    made += tokens.take(1, now + timedelta(milliseconds=5))
    assert all(one < other for one, other in pairwise(made))
    assert {len(one) for one in made} == {32}


def test_tokens_grow_even_if_a_millisecond_has_no_more_of_them() -> None:
    tokens, now = Tokens(), datetime.now(UTC)
    made = [*tokens.take(3, now)]
    tokens._next += 2**20 - 5  # two are left of this millisecond
    made += tokens.take(5, now) + tokens.take(0, now) + tokens.take(1, now)
    assert len(made) == 9 and all(one < other for one, other in pairwise(made))
    assert {len(one) for one in made} == {32}


def _token(at: datetime) -> str:
    return TOKENS.take(1, at)[0]


def test_a_forked_process_does_not_make_the_tokens_of_its_parent() -> None:
    now = datetime.now(UTC)
    ours = _token(now)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        theirs = pool.apply(_token, (now,))
    assert theirs[17:] != ours[17:]
    assert _token(now)[17:] == ours[17:]
