"""The fast paths for plain messages in a Redis store: they behave like the in-memory store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.equipment.redis_server import RedisServer

from detent.model import Ask, Claim, Fire, Grants, Outcome, Policy, Query, Rate, Report, Row, Verdict
from detent.rules.rates import rate_text
from detent.stores.base import RATE, Store
from detent.stores.memory.store import MemoryStore
from detent.stores.redis.store import RedisStore
from detent.testing.stores.fixtures import AGAIN, DONE, OVER, START, TTL_S, Asker, FakeClock, fire

ALLOW = Policy("Allow", claim_s=TTL_S)
SHORT = ALLOW._replace(claim_s=TTL_S / 3)
MAIL = ALLOW._replace(breaker="smtp", breaker_threshold=2, breaker_cooldown_s=30.0)
ONCE = ALLOW._replace(unique_s=60.0)
REFUSED = Verdict(Outcome("failed", "refused", "backend"))
MANY = 1200  # more than are read at a time

Story = Callable[[Store, FakeClock], Iterator[Any]]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    server = RedisServer(tmp_path / "redis", "--appendfsync", "no")
    yield server.url
    server.end()


def _message(key: str, policy: Policy = ALLOW, **fields: Any) -> Fire:
    return fire(key, policy=policy, **({"origin": "push"} | fields))


def _shown(grants: Grants) -> tuple[Any, ...]:
    """Fences start at different numbers in each store, but grow alike."""
    claims = sorted(grants.claims, key=lambda claim: claim.fence)
    given = [(one.fire, one.fence - claims[0].fence, *one[3:]) for one in claims]
    return given, round(grants.next_in_s, 6)


def _row(row: Row) -> Row:
    return row._replace(fence=0, attempts=tuple(one._replace(fence=0) for one in row.attempts))


def _rows(store: Store) -> list[Any]:
    return [_row(row) for row in store.find(Query(app="a", limit=2 * MANY))]


def _ends(store: Store, claims: list[Claim], *verdicts: Verdict) -> Any:
    return store.finish([Report(*pair) for pair in zip(claims, verdicts, strict=True)])


def _mixed_puts(store: Store, clock: FakeClock) -> Iterator[Any]:
    yield store.put([])
    yield store.put([_message("a.b@1"), _message("a.c@1"), _message("a.b@1"), _message("a.b@2")])
    yield store.put([_message("a.b@3"), _message("a.b@2"), _message("a.b@4", MAIL), _message("a.b@4")])
    laned = fire("a.d@1", "Forbid", origin="push")
    yield store.put([_message("a.b@5", start_by=START + timedelta(hours=1)), laned, _message("a.b@6")])
    yield store.put([_message("a.u@1", ONCE)])
    yield store.put([_message("a.u@1", ONCE), _message("a.u@2", ONCE)])
    node = Asker(store)
    yield _shown(node.ask(limit=3))
    yield _shown(node.ask(limit=30))
    yield store.count("a")
    yield _rows(store)


def _mixed_claims(store: Store, clock: FakeClock) -> Iterator[Any]:
    node = Asker(store)
    store.put([_message("a.b@1"), _message("a.c@2", SHORT), _message("a.b@3", MAIL), _message("a.b@4")])
    store.put([_message("a.b@5")], delay_s=5.0)
    store.put([_message("a.b@6", queue="other"), _message("a.b@7", queue="other")])
    yield _shown(node.ask(limit=1, ttl_s=0.0))
    yield _shown(node.ask(limit=9, ttl_s=0.0))
    yield _shown(node.ask(limit=9))
    yield _shown(node.ask(limit=9, queues=("default", "other")))
    yield _shown(node.ask(True, limit=9, queues=("default", "other")))
    clock.pass_time(5.0)
    yield _shown(node.ask(limit=9))
    clock.pass_time(2 * TTL_S)
    store.put([_message("a.b@8"), _message("a.b@9")])
    yield _shown(node.ask(limit=1))
    yield _shown(node.ask(limit=9))
    store.note("a", RATE + "other", rate_text(Rate(1, 60.0)))
    store.put([_message("a.b@10", queue="other"), _message("a.b@11", queue="other")])
    yield _shown(node.ask(limit=9, queues=("other",)))
    yield _rows(store)


def _gates_and_neighbours(store: Store, clock: FakeClock) -> Iterator[Any]:
    node = Asker(store)
    store.put([_message("a.a@1", SHORT), _message("a.b@1")])
    yield _shown(node.ask(limit=9, ttl_s=0.0))
    store.note("a", RATE + "slow", rate_text(Rate(1, 60.0)))
    store.put([_message("a.b@2", queue="slow"), _message("a.b@3", queue="slow")])
    yield _shown(node.ask(limit=9, queues=("slow",)))
    store.put([_message("a.c@1", queue="near")])
    clock.pass_time(1.0)
    store.put([fire("a.c@0", queue="near"), fire("a.d@1", "Forbid", queue="near")])
    clock.pass_time(1.0)
    store.put([_message("a.c@2", queue="near")])
    yield _shown(node.ask(limit=2, queues=("near",)))
    yield _shown(node.ask(limit=9, queues=("near",)))
    store.put([_message(f"a.m@{n}", MAIL, queue="mail") for n in range(4)])
    grants = node.ask(limit=2, queues=("mail",))
    yield _ends(store, list(grants.claims), REFUSED, REFUSED)
    yield _shown(node.ask(limit=9, queues=("mail",)))


def _mixed_ends(store: Store, clock: FakeClock) -> Iterator[Any]:
    node = Asker(store)
    names = [f"a.{'bcd'[n % 3]}@{n}" for n in range(8)]
    store.put([_message(name) for name in names])
    store.put([_message("a.m@1", MAIL), _message("a.m@2", MAIL), fire("a.l@1", "Forbid", origin="push")])
    claims = list(node.ask(limit=20).claims)
    by_key = {claim.fire.key: claim for claim in claims}
    plain = [by_key[name] for name in names]
    clock.pass_time(1.0)
    stale = plain[0]._replace(fence=plain[0].fence - 1)
    yield _ends(store, [stale, plain[0], plain[0], plain[1]], DONE, DONE, OVER, OVER)
    store.cancel(names[2], "enough")
    clock.pass_time(1.0)
    yield _ends(store, [plain[2], plain[3], by_key["a.l@1"]], DONE, DONE, OVER)
    yield _ends(store, [plain[4], plain[5]], AGAIN, DONE)
    yield _ends(store, [by_key["a.m@1"], plain[6], by_key["a.m@2"]], REFUSED, REFUSED, REFUSED)
    yield _ends(store, [plain[5], plain[7]], OVER, DONE)
    clock.pass_time(TTL_S)
    again = node.ask(limit=9)
    yield _shown(again)
    yield _ends(store, list(again.claims), *[OVER] * len(again.claims))
    yield store.count("a")
    yield _rows(store)


def _many(store: Store, clock: FakeClock) -> Iterator[Any]:
    node, names = Asker(store), [f"a.b@{n:05}" for n in range(MANY)]
    yield store.put([_message(name) for name in names])
    grants = node.ask(limit=MANY - 1)
    yield _shown(grants)
    yield _ends(store, list(grants.claims), *[DONE] * (MANY - 1))
    yield _shown(node.ask(limit=MANY))
    yield store.count("a")


def _news_after_a_look(store: Store, clock: FakeClock) -> Iterator[Any]:
    """Later asks use what a look found, until something changes it."""
    node, other = Asker(store), Asker(store, "n2")
    later = START + timedelta(hours=1)

    def one_of(asker: Asker, queue: str, **fields: Any) -> Claim:
        return asker.claim_one(limit=1, queues=(queue,), **fields)

    def put(queue: str, key: str, delay_s: float = 0.0, **fields: Any) -> None:
        store.put([_message(f"a.{key}@{queue}", queue=queue, **fields)], delay_s=delay_s)

    def rate(queue: str) -> None:
        store.note("a", RATE + queue, rate_text(Rate(1, 60.0)))

    def renew_shortly(queue: str) -> None:
        store.renew([one_of(other, queue)._replace(ttl_s=0.5)])

    def claim_with_others(queue: str) -> None:
        store.put([fire("a.a@else", queue="else")])
        node.ask(limit=1, queues=(queue,))
        other.ask(limit=1, queues=(queue, "else"), ttl_s=0.5)

    news: list[Callable[[str], object]] = [
        lambda queue: put(queue, "a", start_by=later),
        lambda queue: store.put([fire("a.a@2", "Forbid", origin="push", queue=queue)]),
        lambda queue: store.put([fire("a.a@3", queue=queue)]),
        lambda queue: put(queue, "a", delay_s=5.0),
        lambda queue: put(queue, "a", delay_s=4.0, start_by=later),
        lambda queue: store.finish([Report(one_of(node, queue), AGAIN)]),
        lambda queue: _lane_again(store, node, queue),
        rate,
        lambda queue: (
            one_of(other, queue),
            store.claim(Ask("a", "n3", 1, 0, queues=(queue,), dead=("n2",))),
        ),
        lambda queue: one_of(other, queue, ttl_s=0.5),
        renew_shortly,
        claim_with_others,
    ]
    for number, happens in enumerate(news):
        queue = f"q{number:02}"
        store.put([_message(f"a.z@{number:02}-{n}", queue=queue) for n in range(9)])
        yield number, _shown(node.ask(limit=1, queues=(queue,)))
        happens(queue)
        for _ in range(3):
            yield number, _shown(node.ask(limit=1, queues=(queue,)))
            clock.pass_time(0.3)
    yield _rows(store)


def _many_queues(store: Store, clock: FakeClock) -> Iterator[Any]:
    """Too many queues for their state to be kept."""
    node, queues = Asker(store), tuple(f"a-queue-with-a-long-name-{n:02}" for n in range(12))
    for n, queue in enumerate(queues):
        store.put([_message(f"a.b@{n}", queue=queue), _message(f"a.c@{n}", queue=queue)])
    for limit in (1, 3, 9):
        yield _shown(node.ask(limit=limit, queues=queues))
    store.put([_message("a.a@1", queue=queues[5], start_by=START + timedelta(hours=1))])
    yield _shown(node.ask(limit=30, queues=queues))


def _lane_again(store: Store, node: Asker, queue: str) -> None:
    """A fire in a lane that is returned while others were looked at."""
    store.put([fire("a.a@lane", "Forbid", origin="push", queue=queue)])
    (claim,) = (one for one in node.claim(limit=2, queues=(queue,)) if one.fire.lane)
    node.ask(limit=1, queues=(queue,))
    store.finish([Report(claim, Verdict(Outcome("failed", "busy"), 0.0))])


STORIES = [
    _mixed_puts,
    _mixed_claims,
    _gates_and_neighbours,
    _mixed_ends,
    _many,
    _news_after_a_look,
    _many_queues,
]


@pytest.mark.parametrize("story", STORIES)
def test_it_behaves_like_the_in_memory_store(story: Story, url: str) -> None:
    stores: list[Callable[[FakeClock], Store]] = [
        lambda clock: MemoryStore(clock.wall, clock.monotonic),
        lambda clock: RedisStore(url, wall=clock.wall, elapsed=clock.monotonic),
    ]
    clocks = [FakeClock(), FakeClock()]
    expected, given = (
        list(story(opened(clock), clock)) for opened, clock in zip(stores, clocks, strict=True)
    )
    assert len(expected) > 3
    for number, (one, other) in enumerate(zip(expected, given, strict=True)):
        assert other == one, f"answer {number}"


def test_an_ask_does_not_write_the_names_of_many_queues(url: str) -> None:
    store, queues = RedisStore(url), tuple(f"a-queue-with-a-long-name-{n:02}" for n in range(40))
    node = Asker(store)
    store.put([_message(f"a.b@{n}", queue=queues[n]) for n in range(3)])
    assert len(node.claim(limit=2, queues=queues)) == 2
    with redis.Redis.from_url(url) as client:
        assert client.strlen("{detent:a}:world") < 400
