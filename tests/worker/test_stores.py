"""Workers and their store: claims of long work are renewed, and a store that is away is awaited."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.equipment.fleet import wait_for
from tests.equipment.postgres_server import Server, new_server
from tests.equipment.proxy import Proxy
from tests.equipment.redis_server import RedisServer
from tests.worker.worker_world import Works, is_alive, outcomes


def test_long_work_is_renewed_and_delivered_once(served_works: Works) -> None:
    works = served_works
    for _ in range(2):
        works.start(concurrency=2, processes=2)
    handles = works.tasks.short.push_many([["sleep", 5]] * 3)  # a claim is for 3 s
    rows = works.wait_over(handles)
    assert outcomes(rows) == {"succeeded": 3}
    assert {row.attempt for row in rows} == {1} and len(works.starts()) == 3


@pytest.mark.parametrize("for_s", [4.0])
def test_work_goes_on_without_the_store_while_its_claim_is_trusted(
    works: Works, worker_redis: RedisServer, tmp_path: Path, for_s: float
) -> None:
    proxy = Proxy(worker_redis.port)
    worker = works.start(concurrency=2, processes=2, store=proxy.url)
    go = tmp_path / "go"
    first, second = works.tasks.quick.push_many([["wait-for", str(go)], ["sleep", for_s]])
    works.wait_starts(2)
    proxy.refuse()
    wait_for(lambda: worker.events("store-unavailable"), what="word of it")
    wait_for(lambda: works.seen("end", [second.key]), what="the end of what was under way")
    go.touch()
    wait_for(lambda: works.seen("end", [first.key]), what="the end of the other")
    proxy.restore()
    rows = works.wait_over([first, second])
    assert outcomes(rows) == {"succeeded": 2} and {row.attempt for row in rows} == {1}
    third = works.tasks.quick.push("give", 3)
    assert third.get(30) == 3
    assert len(worker.events("store-unavailable")) == len(worker.events("store-back")) == 1
    assert len(works.starts()) == 3
    assert worker.end() == 0


@pytest.mark.parametrize("kind", ["redis", "postgresql"])
def test_an_idle_worker_reports_a_store_that_went_away(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = RedisServer(tmp_path) if kind == "redis" else new_server()
    if isinstance(server, Server):
        server.make()
        server.start()
    works = Works(tmp_path, str(server.url), "shop-idle")
    try:
        worker = works.start()
        works.wait_over([works.tasks.quick.push("give", 1)])
        if isinstance(server, Server):
            server.stop()
        else:
            server.end()
        wait_for(lambda: worker.events("store-unavailable"), what="word of it")
        assert len(worker.events("store-unavailable")) == 1
        worker.kill()
    finally:
        works.clear_up()
        if isinstance(server, Server):
            server.remove()


def test_work_stops_if_its_claim_cannot_be_renewed(works: Works, worker_redis: RedisServer) -> None:
    proxy = Proxy(worker_redis.port)
    worker = works.start(store=proxy.url)
    handle = works.tasks.short.push("sleep", 1000)
    works.wait_starts(1)
    proxy.swallow()
    started = works.starts()[0]
    wait_for(lambda: not is_alive(started.pid), what="its end, as its claim is not trusted any more")
    proxy.restore()
    again = works.wait_starts(2, handle)[1]
    assert again.attempt == 2
    worker.kill()
