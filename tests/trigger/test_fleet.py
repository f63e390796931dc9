"""Triggers of several hosts for the same instants: each is launched once, and missed ones are recorded."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.equipment.fleet import PATIENCE_S, Witness, wait_for
from tests.equipment.proxy import Proxy
from tests.equipment.redis_server import RedisServer
from tests.equipment.wall_clock import WallClock
from tests.trigger.three_crontabs import DOWN_EVERY, jump
from tests.trigger.trigger_world import Host, TriggerProcess, minute, serving, set_watermark_back

GLOBAL = {"concurrency_scope": "global", "timeout_seconds": 60}
MINUTES = DOWN_EVERY
INSTANTS = 3
CLAIM_S = 2  # shorter than a trigger waits for an answer
AHEAD_S = 7.0  # of a clock that is too early
AFTER_IT = ("nothing-due", "already-launched", "lock-contended")


def test_triggers_of_three_hosts_at_one_moment_call_the_app_once(tmp_path: Path, redis: RedisServer) -> None:
    hosts = [Host(tmp_path / name, redis.url) for name in ("a", "b", "c")]
    with serving(200) as app:
        for host in hosts:
            host.write("three", version=1, request={"url": app.url}, policy=GLOBAL)
        codes: Counter[int] = Counter()
        for ago in range(INSTANTS + 2, 2, -1):
            triggers: list[TriggerProcess] = [host.start("three", "--due", minute(ago)) for host in hosts]
            said = [process.over() for process in triggers]
            codes.update(one.code for one in said)
            assert {one.names[-1] for one in said} <= {"success", *AFTER_IT}
    calls = Counter(asked.headers["x-cron-fire-time"] for asked in app.requests)
    assert set(calls.values()) == {1}, calls
    assert len({asked.headers["idempotency-key"] for asked in app.requests}) == len(calls)
    assert len(calls) == INSTANTS
    assert set(codes) <= {0, 4}


def test_three_crontabs_that_fire_seconds_apart_call_the_app_once_a_minute(
    tmp_path: Path, wall_clock: WallClock
) -> None:
    """The clock jumps from trigger to trigger.  In the last minute the first crontab is down."""
    found = jump(tmp_path, wall_clock, MINUTES)
    assert found.faults() == []
    assert len(found.said) == 3 * MINUTES - 1
    assert Counter(one.names[-1] for one in found.said)["nothing-due"] == 2 * MINUTES - 1


def test_a_claim_whose_answer_came_after_it_expired_starts_nothing(
    tmp_path: Path, redis: RedisServer, witness: Witness
) -> None:
    """Trust counts from the ask.  The trigger returns the claim, and claims the fire again."""
    proxy = Proxy(redis.port)
    host = Host(tmp_path / "host", proxy.url)
    host.write("slow", command=witness.words("slow", "sleep", "0"), policy={"claim_seconds": CLAIM_S})
    held = proxy.hold(to=b'"ask":[')
    process = host.start("slow", "--due", minute(3))
    assert held.wait(PATIENCE_S)
    expired_at = time.monotonic() + CLAIM_S
    wait_for(lambda: time.monotonic() > expired_at, what="the end of the claim")
    proxy.restore()
    said = process.over()
    proxy.close()
    assert said.code == 0
    unstarted, started = (event["fence"] for event in said.events if event["event"] == "fire-started")
    assert [one.fence for one in witness.starts()] == [started]
    assert unstarted < started


def test_hosts_whose_clocks_differ_name_the_same_instant(
    tmp_path: Path, redis: RedisServer, wall_clock: WallClock
) -> None:
    """The store's clock decides what is due.  If a minute begins between two triggers, there are two
    fires."""
    with serving(200) as app:
        for ahead_s in (0.0, -5.0, 2.0, -20.0):
            host = Host(tmp_path / f"host{ahead_s}", redis.url)
            host.write("skewed", version=1, request={"url": app.url}, policy=GLOBAL)
            wall_clock.set(ahead_s)
            assert host.trigger("skewed", **wall_clock.env).code == 0
    calls = Counter(asked.headers["x-cron-fire-time"] for asked in app.requests)
    assert set(calls.values()) == {1} and len(calls) <= 2


def test_a_trigger_of_a_host_with_an_early_clock_waits(
    host: Host, redis: RedisServer, wall_clock: WallClock
) -> None:
    """By the host's clock the instant has come, by the store's it is seconds away: the trigger waits."""
    now = datetime.now(UTC)
    first, due = now - timedelta(seconds=3), now + timedelta(seconds=AHEAD_S)
    schedules = [f"{at.second} {at.minute} {at.hour} * * *" for at in (first, due)]
    host.url = redis.url
    host.write("early", schedules=schedules, command="true", policy=GLOBAL)
    assert host.trigger("early").one("success")["due"] == f"{first:%Y-%m-%dT%H:%M:%SZ}"
    wall_clock.set(AHEAD_S)
    said = host.trigger("early", **wall_clock.env)
    event = said.one("success")
    assert (said.code, event["due"]) == (0, f"{due:%Y-%m-%dT%H:%M:%SZ}")
    [row] = host.find(key=event["fire"])
    assert row.attempts[0].started_at >= row.fire.due_at


def test_a_trigger_that_is_not_early_does_not_wait_for_the_next_instant(host: Host) -> None:
    now = datetime.now(UTC)
    first, due = now - timedelta(seconds=3), now + timedelta(seconds=45)
    schedules = [f"{at.second} {at.minute} {at.hour} * * *" for at in (first, due)]
    host.write("job", schedules=schedules, command="true")
    assert host.trigger("job").names[-1] == "success"
    assert host.trigger("job").names == ["nothing-due"]


def test_a_late_trigger_runs_the_fire_that_it_was_started_for(host: Host) -> None:
    due = minute(10)
    at = datetime.fromisoformat(due)
    host.write("job", schedules=[f"{at.minute} {at.hour} * * *"], command="true")
    late = f"{at + timedelta(seconds=42):%Y-%m-%dT%H:%M:%SZ}"
    said = host.trigger("job", "--rang-at", late)
    assert (said.code, said.one("success")["due"]) == (0, due)
    assert host.trigger("job", "--rang-at", due).names == ["nothing-due"]


def test_missed_triggers_become_one_span(host: Host, witness: Witness) -> None:
    """The job is not new, triggers were missed, and only the newest instant runs."""
    host.write("job", schedules=["@every 1s"], command=witness.words("job", "sleep", "0"))
    assert host.trigger("job").code == 0
    wall = Host(host.directory / "later", host.url)
    wall.write("job", schedules=["@every 1s"], command=witness.words("job", "sleep", "0"))
    [first] = witness.starts("job")
    due = datetime.fromisoformat(first.key.partition("@")[2])
    set_watermark_back(host, due - timedelta(hours=2))
    wait_for(lambda: datetime.now(UTC) >= due + timedelta(seconds=1))  # another instant is the newest
    said = wall.trigger("job")
    event = said.one("missed")
    assert event["instants"] > 7000
    assert said.names[-1] == "success"
    assert len(witness.starts("job")) == 2  # the newest alone, however close the others are
    assert len([row for row in host.find() if row.outcome and row.outcome.kind == "missed"]) == 1


def test_a_trigger_with_due_runs_only_that_instant(host: Host, witness: Witness) -> None:
    """Missed instants are left to the next trigger, which settles them by policy."""
    host.write("job", schedules=["@every 1s"], command=witness.words("job", "sleep", "0"))
    assert host.trigger("job").code == 0
    [first] = witness.starts("job")
    newest = datetime.fromisoformat(first.key.partition("@")[2])
    wait_for(lambda: datetime.now(UTC) >= newest + timedelta(seconds=2))  # others are due by now
    due = minute(10)
    said = host.trigger("job", "--due", due)
    assert (said.code, said.one("success")["due"]) == (0, due)
    assert [seen.key for seen in witness.starts("job")] == [first.key, f"t.job@{due}"]
    left = {row.fire.key for row in host.find(state="pending")}
    host.trigger("job")
    assert left and not left & {row.fire.key for row in host.find(state="pending")}
