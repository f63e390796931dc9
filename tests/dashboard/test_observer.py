"""The observer: its load on the store, its memory of the past, and a store that goes away and comes back."""

import asyncio
import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.world import Answer, Counting, Site, Stream, World, applied, run, sqlite_url
from tests.equipment.redis_server import RedisServer

from detent import clock
from detent.dashboard import observer as observers
from detent.dashboard.observer import BURST, CALLS_S
from detent.errors import StoreUnavailable
from detent.model import Outcome

READS = {"look", "find", "notes", "count", "apps", "newest", "tally"}
VIEWERS = 50
WATCHED_S = 6.0


@pytest.fixture
def counted(tmp_path: Path) -> tuple[World, Counting]:
    world = World(sqlite_url(tmp_path))
    store = Counting(world.store)
    world.source = world.source._replace(store=store.as_store)
    return world, store


async def opened(site: Site, target: str = "/api/events") -> Stream:
    stream = site.open("GET", target)
    assert (await stream.next())["status"] == 200
    return stream


async def drain(stream: Stream, until: float) -> list[dict[str, Any]]:
    found = []
    while clock.monotonic() < until:
        found.append((await stream.event())[1])
    return found


def test_pages_that_come_back_at_once_are_all_served(counted: tuple[World, Counting]) -> None:
    """Without a manifest the dashboard has to ask the store first which apps there are."""
    world, _ = counted
    world.run()
    world.source = world.source._replace(manifests={})
    site = world.site()

    async def come_back() -> list[int]:
        answers = await asyncio.gather(*(site.ask("GET", "/api/now?app=shop") for _ in range(VIEWERS)))
        return [answer.status for answer in answers]

    assert set(run(come_back())) == {200}


def test_pages_that_come_back_while_the_store_is_away_are_told_so(counted: tuple[World, Counting]) -> None:
    world, store = counted
    world.source = world.source._replace(manifests={})

    def fail() -> list[str]:
        raise StoreUnavailable("the store does not answer")

    store.apps = fail
    site = world.site()

    async def come_back() -> list[int]:
        answers = await asyncio.gather(*(site.ask("GET", "/api/now?app=shop") for _ in range(VIEWERS)))
        return [answer.status for answer in answers]

    assert set(run(come_back())) == {503}


def test_fifty_viewers_cost_the_store_what_one_costs(counted: tuple[World, Counting]) -> None:
    world, store = counted
    site = world.site()
    world.run()

    async def watch() -> tuple[Counter[str], float, list[dict[str, Any]]]:
        streams = [await opened(site) for _ in range(VIEWERS)]
        first = [(await stream.event())[1] for stream in streams]
        began, before = clock.monotonic(), Counter(store.calls)
        await asyncio.gather(*(drain(stream, began + WATCHED_S) for stream in streams))
        spent, calls = clock.monotonic() - began, store.calls - before
        await asyncio.gather(*(stream.close() for stream in streams))
        return calls, spent, first

    calls, spent_s, first = run(watch())
    assert calls.total() <= CALLS_S * (spent_s + 1), calls
    assert {*store.calls} <= READS, "an observer only reads"
    assert len({one["version"].partition(".")[0] for one in first}) == 1, "all see the same document"


def test_a_stream_too_many_is_refused_and_has_room_after_another_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observers, "VIEWERS_MAX", 2)
    site = world.site()

    async def crowd() -> tuple[Answer, Answer]:
        first, second = await opened(site), await opened(site)
        refused = await site.ask("GET", "/api/events")
        assert (await site.ask("GET", "/api/now")).status == 200, "it can poll"
        await first.close()
        third = await site.ask("GET", "/api/events")
        await second.close()
        return refused, third

    refused, third = run(crowd())
    assert refused.status == 503 and "2 streams are open already" in refused.json["error"]
    assert third.status == 200


def test_streams_leave_half_of_the_files_to_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "getrlimit", lambda kind: (256, 4096))
    assert observers.viewers_max() == 128


def test_the_first_look_is_bounded(counted: tuple[World, Counting]) -> None:
    world, store = counted
    world.site().get("/api/now")
    assert 5 < store.calls.total() <= BURST + 2


def test_nobody_looks_nothing_is_read(
    counted: tuple[World, Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, store = counted
    monkeypatch.setattr(observers, "POLLED_S", 0.2)
    site = world.site()
    assert store.calls.total() == 0

    async def look_and_leave() -> int:
        stream = await opened(site)
        await stream.event()
        await stream.close()
        before = -1
        while before != store.calls.total():  # the round that runs may end
            before = store.calls.total()
            await asyncio.sleep(observers.TICK_S * 1.5)
        await asyncio.sleep(observers.TICK_S * 2)
        return store.calls.total() - before

    assert run(look_and_leave()) == 0


def test_a_viewer_that_comes_back_sees_what_happened_meanwhile(world: World) -> None:
    site = world.site()
    site.get("/api/now")  # its loop ends with the request, and the poller with it
    keys = {world.run() for _ in range(3)}

    async def come_back() -> None:
        stream = await opened(site)
        _, document = await stream.event()
        while not keys <= {*document["marks"]}:
            document = applied(document, (await stream.event())[1])
        await stream.close()

    run(come_back())


def test_a_client_that_follows_a_stream_has_what_a_new_one_gets(world: World) -> None:
    site = world.site()

    async def follow() -> tuple[dict[str, Any], dict[str, Any]]:
        stream = await opened(site)
        _, document = await stream.event()
        for number in range(4):
            world.run(outcome=Outcome("succeeded" if number % 2 else "failed", str(number)))
            _, delta = await stream.event()
            document = applied(document, delta)
        whole = (await site.ask("GET", "/api/now")).json
        while document["version"] != whole["version"]:
            document = applied(document, (await stream.event())[1])
            whole = (await site.ask("GET", "/api/now")).json
        await stream.close()
        return document, whole

    document, whole = run(follow())
    assert document == whole


def test_documents_stay_small(world: World) -> None:
    for _ in range(30):
        world.run()
    site = world.site()

    async def sizes() -> list[int]:
        stream = await opened(site)
        return [len(json.dumps((await stream.event())[1])) for _ in range(5)]

    first, *updates = run(sizes())
    assert first <= 300_000 and statistics.median(updates) <= 5_000


def test_above_the_limit_a_timeline_has_buckets(
    counted: tuple[World, Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = counted
    monkeypatch.setattr("detent.dashboard.picture.ROWS_MAX", 10)
    for _ in range(15):
        world.run()
    found = world.site().get("/api/now?window=86400").json
    assert (
        found["timeline"]["kind"] == "buckets" and found["marks"] == {} and found["timeline"]["step_s"] == 900
    )
    assert sum(cell[1]["failed"] for cell in found["buckets"]["shop.tick"]) >= 10, "those of this minute"


@pytest.fixture
def redis(tmp_path: Path) -> RedisServer:
    return RedisServer(tmp_path / "redis")


def test_a_store_that_is_killed_leaves_the_last_picture_with_its_age(redis: RedisServer) -> None:
    world = World(redis.url)
    world.run()
    site = world.site()

    async def outage() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        stream = await opened(site)
        _, whole = await stream.event()
        redis.end()
        seen = whole
        while not seen["stale"]:
            seen = applied(seen, (await stream.event())[1])
        stale, ages = seen, set()
        while len(ages) < 2:  # its age grows
            seen = applied(seen, (await stream.event())[1])
            ages.add(seen["stale"]["age_s"])
        assert (await site.ask("GET", "/readyz")).status == 503
        answer = await site.ask("GET", "/api/fires")
        assert answer.status == 503 and [*answer.json] == ["error"]
        redis.start()
        while seen["stale"]:
            seen = applied(seen, (await stream.event())[1])
        await stream.close()
        return whole, stale, seen

    whole, stale, back = run(outage())
    assert (
        stale["jobs"].keys() == whole["jobs"].keys()
        and stale["stale"]["error"]
        and stale["stale"]["age_s"] >= 0
    )
    assert back["stale"] is None
    redis.end()


def test_a_store_that_never_answered_is_an_error(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "FIRST_S", 1.0)
    world = World(redis.url)
    redis.end()
    answer = world.site().get("/api/now")
    assert answer.status == 503 and "does not answer" in answer.json["error"]
