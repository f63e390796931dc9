"""Fixtures of the fleet tests: hosts that share a Redis or a PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.fleets.hosts import STORES, Hosts, hosts_on
from tests.equipment.wall_clock import build_skew


@pytest.fixture(params=STORES)
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosts]:
    with hosts_on(request.param, tmp_path) as hosts:
        yield hosts


@pytest.fixture(scope="session")
def skew_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_skew(tmp_path_factory.mktemp("skew"))
