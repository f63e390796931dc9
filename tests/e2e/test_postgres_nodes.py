"""Two nodes share a PostgreSQL database: each instant is launched once, by one of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.equipment.fleet import Fleet, wait_for
from tests.equipment.postgres_server import shared_server

from detent.clock import instant

SECONDS = 8


class PostgresFleet(Fleet):
    @property
    def url(self) -> str:
        return shared_server().url.replace("/postgres?", f"/{self.directory.name.replace('-', '_')}?")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    one = PostgresFleet(tmp_path)
    shared_server().sql(f"CREATE DATABASE {tmp_path.name.replace('-', '_')}")
    try:
        yield one
    finally:
        one.clear_up()
    one.assert_quiet()


def test_each_instant_is_launched_once_and_a_manual_fire_at_once(fleet: Fleet) -> None:
    hand = {"schedule": "0 0 1 1 *", "policy": {"concurrency": "Allow"}}
    fleet.write(fleet.job("tick", "sleep", "0"), fleet.job("hand", "sleep", "0") | hand)
    nodes = [fleet.start(), fleet.start()]
    began = time.time()
    wait_for(lambda: time.time() > began + SECONDS / 2, SECONDS)
    key = fleet.fire("hand")
    fleet.wait_over(key, within_s=2.0)
    wait_for(lambda: time.time() > began + SECONDS, SECONDS)
    assert [node.end() for node in nodes] == [0, 0]

    rows = fleet.due("tick", instant(began + SECONDS))
    first = rows[0].fire.due_at
    assert [row.fire.due_at for row in rows] == [first + timedelta(seconds=n) for n in range(len(rows))]
    assert len(rows) >= SECONDS - 1
    assert {(row.state, row.outcome and row.outcome.kind) for row in rows} == {("over", "succeeded")}
    assert len(fleet.witness.starts("tick")) >= len(rows)
    fleet.witness.assert_launched_once()
    fleet.witness.assert_no_overlap()
