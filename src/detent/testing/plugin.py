"""Pytest fixtures, available as soon as detent is installed: `detent_clock` and `detent_app`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from detent.app.app import Detent
    from detent.testing import FakeClock


@pytest.fixture
def detent_clock() -> FakeClock:
    """A clock that moves only by calls of its methods."""
    from detent.testing import FakeClock

    return FakeClock()


@pytest.fixture
def detent_app(detent_clock: FakeClock) -> Iterator[Detent]:
    """An app without jobs, in memory, on `detent_clock`."""
    from detent.testing import app_in_memory

    app = app_in_memory(clock=detent_clock)
    yield app
    app.stop()
