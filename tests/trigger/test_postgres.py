"""Triggers of several hosts on one PostgreSQL: each instant is launched once, and lost fires are settled."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.equipment.fleet import START_S, alive, wait_for
from tests.equipment.postgres_server import shared_server
from tests.trigger.trigger_world import Host, minute, serving

GLOBAL = {"concurrency_scope": "global"}
ONCE = GLOBAL | {"retries": {"max_attempts": 1}}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    name = tmp_path.name.replace("-", "_")
    shared_server().sql(f"CREATE DATABASE {name}")
    url = shared_server().url.replace("/postgres?", f"/{name}?")
    hosts = [Host(tmp_path / name, url) for name in ("a", "b", "c")]
    try:
        yield hosts
    finally:
        for host in hosts:
            host.clear_up()


def test_triggers_of_three_hosts_at_one_moment_launch_it_once(hosts: list[Host]) -> None:
    with serving(200) as app:
        for host in hosts:
            host.write("job", version=1, request={"url": app.url}, policy=GLOBAL)
        for due in (minute(5), minute(4)):
            said = [process.over() for process in [host.start("job", "--due", due) for host in hosts]]
            assert Counter(one.names[-1] for one in said)["success"] == 1
            assert {one.code for one in said} <= {0, 4}
    calls = Counter(asked.headers["idempotency-key"] for asked in app.requests)
    assert (len(calls), set(calls.values())) == (2, {1})


def test_a_claim_of_a_dead_host_is_settled_as_lost_when_it_has_expired(hosts: list[Host]) -> None:
    """No lock proves the death of another host, so the claim must expire."""
    for host in hosts:
        host.write("job", schedules=["@every 1s"], command="sleep 300", policy=GLOBAL | {"claim_seconds": 3})
    process = hosts[0].start("job")
    started = process.wait("fire-started")
    wait_for(lambda: alive(DETENT_NODE=started["node"]), what="its work")
    os.kill(process.pid, signal.SIGKILL)
    process.over()
    hosts[1].write("job", schedules=["@every 1s"], command="true", policy=GLOBAL | {"claim_seconds": 3})
    found: list[str] = []

    def is_settled() -> bool:
        events = hosts[1].trigger("job").events
        found.extend(event["fire"] for event in events if event["event"] == "lost")
        return bool(found)

    wait_for(is_settled, every_s=START_S)
    assert found == [started["fire"]]
    [row] = hosts[2].find(key=started["fire"])
    assert (row.state, row.outcome and row.outcome.kind, row.attempt) == ("over", "lost", 1)
    assert not alive(DETENT_NODE=started["node"])


def test_the_exit_codes_are_the_same_as_on_every_store(hosts: list[Host]) -> None:
    host, other, _ = hosts
    host.write("good", command="true", policy=GLOBAL)
    due = minute(3)
    assert [host.trigger("good", "--due", due).code, host.trigger("good", "--due", due).names] == [
        0,
        ["nothing-due"],
    ]
    with serving(422) as app:
        host.write("refused", request={"url": app.url}, policy=GLOBAL)
        assert host.trigger("refused", "--due", due).code == 1
    host.write("bad", command="false", policy=ONCE)
    assert host.trigger("bad", "--due", due).code == 2
    for one in (host, other):
        one.write("long", command="sleep 300", policy=GLOBAL)
    holder = host.start("long", "--due", due)
    node = holder.wait("fire-started")["node"]
    said = other.trigger("long", "--due", due)
    assert (said.code, said.one("already-launched")["holder"]) == (4, node)
    holder.process.send_signal(signal.SIGTERM)
    assert holder.over().code == 128 + signal.SIGTERM
    host.url = "postgresql://nobody@127.0.0.1:1/none"
    said = host.trigger("good")
    assert (said.code, said.names) == (3, ["store-unavailable"])
