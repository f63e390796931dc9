"""Messages in a Redis store: what they cost other asks, and which keys they leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.equipment.redis_server import RedisServer

from detent.model import Fire, Outcome, Policy, Query, Rate, Report, Verdict
from detent.rules.decide import DELAYS_MAX
from detent.rules.outcomes import missed
from detent.rules.rates import rate_text, with_priorities
from detent.stores.base import RATE
from detent.stores.engine.driver import LaneMembers
from detent.stores.redis.store import RedisStore
from detent.testing.stores.fixtures import AGAIN, DONE, OVER, TTL_S, Asker, FakeClock, finish, fire, keys, row

ALLOW = Policy("Allow", claim_s=TTL_S)
MAIL = ALLOW._replace(breaker="smtp", breaker_threshold=1, breaker_cooldown_s=30.0)
REFUSED = Verdict(Outcome("failed", "refused", "backend"))
MANY = 3000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", "--appendfsync", "no")
    yield server
    server.end()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(server: RedisServer, clock: FakeClock) -> Iterator[RedisStore]:
    store = RedisStore(server.url, wall=clock.wall, elapsed=clock.monotonic)
    yield store
    store.close()


def _messages(count: int, queue: str = "mail", policy: Policy = ALLOW, **fields: Any) -> list[Fire]:
    job = fields.pop("job", "a.b")
    return [
        fire(f"{job}@{queue}-{n:05}", policy=policy, origin="push", queue=queue, **fields)
        for n in range(count)
    ]


def _kinds(server: RedisServer) -> set[str]:
    """The kinds of the store's keys."""
    return {key.decode().rpartition("}:")[2].partition(":")[0] for key in server.call("KEYS", "*")}


def _answers(store: RedisStore, *claims: Any, verdict: Verdict = DONE) -> None:
    assert store.finish([Report(claim, verdict) for claim in claims]) == [verdict] * len(claims)


def test_a_long_queue_does_not_slow_down_asks_for_other_queues(
    server: RedisServer, store: RedisStore
) -> None:
    node, costs = Asker(store), list[int]()
    for pushed in (1, 10, MANY):  # the first tells the server the script
        store.put(_messages(pushed, "slow"))
        store.put(_messages(1, f"quick-{pushed}"))
        before = server.commands_run()
        assert len(node.claim(queues=with_priorities([f"quick-{pushed}"]))) == 1
        costs.append(server.commands_run() - before)
    assert costs[1] == costs[2]


def test_a_queue_that_is_named_twice_grants_once(store: RedisStore) -> None:
    store.put(_messages(3))
    assert len(Asker(store).claim(queues=("mail", "mail"))) == 3


def test_a_dead_letter_among_many_messages_is_found_by_an_index(
    server: RedisServer, store: RedisStore
) -> None:
    store.put(_messages(MANY))
    node = Asker(store)
    claims = node.claim(limit=MANY, queues=("mail",))
    _answers(store, claims[MANY // 2], verdict=OVER)
    _answers(store, *claims[: MANY // 2], *claims[MANY // 2 + 1 :])
    before = server.commands_run()
    dead = store.find(Query(app="a", state="over", queues=("mail",), kinds=("failed", "lost")))
    assert [one.fire.key for one in dead] == [claims[MANY // 2].fire.key]
    assert dead[0].attempts[0].outcome == OVER.outcome
    assert server.commands_run() - before < 50
    assert store.forget([dead[0].fire.key]) == 1
    assert store.find(Query(app="a", state="over", queues=("mail",), kinds=("failed",))) == []


def test_open_fires_are_found_behind_a_long_history(server: RedisServer, store: RedisStore) -> None:
    store.put(_messages(MANY, "mail^high"))
    _answers(store, *Asker(store).claim(limit=MANY, queues=("mail^high",)))
    store.put(_messages(2))
    held = Asker(store, "n2").claim(limit=1, queues=("mail",))
    before = server.commands_run()
    assert [one.fire.key for one in store.find(Query(app="a", state="claimed"))] == keys(held)
    assert [one.fire.key for one in store.find(Query(queues=("mail",), state="pending"))] == [
        "a.b@mail-00001"
    ]
    assert server.commands_run() - before < 60
    assert len(store.find(Query(job="a.b", queues=("mail^high",), limit=2 * MANY))) == MANY


def test_one_ask_delays_a_bounded_number_of_fires(
    server: RedisServer, store: RedisStore, clock: FakeClock
) -> None:
    store.put(_messages(DELAYS_MAX + 100, policy=MAIL))
    store.put(_messages(1, "slow"))
    node, queues = Asker(store), ("mail", "slow")
    _answers(store, *node.claim(limit=1, queues=("mail",)), verdict=REFUSED)
    first = node.ask(queues=queues)
    assert keys(first.claims) == ["a.b@slow-00000"]
    assert store.count("a")["mail"].pending == 99
    node.ask(queues=queues)
    assert store.count("a")["mail"].pending == 0
    _answers(store, *first.claims)
    clock.pass_time(30)
    assert len(node.claim(queues=queues)) == 1, "the probe"


def test_pruning_removes_all_keys_of_a_message(
    server: RedisServer, store: RedisStore, clock: FakeClock
) -> None:
    store.note("a", RATE + "mail", rate_text(Rate(1000)))
    store.put(_messages(4, policy=MAIL))
    store.put([fire("a.c@1", "Queue", origin="push", queue="mail")])
    node, queues = Asker(store), with_priorities(["mail"])
    first, *others = node.claim(queues=queues)
    finish(store, first, AGAIN, tail=b"output")
    for claim in others:
        finish(store, claim, OVER, tail=b"output", result="1")
    clock.pass_time(TTL_S)
    finish(store, node.claim_one(queues=queues))
    clock.pass_time(32 * 86_400)
    store.note("a", RATE + "mail", "")
    assert store.prune("a", 10, 1000) == 5
    assert _kinds(server) == {"world", "wakeups", "detent", "tally"}  # tallies expire by themselves


def test_many_dead_letters_do_not_prevent_the_pruning_of_surplus(store: RedisStore) -> None:
    store.put(_messages(MANY, policy=ALLOW._replace(drop_result=True)))
    claims = Asker(store).claim(limit=MANY, queues=("mail",))
    dead, acked = claims[: MANY // 2], claims[MANY // 2 :]
    _answers(store, *dead, verdict=OVER)
    _answers(store, *acked)
    assert store.prune("a", 1000, keep=10) == MANY // 2 - 10
    assert store.prune("a", 1000, keep=10) == 0
    assert len(store.find(Query(state="over", kinds=("failed",), limit=MANY))) == MANY // 2


def test_a_message_that_expires_is_missed(store: RedisStore, clock: FakeClock) -> None:
    now = store.look("a").now
    store.put(_messages(1, start_by=now), delay_s=5)
    clock.pass_time(6)
    claim = Asker(store).claim_one(queues=("mail",))
    assert claim.disposition == missed(now)
    assert finish(store, claim, Verdict(claim.disposition)) == Verdict(claim.disposition)
    assert row(store, claim.fire.key).outcome == claim.disposition


def test_follow_up_messages_are_recorded_as_messages(server: RedisServer, store: RedisStore) -> None:
    store.put(_messages(1))
    claim = Asker(store).claim_one(queues=("mail",))
    follow = tuple(_messages(2, job="a.then"))
    finish(store, claim, follow=follow)
    assert [one.fire for one in Asker(store, "n2").claim(queues=("mail",))] == list(follow)


def test_a_name_that_is_not_unicode_is_kept(store: RedisStore) -> None:
    odd = _messages(1, payload='["caf\udce9"]')
    assert store.put([*odd, *_messages(1, "slow", payload='["é\u2028"]')]) == [True, True]
    claims = Asker(store).claim(queues=("mail", "slow"))
    assert claims[0].fire.payload == '["caf\\udce9"]' and claims[1].fire.payload == '["é\u2028"]'


def test_a_look_shows_as_many_waiting_members_of_a_lane_as_it_names(store: RedisStore) -> None:
    store.put([fire(f"a.b@{n}", "Queue", origin="push") for n in range(4)])
    assert keys(Asker(store).ask().claims) == ["a.b@0"]
    with store.driver.hand("a"):
        reads = [LaneMembers(("a.b",), waiting=most) for most in (1, 2, 3)]
        _, found = store.driver.look("a", reads)
    shown = [[one.fire.key for one in members["a.b"]] for members in found]
    assert shown == [[f"a.b@{n}" for n in range(most + 1)] for most in (1, 2, 3)]
