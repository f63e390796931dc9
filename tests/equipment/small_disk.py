"""A small disk, to fill it up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def mounted(disk: Path, size: str) -> Iterator[Path]:
    """Mount a small disk in that folder, which is created."""
    disk.mkdir(mode=0o700)
    if os.geteuid():
        pytest.skip("needs root, to mount a small disk")
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(disk)]
    mounting = subprocess.run(words, capture_output=True, text=True)
    if mounting.returncode:
        pytest.skip(f"needs to mount a small disk: {mounting.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 512):
            pass
