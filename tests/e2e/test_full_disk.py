"""The disk of the store is full for a while: the node keeps running and loses no outcome."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.equipment.fleet import NEVER, Fleet, wait_for
from tests.equipment.small_disk import fill, mounted

from detent.clock import instant
from detent.model import Outcome

FULL_S = 6.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "state", "4m") as disk:
        yield disk


@pytest.mark.root
def test_a_full_disk_loses_no_outcome(small_disk: Path, fleet: Fleet) -> None:
    fleet.write(fleet.job("tick", "sleep", "0"), fleet.job("long", "sleep", "2", schedule=NEVER))
    node = fleet.start()
    began = time.time()
    key = fleet.fire("long")
    fleet.witness.wait_start("long")
    fleet.witness.wait_start("tick", after=1)

    filler = small_disk / "filler"
    fill(filler)
    node.wait("store-unavailable")
    wait_for(lambda: fleet.witness.seen("end", key=key), what="the end of the work")
    full_until = time.monotonic() + FULL_S
    wait_for(lambda: time.monotonic() > full_until)
    assert node.process.poll() is None

    filler.unlink()
    node.wait("store-back")
    assert fleet.wait_over(key).outcome == Outcome("succeeded")
    launched = len(fleet.witness.starts("tick"))
    fleet.witness.wait_start("tick", after=launched + 1)
    assert node.end() == 0
    assert (len(node.events("store-unavailable")), len(node.events("store-back"))) == (1, 1)
    _assert_all_is_settled(fleet, began)


def _assert_all_is_settled(fleet: Fleet, began: float) -> None:
    fleet.witness.assert_no_overlap()
    fleet.witness.assert_launched_once()
    rows = fleet.due("tick", instant(time.time() - 2))
    first = rows[0].fire.due_at
    assert first <= instant(began + 2)
    assert [row.fire.due_at for row in rows] == [first + timedelta(seconds=n) for n in range(len(rows))]
    for row in rows:
        launched = len(fleet.witness.starts(key=row.fire.key))
        assert row.state == "over" and row.outcome is not None
        assert launched == (row.outcome.kind == "succeeded"), (row.fire.key, row.outcome)
