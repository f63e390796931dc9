"""What users test their apps with: `fire_due`, a fake clock, fixtures."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from tests.app.app_world import World

import detent
from detent import Detent, UsageError
from detent.testing import FakeClock, app_in_memory

SPRING = "2026-03-29T01:00:00Z"  # in Berlin it is three o'clock, right after two


def test_fire_due_runs_the_jobs_of_an_instant_in_this_thread(detent_app: Detent) -> None:
    ran: list[tuple[detent.Fire, threading.Thread]] = []

    @detent_app.job("30 2 * * *")
    def backup(fire: detent.Fire) -> dict[str, int]:
        ran.append((fire, threading.current_thread()))
        return {"files": 3}

    @detent_app.job("@hourly")
    def other() -> None:
        raise AssertionError("it is not due then")

    (fired,) = detent_app.fire_due("2026-03-29T02:30Z")
    assert (fired.job, fired.outcome, fired.attempts, fired.result) == (
        "backup", "succeeded", 1, {"files": 3},
    )  # fmt: skip
    ((fire, thread),) = ran
    assert fire.key == "test.backup@2026-03-29T02:30:00Z"
    assert fire.due_at == datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
    assert thread is threading.current_thread()


def test_nothing_is_due_at_another_instant(detent_app: Detent) -> None:
    detent_app.job("30 2 * * *", name="backup")(lambda: None)
    assert detent_app.fire_due("2026-03-29T02:31Z") == []


def test_fire_due_follows_a_change_of_offset(detent_app: Detent) -> None:
    """An instant in the gap fires right after it."""
    detent_app.job("30 2 * * *", name="backup", timezone="Europe/Berlin")(lambda: None)
    assert [one.due_at for one in detent_app.fire_due(SPRING)] == [datetime(2026, 3, 29, 1, tzinfo=UTC)]


def test_fire_due_runs_a_period_in_order(detent_app: Detent, detent_clock: FakeClock) -> None:
    seen: list[tuple[str, datetime]] = []
    detent_app.job("*/20 * * * *", name="often")(lambda: seen.append(("often", detent_clock.now())))
    detent_app.job("@hourly", name="hourly")(lambda: seen.append(("hourly", detent_clock.now())))
    fired = detent_app.fire_due("2026-03-01T01:10Z", since="2026-03-01T00:00Z")
    assert [(one.job, f"{one.due_at:%H:%M}") for one in fired] == [
        ("often", "00:20"), ("often", "00:40"), ("hourly", "01:00"), ("often", "01:00"),
    ]  # fmt: skip
    assert seen == [(one.job, one.due_at) for one in fired]  # the clock was advanced too
    assert detent_clock.now() == datetime(2026, 3, 1, 1, 10, tzinfo=UTC)


def test_retries_follow_by_the_policy_without_waiting(detent_app: Detent, detent_clock: FakeClock) -> None:
    at: list[datetime] = []

    @detent_app.job("@daily", max_attempts=4, min_seconds=60, max_seconds=3600)
    def flaky(fire: detent.Fire) -> int:
        at.append(detent_clock.now())
        if fire.attempt < 4:
            raise ValueError("not yet")
        return fire.attempt

    (fired,) = detent_app.fire_due("2026-03-01T00:00Z")
    assert (fired.outcome, fired.attempts, fired.result) == ("succeeded", 4, 4)
    assert [later - sooner for sooner, later in pairwise(at)] == [
        timedelta(minutes=1), timedelta(minutes=2), timedelta(minutes=4),
    ]  # fmt: skip


def test_fire_due_returns_a_failure_with_its_exception(detent_app: Detent) -> None:
    @detent_app.job("@daily", max_attempts=2)
    async def broken() -> None:
        raise ValueError("no such customer")

    (fired,) = detent_app.fire_due("2026-03-01T00:00Z")
    assert (fired.outcome, fired.reason, fired.attempts) == ("failed", "ValueError: no such customer", 2)
    assert isinstance(fired.error, ValueError)


def test_fire_due_works_within_a_running_loop(detent_app: Detent) -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    async def main() -> list[object]:
        return [one.result for one in detent_app.fire_due("2026-03-01T00:00Z")]

    detent_app.job("@daily", name="work")(work)
    assert asyncio.run(main()) == ["done"]


def test_an_exit_code_is_judged_like_that_of_a_program(detent_app: Detent) -> None:
    def leave(status: int) -> None:
        raise SystemExit(status)

    for status in (0, 3):
        detent_app.job("@daily", name=f"exit-{status}", args=[status])(leave)
    reports = [(one.job, one.outcome, one.reason) for one in detent_app.fire_due("2026-03-01T00:00Z")]
    assert reports == [("exit-0", "succeeded", ""), ("exit-3", "failed", "exit 3")]


def test_fire_due_touches_no_store(world: World) -> None:
    app = Detent("shop", store=world.store)
    app.job("@daily", name="x")(lambda: None)
    assert [one.outcome for one in app.fire_due("2026-03-01T00:00Z")] == ["succeeded"]
    assert not (world.folder / "shop.db").exists()


def test_an_instant_needs_a_time_zone(detent_app: Detent) -> None:
    detent_app.job("@daily", name="x")(lambda: None)
    with pytest.raises(UsageError, match="has no time zone"):
        detent_app.fire_due(datetime(2026, 3, 1))
    with pytest.raises(UsageError):
        detent_app.fire_due("2026-03-01 00:00")


def test_a_fake_clock_distinguishes_passing_time_from_a_clock_step() -> None:
    clock = FakeClock("2026-03-01T00:00Z")
    wall, monotonic = clock.wall(), clock.monotonic()
    clock.advance(60)
    assert (clock.wall() - wall, clock.monotonic() - monotonic) == (60, 60)
    clock.step(-3600)
    assert (clock.wall() - wall, clock.monotonic() - monotonic) == (-3540, 60)
    clock.set("2026-03-01T01:00Z")
    assert (clock.wall() - wall, clock.monotonic() - monotonic) == (3600, 60 + 7140)
    clock.set("2026-03-01T00:00Z")
    assert (clock.wall() - wall, clock.monotonic() - monotonic) == (0, 60 + 7140)
    with pytest.raises(UsageError, match="time cannot pass backwards"):
        clock.advance(-1)


def test_an_app_in_memory_runs_in_real_time_too() -> None:
    import detent.runners.call.child  # noqa: F401  a node loads it too: only its `main` makes a process a child

    ran = threading.Event()
    app = Detent("shop", store="memory:")
    app.job("* * * * * *", name="tick")(ran.set)
    app.start()
    assert ran.wait(30)
    app.stop()
    assert app_in_memory().open_store() is not app_in_memory().open_store()


def test_the_fixtures_are_available_when_detent_is_installed(world: World) -> None:
    test = """
def test_nightly(detent_app, detent_clock):
    done = []
    detent_app.job("@daily", name="nightly")(lambda: done.append(detent_clock.now().isoformat()))
    assert [one.outcome for one in detent_app.fire_due("2026-03-01T00:00Z")] == ["succeeded"]
    assert done == ["2026-03-01T00:00:00+00:00"]
"""
    world.write("test_shop.py", test)
    said = world.run("pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
    assert "1 passed" in said.stdout, said
