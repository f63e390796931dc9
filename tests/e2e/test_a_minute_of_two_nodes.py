"""Two nodes share a store; one is stopped for a while, one is killed, and another node starts."""

import signal
import time
from datetime import timedelta

from tests.equipment.fleet import Fleet, NodeProcess, Seen, wait_for

from detent.clock import instant
from detent.model import Row

NEARLY_A_SECOND_S = 0.9
RUN_S = 20.0
STOPPED_S = 5.0
TAKEOVER_S = 2.0


def test_every_instant_has_one_row_and_is_launched_once_or_explained(fleet: Fleet) -> None:
    fleet.write(fleet.job("tick", "sleep", "0.1"))
    nodes = [fleet.start(), fleet.start()]
    began = time.time()

    stopped = _next_to_start(fleet)
    _stop_for_a_while(stopped)
    killed, fire, killed_at = _kill(fleet)
    lost = fleet.wait_over(fire.key)
    fleet.start()

    wait_for(lambda: time.time() > began + RUN_S, RUN_S + 1)
    assert all(node.end() == 0 for node in [*nodes, *fleet.nodes[2:]] if node is not killed)

    assert lost.outcome is not None and lost.outcome.kind == "lost"
    assert lost.over_at is not None and lost.over_at - instant(killed_at) < timedelta(seconds=TAKEOVER_S)
    rows = fleet.due("tick", instant(began + RUN_S))
    _assert_every_second_is_one_row(rows, began)
    fleet.witness.assert_no_overlap()
    _assert_each_is_accounted_for(fleet, rows, {stopped.instance, killed.instance})


def _next_to_start(fleet: Fleet) -> NodeProcess:
    start = fleet.witness.wait_start("tick", len(fleet.witness.starts("tick")))
    return fleet.node_of(start.node)


def _stop_for_a_while(node: NodeProcess) -> None:
    node.send(signal.SIGSTOP)
    until = time.monotonic() + STOPPED_S
    wait_for(lambda: time.monotonic() > until)
    node.send(signal.SIGCONT)
    node.wait("success", count=len(node.events("success")) + 1)


def _kill(fleet: Fleet) -> tuple[NodeProcess, Seen, float]:
    start = fleet.witness.wait_start("tick", len(fleet.witness.starts("tick")))
    node, killed_at = fleet.node_of(start.node), time.time()
    node.kill()
    return node, start, killed_at


def _assert_every_second_is_one_row(rows: list[Row], began: float) -> None:
    first = rows[0].fire.due_at
    assert first <= instant(began + 2)
    assert [row.fire.due_at for row in rows] == [first + timedelta(seconds=n) for n in range(len(rows))]
    assert len(rows) >= RUN_S - 2


def _assert_each_is_accounted_for(fleet: Fleet, rows: list[Row], troubled: set[str]) -> None:
    by_key = {row.fire.key: row for row in rows}
    for row in rows:
        assert row.state == "over" and row.outcome is not None
        launched = len(fleet.witness.starts(key=row.fire.key))
        match row.outcome.kind:
            case "succeeded":
                assert launched == 1
            case "skipped":
                holder = by_key[row.outcome.by]
                assert launched == 0 and (holder.attempts[0].node in troubled or _was_slow(holder))
            case "lost":
                assert launched == 1 and row.attempts[0].node in troubled
            case other:
                raise AssertionError(f"{row.fire.key} ended as {other}")


def _was_slow(row: Row) -> bool:
    """Whether the fire took nearly a second, which happens on a busy machine."""
    assert row.over_at is not None
    return (row.over_at - row.fire.due_at).total_seconds() > NEARLY_A_SECOND_S
