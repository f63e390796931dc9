"""Sets the wall clock of a process; its monotonic clock stays unchanged."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SKEW = Path(__file__).with_name("skew.c")


class WallClock:
    def __init__(self, library: Path, file: Path) -> None:
        self.env = {"LD_PRELOAD": str(library), "SKEW_FILE": str(file)}
        self._file = file
        self.set(0.0)

    def set(self, ahead_s: float) -> None:
        """Set how far it is ahead of the real clock."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("<q", round(ahead_s * 1e9)))
        self.ahead_s = ahead_s


def build_skew(folder: Path) -> Path:
    """The library that such a process preloads."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, for a wall clock that a test can set")
    library = folder / "skew.so"
    built = subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SKEW], capture_output=True)
    if built.returncode:
        pytest.skip(f"the C compiler cannot build a shared library: {built.stderr.decode()[-200:]}")
    return library
