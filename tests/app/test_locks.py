"""`app.lock`: one holder at a time, even if holders die; a holder learns in time that it lost the lock."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.app.app_world import World
from tests.equipment.fleet import PATIENCE_S, wait_for
from tests.equipment.proxy import Proxy
from tests.equipment.redis_server import RedisServer

from detent import Detent, LockLost, LockTimeout, UsageError
from detent.model import Query, Row
from detent.testing import FakeClock, app_in_memory

HOLDER = Path(__file__).with_name("lock_holder.py")


@pytest.fixture
def app(any_world: World) -> Detent:
    return Detent("locky", store=any_world.store)


@pytest.fixture
def name() -> str:
    """A name of a lock that no other test uses."""
    return f"report-{secrets.token_hex(4)}"


@contextmanager
def holder(world: World, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(HOLDER), world.store, *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=world.env, **pipes)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def rows_of(app: Detent, name: str) -> list[Row]:
    return app.open_store().find(Query(job=f"locky.lock-{name}"))


def kinds_of(app: Detent, name: str) -> list[str]:
    return [row.outcome.kind if row.outcome else row.state for row in reversed(rows_of(app, name))]


def test_one_process_or_thread_at_a_time_holds_a_lock(any_world: World, app: Detent, name: str) -> None:
    counter = any_world.folder / "counter"
    counter.write_text("0")

    def count() -> None:
        for _ in range(5):
            with app.lock(name):
                before = int(counter.read_text())
                time.sleep(0.002)
                counter.write_text(str(before + 1))

    threads = [threading.Thread(target=count) for _ in range(3)]
    words = (any_world, name, "count", str(counter), "5")
    with holder(*words) as one, holder(*words) as other:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
        assert [one.wait(2 * PATIENCE_S), other.wait(2 * PATIENCE_S)] == [0, 0]
    assert counter.read_text() == "25"
    assert {row.outcome.kind for row in rows_of(app, name) if row.outcome} == {"succeeded"}


def test_the_lock_of_a_dead_holder_is_free_after_its_ttl_and_the_fence_grows(
    any_world: World, app: Detent, name: str
) -> None:
    with holder(any_world, name, "hold", "2") as process:
        assert process.stdout
        fence = int(process.stdout.readline())
        with pytest.raises(LockTimeout, match=f'the lock "{name}" of locky is held by another'):
            app.lock(name, timeout=0).__enter__()
        process.kill()
        with app.lock(name, timeout=PATIENCE_S) as held:
            assert held.fence > fence
    assert sorted(kinds_of(app, name)) == ["cancelled", "lost", "succeeded"]  # all is settled


def test_a_lock_is_kept_for_longer_than_its_ttl_while_its_holder_lives(app: Detent, name: str) -> None:
    with app.lock(name, ttl_seconds=4) as held:  # trust ends a second earlier: room for a busy machine
        until = time.monotonic() + 6
        while time.monotonic() < until:
            with pytest.raises(LockTimeout):
                app.lock(name, timeout=0.2).__enter__()
        held.check()
    assert kinds_of(app, name)[0] == "succeeded"


def test_a_caller_that_stops_waiting_leaves_no_open_fire(app: Detent, name: str) -> None:
    with app.lock(name):
        with pytest.raises(TimeoutError):
            app.lock(name, timeout=0.1).__enter__()
        assert sorted(kinds_of(app, name)) == ["cancelled", "claimed"]


def test_a_cancelled_holder_has_lost_its_lock(app: Detent, name: str) -> None:
    """An operator can take a lock away: it is a fire like any other."""
    lost = threading.Event()
    with pytest.raises(LockLost), app.lock(name, ttl_seconds=2, on_loss=lost.set) as held:
        (row,) = rows_of(app, name)
        assert app.open_store().cancel(row.fire.key, "by hand")
        assert lost.wait(PATIENCE_S) and held.is_lost
        with pytest.raises(LockLost):
            held.check()


def test_an_error_within_a_lock_is_raised_and_releases_it(app: Detent, name: str) -> None:
    with pytest.raises(ZeroDivisionError), app.lock(name):
        raise ZeroDivisionError("within")
    with app.lock(name, timeout=0):
        pass
    assert kinds_of(app, name) == ["failed", "succeeded"]


def test_a_holder_without_its_store_learns_of_the_loss_before_another_can_hold_the_lock(
    tmp_path: Path,
) -> None:
    server, lost = RedisServer(tmp_path), list[float]()
    app = Detent("locky", store=server.url)
    with pytest.raises(LockLost), app.lock("x", ttl_seconds=3, on_loss=lambda: lost.append(time.monotonic())):
        began = time.monotonic()
        server.end()
        wait_for(lambda: lost, what="the loss")
    assert lost[0] - began < 3  # the lock is ours for its ttl, whatever the store does
    assert len(lost) == 1


def test_a_lock_is_entered_even_if_the_answer_to_its_claim_is_lost(app_redis: RedisServer, name: str) -> None:
    way = Proxy(app_redis.port)
    app = Detent("locky", store=way.url)
    with closing(way):
        with app.lock(name):
            pass
        way.lose(to=b'"ask":[')
        with app.lock(name, timeout=0):
            assert way.lost == 1
        assert kinds_of(app, name) == ["succeeded", "succeeded"]


# On a loop.


def test_async_tasks_wait_for_a_lock_without_blocking_their_loop(app: Detent, name: str) -> None:
    inside, most, turns = 0, 0, 0

    async def one() -> None:
        nonlocal inside, most
        async with app.lock(name):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.005)

    async def main() -> None:
        turning = asyncio.create_task(turn())
        await asyncio.gather(*(one() for _ in range(12)))
        turning.cancel()

    asyncio.run(main())
    assert most == 1 and turns > 12


def test_an_async_task_that_is_cancelled_while_it_waits_leaves_no_open_fire(app: Detent, name: str) -> None:
    async def wait() -> None:
        async with app.lock(name):
            raise AssertionError("another task holds the lock")

    async def main() -> None:
        async with app.lock(name):
            waiting = asyncio.create_task(wait())
            while len(rows_of(app, name)) < 2:
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            while "cancelled" not in kinds_of(app, name):
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert sorted(kinds_of(app, name)) == ["cancelled", "succeeded"]


def test_on_loss_is_called_on_the_loop_of_the_holder(app: Detent, name: str) -> None:
    async def main() -> None:
        lost = asyncio.Event()

        async def on_loss() -> None:
            assert asyncio.current_task()
            lost.set()

        async with app.lock(name, ttl_seconds=2, on_loss=on_loss):
            (row,) = rows_of(app, name)
            app.open_store().cancel(row.fire.key)
            await asyncio.wait_for(lost.wait(), PATIENCE_S)

    with pytest.raises(LockLost):
        asyncio.run(main())


# What is wrong, and time that is not real.


@pytest.mark.parametrize(
    ("name", "ttl_seconds", "message"),
    [("", 30, "bad lock"), ("a b", 30, "bad lock"), ("x", 0.5, "allowed are 2 to 86,400")],
)
def test_a_lock_with_a_bad_name_or_ttl_is_refused(name: str, ttl_seconds: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        app_in_memory().lock(name, ttl_seconds=ttl_seconds)


def test_a_lock_is_entered_once_at_a_time() -> None:
    lock = app_in_memory().lock("x")
    with lock, pytest.raises(UsageError, match="for each `with`"):
        lock.__enter__()
    with lock:
        pass


def test_in_memory_a_claim_expires_by_the_fake_clock() -> None:
    clock = FakeClock()
    app = app_in_memory("locky", clock)
    lost = app.lock("x", ttl_seconds=60)
    fence = lost.__enter__().fence
    clock.step(3600)  # the wall clock is set: no time has passed
    with pytest.raises(LockTimeout):
        app.lock("x", timeout=0).__enter__()
    clock.advance(61)
    with app.lock("x", timeout=0) as held:
        assert held.fence > fence
