"""Calls in the node's process are guarded before they start, and returned before the warden would kill."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.worker.in_process_scenes import SCENES, stopped_with_work_that_waits

KILLED = {stopped_with_work_that_waits.__name__}


@pytest.mark.parametrize("name", SCENES)
def test_scene(name: str) -> None:
    """Each scene has its own process, because the warden may kill it."""
    program = Path(__file__).with_name("in_process_scenes.py")
    played = subprocess.run([sys.executable, str(program), name], capture_output=True, text=True, timeout=120)
    wanted = -signal.SIGKILL if name in KILLED else 0
    assert played.returncode == wanted, played.stderr
