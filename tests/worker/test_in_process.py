"""Calls in the node itself: guarded before they begin, and given back before anybody is killed for them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.worker.in_process_scenes import SCENES, stopped_with_work_that_waits

KILLED = {stopped_with_work_that_waits.__name__}


@pytest.mark.parametrize("name", SCENES)
def test_scene(name: str) -> None:
    """In a process of its own, which the warden may kill."""
    program = Path(__file__).with_name("in_process_scenes.py")
    played = subprocess.run([sys.executable, str(program), name], capture_output=True, text=True, timeout=120)
    wanted = -signal.SIGKILL if name in KILLED else 0
    assert played.returncode == wanted, played.stderr
