"""Three hosts whose clocks disagree, one of them stopped: each interval fires once, in time."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

from tests.e2e.fleets.hosts import Hosts, monotonic_of, on_postgres
from tests.equipment.fleet import wait_for
from tests.equipment.wall_clock import WallClock

from detent import __version__
from detent.clock import instant

EVERY_S = 2
CLOCKS_S = (-3.0, -3600.0, 5.0)
STOPPED_S = 10.0
EARLY_S = 0.02  # one second of two clocks may be read so far apart


@on_postgres
def test_an_interval_fires_once_and_in_time_even_if_node_clocks_disagree(
    hosts: Hosts, skew_library: Path, tmp_path: Path
) -> None:
    hosts.name_hosts()
    every = f"@every {EVERY_S}s"
    hosts.write(
        hosts.job("tick", "sleep", "0.01", schedule=every, policy={"claim_seconds": 3}),
        hosts.job("each", "sleep", "0", schedule=every, run_on="every"),
    )
    for number, ahead_s in enumerate(CLOCKS_S):
        clock = WallClock(skew_library, tmp_path / f"skew-{number}")
        clock.set(ahead_s)
        hosts.start(**clock.env)
    began, all_nodes = time.time(), {node.instance for node in hosts.nodes}

    _assert_nodes_report_their_clocks(hosts)
    first = hosts.witness.wait_start("tick")
    stopped = hosts.node_of(first.node)
    stopped.send(signal.SIGSTOP)
    stopped_until = time.monotonic() + STOPPED_S
    wait_for(lambda: time.monotonic() > stopped_until)
    stopped.send(signal.SIGCONT)
    wait_for(
        lambda: {one.node for one in _later_than(hosts, stopped_until)} == all_nodes, what="each of them"
    )
    ended = time.time()
    hosts.end()

    _assert_each_instant_fired_once(hosts, began, ended, first.node)
    _assert_no_fire_was_early(hosts)
    hosts.assert_nothing_unclaimed()
    hosts.assert_nothing_is_held()


def _later_than(hosts: Hosts, at: float) -> list[Any]:
    return [one for one in hosts.witness.starts("each") if one.at > at]


def _assert_nodes_report_their_clocks(hosts: Hosts) -> None:
    """`detent nodes` has all three, with their clocks, versions and one fingerprint."""

    def heartbeats() -> list[dict[str, Any]]:
        found = json.loads(hosts.ask("nodes", "-o", "json"))
        return found if len(found) == len(CLOCKS_S) else []

    nodes = wait_for(heartbeats, what="three heartbeats")
    assert [node["node"] for node in nodes] == [node.instance for node in hosts.nodes]
    assert [node["host"] for node in nodes] == ["host-0", "host-1", "host-2"]
    assert [round(node["clock_offset_ms"] / 1000) for node in nodes] == [round(ahead) for ahead in CLOCKS_S]
    assert {node["version"] for node in nodes} == {__version__}
    assert len({node["fingerprint"] for node in nodes}) == 1 and all(node["in_force"] for node in nodes)
    assert all(node["heard_at"] for node in nodes)


def _assert_each_instant_fired_once(hosts: Hosts, began: float, ended: float, stopped: str) -> None:
    """The fires that the stopped node had claimed are lost, and are not launched again."""
    hosts.witness.assert_launched_once()
    assert [one for one in hosts.witness.starts("tick") if not one.free] == []
    rows = hosts.due("tick", instant(ended - 1))
    due = [int(row.fire.due_at.timestamp()) for row in rows]
    assert due == list(range(due[0], due[-1] + 1, EVERY_S))
    assert due[0] <= began + 2 * EVERY_S and due[-1] >= ended - 1 - EVERY_S
    launched_or_lost = {one.key for one in hosts.witness.starts()}
    launched_or_lost |= {row.fire.key for row in rows if row.outcome and row.outcome.kind == "lost"}
    for row in rows:
        assert row.state == "over" and row.outcome is not None
        launched = len(hosts.witness.starts(key=row.fire.key))
        match row.outcome.kind:
            case "succeeded":
                assert launched == 1
            case "skipped":  # its predecessor was still held, by the stopped node or on a busy machine
                assert launched == 0
                assert row.outcome.by in launched_or_lost
            case other:
                assert other == "lost" and row.attempts[0].node == stopped


def _assert_no_fire_was_early(hosts: Hosts) -> None:
    rows = {row.fire.key: row for row in hosts.find()}
    for one in hosts.witness.starts():
        assert one.at >= monotonic_of(rows[one.key].fire.due_at) - EARLY_S, one.key
