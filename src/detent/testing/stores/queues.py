"""Checks of a store: the order of queues, rates, breakers and unique keys."""

from __future__ import annotations

import json
from typing import Any

from detent.model import Claim, Fire, Outcome, Policy, Query, Rate, Usage, Verdict
from detent.rules.breakers import PROBING_S, Circuit, circuit_of
from detent.rules.outcomes import contended, node_lost
from detent.rules.rates import MARGIN_S, rate_text
from detent.stores.base import BREAKER, RATE, Store
from detent.testing.stores.fixtures import (
    AGAIN,
    BEAT_S,
    DONE,
    OVER,
    SMALL_STEPS_S,
    TTL_S,
    Asker,
    Planner,
    World,
    dispositions,
    finish,
    fire,
    keys,
    row,
)

LONG = Rate(3, 60.0)
SPAN_S = LONG.window_s + MARGIN_S
MAIL = Policy("Allow", claim_s=TTL_S, breaker="smtp", breaker_threshold=2, breaker_cooldown_s=30.0)
REFUSED = Verdict(Outcome("failed", "refused", "backend"))
QUEUES = ("mail^high", "mail", "mail^low", "slow")


def _message(number: int, queue: str = "mail", **policy: Any) -> Fire:
    kept: dict[str, Any] = {"concurrency": "Allow", "claim_s": TTL_S} | policy
    return fire(f"a.b@{number:02}", origin="push", queue=queue, policy=Policy(**kept))


def _limit(store: Store, rate: Rate) -> None:
    store.note("a", RATE + "mail", rate_text(rate))


def _mails(store: Store, *numbers: int) -> None:
    store.put([fire(f"a.b@{n:02}", origin="push", policy=MAIL) for n in numbers])


def _circuit(store: Store) -> Circuit:
    texts = [note.text for note in store.notes("a", BREAKER)]
    return circuit_of(texts[0] if texts else "")


def _refuse(store: Store, *claims: Claim) -> None:
    for claim in claims:
        finish(store, claim, REFUSED)


# Order.


def queues_are_served_in_the_order_in_which_they_are_named(store: Store, world: World) -> None:
    for number, queue in enumerate(("slow", "mail^low", "mail", "mail^high")):
        store.put([_message(number, queue), _message(number + 10, queue)])
    node = Asker(store)
    found = [claim.fire.queue for _ in range(4) for claim in node.claim(limit=2, queues=QUEUES)]
    assert found == [queue for queue in QUEUES for _ in range(2)]


def a_queue_that_is_not_named_is_left_alone(store: Store, world: World) -> None:
    store.put([_message(1, "other"), _message(2, "mail^high"), _message(3)])
    assert keys(Asker(store).claim(queues=("mail", "slow"))) == ["a.b@03"]


def a_message_that_is_due_later_does_not_hold_up_its_queue(store: Store, world: World) -> None:
    store.put([_message(1, "mail^high")], delay_s=5)
    store.put([_message(2, "mail")])
    node = Asker(store)
    assert keys(node.claim(queues=QUEUES)) == ["a.b@02"]
    assert 4 < node.ask(queues=QUEUES).next_in_s <= 5
    world.pass_time(5)
    assert keys(node.claim(queues=QUEUES)) == ["a.b@01"]


def all_messages_wait_for_their_lane(store: Store, world: World) -> None:
    store.put([fire(f"a.b@{n}", "Queue", origin="push") for n in range(4)])
    node = Asker(store)
    for number in range(4):
        claim = node.claim_one()
        assert (claim.fire.key, claim.disposition) == (f"a.b@{number}", None)
        assert node.claim() == []
        finish(store, claim)


def a_message_that_must_not_wait_fails_where_its_lane_is_full(store: Store, world: World) -> None:
    store.put([fire(f"a.b@{n}", "Forbid", origin="push") for n in range(2)])
    claims = Asker(store).claim()
    assert dispositions(claims) == {"a.b@0": None, "a.b@1": contended("failed", "a.b@0")}
    assert claims[1].attempt == 0


# Rates.


def a_rate_is_never_exceeded_in_any_window(store: Store, world: World) -> None:
    _limit(store, LONG)
    store.put([_message(n) for n in range(9)])
    node, other, begun, at = Asker(store), Asker(store, "n2"), list[float](), 0.0
    for step_s in (0, 1, 30, 28, 2, 1, 0.5, 29, 29, 3, 1):
        world.pass_time(step_s)
        at += step_s
        for asker in (node, other):
            begun += [at for claim in asker.claim(limit=2, queues=QUEUES) if not claim.disposition]
    assert len(begun) > LONG.most
    for late in begun:
        assert sum(late - LONG.window_s <= one <= late for one in begun) <= LONG.most, begun


def a_rate_allows_another_attempt_when_its_window_has_passed(store: Store, world: World) -> None:
    _limit(store, LONG)
    store.put([_message(n) for n in range(5)])
    node = Asker(store)
    assert len(node.claim(queues=QUEUES)) == LONG.most
    grants = node.ask(queues=QUEUES, ttl_s=400.0)
    assert grants.claims == ()
    assert 0 < grants.next_in_s <= TTL_S
    world.pass_time(SPAN_S)
    assert keys([c for c in node.claim(queues=QUEUES) if not c.disposition]) == ["a.b@03", "a.b@04"]


def a_rate_holds_for_all_priorities_of_its_queue_together(store: Store, world: World) -> None:
    _limit(store, LONG)
    store.put([_message(n, QUEUES[n % 3]) for n in range(9)])
    store.put([_message(20, "slow")])
    claims = Asker(store).claim(queues=QUEUES)
    assert [claim.fire.queue for claim in claims] == ["mail^high"] * 3 + ["slow"]


def a_repeated_ask_is_not_charged_again(store: Store, world: World) -> None:
    _limit(store, LONG)
    store.put([_message(n) for n in range(5)])
    node = Asker(store)
    assert len(node.claim(limit=2, queues=QUEUES)) == 2
    for _ in range(3):
        assert len(node.claim(repeat=True, limit=2, queues=QUEUES)) == 2
    assert store.charge("a", "mail", LONG, 0).used == 2
    assert len(node.claim(limit=2, queues=QUEUES)) == 1


def a_smooth_rate_spaces_its_attempts(store: Store, world: World) -> None:
    _limit(store, Rate(6, 60.0, smooth=True))
    store.put([_message(n) for n in range(5)])
    node = Asker(store)
    for _ in range(3):
        assert len(node.claim(queues=QUEUES)) == 1
        world.pass_time(9)
        grants = node.ask(queues=QUEUES)
        assert grants.claims == ()
        assert 0 < grants.next_in_s <= 1
        world.pass_time(1)


def a_rate_by_key_counts_each_key_by_itself(store: Store, world: World) -> None:
    _limit(store, Rate(1, 60.0, by_key=True))
    store.put([_message(n, rate_key="ab"[n % 2]) for n in range(4)])
    node = Asker(store)
    claims = node.claim(queues=QUEUES)
    assert keys(claims) == ["a.b@00", "a.b@01"]
    assert node.claim(queues=QUEUES) == []
    for claim in claims:
        finish(store, claim)
    assert store.charge("a", "mail/a", LONG, 0).used == 1
    world.pass_time(SPAN_S)
    assert keys(node.claim(queues=QUEUES)) == ["a.b@02", "a.b@03"]


def a_step_of_the_clock_allows_no_further_attempt(store: Store, world: World) -> None:
    _limit(store, LONG)
    store.put([_message(n) for n in range(9)])
    node = Asker(store)
    claims = node.claim(queues=QUEUES)
    for claim in claims:
        finish(store, claim)
    world.step_wall(3600)
    assert node.claim(queues=QUEUES) == []
    world.step_wall(-7200)
    assert node.claim(queues=QUEUES) == []


def a_small_step_of_the_clock_allows_no_further_attempt(store: Store, world: World) -> None:
    for step_s in SMALL_STEPS_S:
        while not store.charge("a", "sms", LONG).free_in_s:
            pass
        world.step_wall(step_s)
        world.pass_time(LONG.window_s)
        assert store.charge("a", "sms", LONG).free_in_s > 0, f"a step of {step_s:g} s"
        store.reset("a", "sms")


def a_charge_is_counted_only_where_the_rate_allows_it(store: Store, world: World) -> None:
    for used in (1, 2, 3):
        assert store.charge("a", "sms", LONG) == Usage(used, 0.0)
    refused = store.charge("a", "sms", LONG)
    assert refused.used == LONG.most
    assert abs(refused.free_in_s - SPAN_S) < 1
    assert store.charge("a", "other", LONG, 0) == Usage(0, 0.0)
    world.pass_time(SPAN_S)
    assert store.charge("a", "sms", LONG) == Usage(1, 0.0)


def a_reset_forgets_what_was_charged(store: Store, world: World) -> None:
    for name in ("sms", "mail"):
        for _ in range(3):
            store.charge("a", name, LONG)
    store.reset("a", "sms")
    assert store.charge("a", "sms", LONG, 0) == Usage(0, 0.0)
    assert store.charge("a", "mail", LONG, 0).used == 3


# Breakers.


def backend_errors_in_a_row_open_a_breaker(store: Store, world: World) -> None:
    _mails(store, 1, 2, 3, 4)
    node = Asker(store)
    first, second, third = node.claim(limit=3)
    _refuse(store, first)
    assert _circuit(store).errors == 1
    finish(store, second, Verdict(Outcome("failed", "backend: refused", "work")))
    assert _circuit(store).errors == 1
    _refuse(store, third)
    assert _circuit(store).opened > 0
    grants = node.ask()
    assert grants.claims == ()
    assert 0 < grants.next_in_s <= 30


def a_success_resets_the_error_count(store: Store, world: World) -> None:
    _mails(store, 1, 2, 3, 4)
    first, second, third = Asker(store).claim(limit=3)
    _refuse(store, first)
    finish(store, second, DONE)
    assert _circuit(store) == Circuit()
    _refuse(store, third)
    assert keys(Asker(store, "n2").claim()) == ["a.b@04"]


def one_fire_probes_a_breaker_that_has_cooled_down(store: Store, world: World) -> None:
    _mails(store, *range(6))
    node = Asker(store)
    _refuse(store, *node.claim(limit=2))
    assert node.claim() == []
    world.pass_time(30)
    probe = Asker(store, "n2").claim_one()
    for other in ("n3", "n4", "n5"):
        assert Asker(store, other).claim() == []
    world.pass_time(PROBING_S)
    assert node.claim() == []
    finish(store, probe, DONE)
    world.pass_time(PROBING_S)
    assert len(node.claim()) == 3
    assert _circuit(store) == Circuit()


def a_probe_that_fails_opens_its_breaker_again(store: Store, world: World) -> None:
    _mails(store, *range(5))
    node = Asker(store)
    _refuse(store, *node.claim(limit=2))
    assert node.claim() == []
    world.pass_time(30)
    _refuse(store, node.claim_one())
    world.pass_time(29)
    assert node.claim() == []
    world.pass_time(1)
    assert len(node.claim()) == 1


def another_fire_probes_after_a_probe_is_lost(store: Store, world: World) -> None:
    _mails(store, *range(5))
    node = Asker(store)
    _refuse(store, *node.claim(limit=2))
    assert node.claim() == []
    world.pass_time(30)
    lost = node.claim_one()
    world.pass_time(TTL_S + 1)
    claims = Asker(store, "n2").claim()
    assert dispositions(claims)[lost.fire.key] == node_lost(lost.node)
    assert len([claim for claim in claims if not claim.disposition]) == 1


def an_attempt_that_ends_after_its_breaker_opened_does_not_change_it(store: Store, world: World) -> None:
    _mails(store, *range(6))
    node = Asker(store)
    first, second, third, fourth = node.claim(limit=4)
    _refuse(store, first, second)
    opened = _circuit(store)
    finish(store, third, DONE)
    _refuse(store, fourth)
    assert _circuit(store) == opened


def a_breaker_can_be_closed_by_hand(store: Store, world: World) -> None:
    _mails(store, 1, 2, 3)
    node = Asker(store)
    _refuse(store, *node.claim(limit=2))
    store.note("a", BREAKER + "smtp", "")
    assert keys(node.claim()) == ["a.b@03"]


def an_attempt_without_a_backend_error_is_retried_through_its_breaker(store: Store, world: World) -> None:
    _mails(store, 1)
    node = Asker(store)
    finish(store, node.claim_one(), AGAIN)
    assert _circuit(store) == Circuit()
    world.pass_time(AGAIN.again_in_s or 0)
    assert node.claim_one().attempt == 2


# Unique keys.


def a_unique_key_is_taken_while_it_is_open_and_for_its_window(store: Store, world: World) -> None:
    one = _message(1, unique_s=100.0)._replace(due_at=store.look("a").now)
    assert store.put([one]) == [True]
    world.pass_time(200)
    again = one._replace(due_at=store.look("a").now)
    assert store.put([again]) == [False]
    finish(store, Asker(store).claim_one(queues=QUEUES))
    assert store.put([again]) == [True]
    finish(store, Asker(store, "n2").claim_one(queues=QUEUES))
    world.pass_time(99)
    assert store.put([one]) == [False]
    world.pass_time(1)
    assert store.put([one]) == [True]
    assert row(store, one.key).attempts == ()


def a_unique_key_is_free_again_once_its_run_has_failed_for_good(store: Store, world: World) -> None:
    one = _message(1, unique_s=100.0)
    store.put([one])
    claim = Asker(store).claim_one(queues=QUEUES)
    finish(store, claim, AGAIN)
    assert store.put([one]) == [False]
    world.pass_time(AGAIN.again_in_s or 0)
    finish(store, Asker(store, "n2").claim_one(queues=QUEUES), OVER)
    assert store.put([one]) == [True]
    late = finish(store, claim, DONE)
    assert late is None
    assert row(store, one.key).state == "pending"


def a_key_that_is_not_unique_is_never_taken_again(store: Store, world: World) -> None:
    store.put([_message(1)])
    finish(store, Asker(store).claim_one(queues=QUEUES), OVER)
    world.pass_time(1000)
    assert store.put([_message(1)]) == [False]


def forget_removes_only_finished_fires(store: Store, world: World) -> None:
    store.put([_message(n) for n in range(4)])
    node = Asker(store)
    finish(store, node.claim_one(limit=1, queues=QUEUES))
    finish(store, node.claim_one(limit=1, queues=QUEUES), OVER)
    node.claim_one(limit=1, queues=QUEUES)
    assert store.forget([f"a.b@{n:02}" for n in range(5)]) == 2
    assert store.forget([f"a.b@{n:02}" for n in range(5)]) == 0
    assert row(store, "a.b@02").state == "claimed"
    assert row(store, "a.b@03").state == "pending"


def pruning_by_count_keeps_dead_letters_and_unique_keys(store: Store, world: World) -> None:
    now = store.look("a").now
    several = [_message(n, unique_s=100.0 * (n == 2), drop_result=True) for n in range(1, 6)]
    store.put([one._replace(due_at=now) for one in several])
    for claim in Asker(store).claim(queues=QUEUES):
        finish(store, claim, OVER if claim.fire.key == "a.b@03" else DONE)
    assert store.prune("a", 1000.0, 0) == 3
    assert row(store, "a.b@02").outcome == DONE.outcome
    assert row(store, "a.b@03").outcome == OVER.outcome
    world.pass_time(100)
    assert store.prune("a", 1000.0, 0) == 1
    world.pass_time(1000)
    assert store.prune("a", 1000.0, 0) == 1


def pruning_by_count_keeps_a_result_until_its_ttl_ends(store: Store, world: World) -> None:
    usual_s = Policy().result_s
    rules: list[dict[str, Any]] = [{"drop_result": True}, {"result_s": 100.0}, {}, {"result_s": 0.0}]
    payload = json.dumps({"args": {"drop_result": True, "policy": "x", "result_s": 0}})
    several = [_message(n, **one)._replace(payload=payload) for n, one in enumerate(rules, 1)]
    lane = _message(5, result_s=100.0)._replace(lane="a.b")
    now = store.look("a").now
    store.put([one._replace(due_at=now) for one in (*several, lane)])
    for claim in Asker(store).claim(queues=QUEUES):
        finish(store, claim, DONE)
    assert store.prune("a", 2 * usual_s, 0) == 2
    assert [one.fire.key for one in store.find(Query(app="a"))] == ["a.b@05", "a.b@03", "a.b@02"]
    world.pass_time(100)
    assert store.prune("a", 2 * usual_s, 0) == 2
    world.pass_time(usual_s)
    assert store.prune("a", 2 * usual_s, 0) == 1


def forget_keeps_scheduled_fires(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance()
    world.pass_time(BEAT_S)
    claim = Asker(store).claim_one()
    finish(store, claim)
    assert store.forget([claim.fire.key]) == 0
