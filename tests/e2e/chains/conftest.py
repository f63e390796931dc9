"""What tests of chains share: an app on each store, a folder for processes, and the verbs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.app.app_world import World
from tests.app.queue.conftest import shop, store_url, tasks_redis
from tests.cli.cli_world import Detent, in_process

__all__ = ["shop", "store_url", "tasks_redis"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")


@pytest.fixture
def detent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Detent:
    """Runs a verb in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("DETENT_CONFIG", "DETENT_STORE"):
        monkeypatch.delenv(name, raising=False)
    return in_process(capfd)
