"""Fixtures of the host verbs: a working directory, and verbs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.cli_world import Detent, in_process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DETENT_SPEC_DIR", str(tmp_path / "specs"))
    for name in ("DETENT_CONFIG", "DETENT_STORE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def detent(folder: Path, capfd: pytest.CaptureFixture[str]) -> Detent:
    """Runs a verb in this process."""
    return in_process(capfd)
