"""A disk whose power can be cut: writes that were not flushed are lost.

It is an ext4 file system in a file.  The kernel can stop it without another write, as when the
machine loses its power; mounted again, it has what its journal says.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SHUT_DOWN, WITHOUT_A_FLUSH = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN
SIZE = 256 * 1024 * 1024


class PowerDisk:
    def __init__(self, image: Path, folder: Path) -> None:
        self._image, self.folder = image, folder

    def write_through(self) -> None:
        """Flush all writes so far to the disk."""
        done = _run("sync", "--file-system", str(self.folder))
        assert done.returncode == 0, done.stderr

    def cut_power(self) -> None:
        at = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(at, SHUT_DOWN, struct.pack("I", WITHOUT_A_FLUSH))
        finally:
            os.close(at)

    def restore_power(self) -> None:
        """Mount a copy of the disk.  The old one stays dead: another mount namespace may still hold it."""
        copy = self._image.with_suffix(".restored")
        for words in (
            ("umount", "--lazy", str(self.folder)),
            ("cp", "--sparse=always", str(self._image), str(copy)),
            ("mount", "-o", "loop", str(copy), str(self.folder)),
        ):
            done = _run(*words)
            assert done.returncode == 0, done.stderr


@contextmanager
def power_disk() -> Iterator[PowerDisk]:
    """Mount such a disk in a folder that every user can reach."""
    if os.geteuid():
        pytest.skip("needs root, to mount a disk whose power can be cut")
    with tempfile.TemporaryDirectory(prefix="detent-power-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with _mounted(folder / "image", folder / "disk") as disk:
            yield disk


@contextmanager
def _mounted(image: Path, disk: Path) -> Iterator[PowerDisk]:
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(SIZE)
    try:
        made = _run("mkfs.ext4", "-q", "-F", str(image))
    except FileNotFoundError:
        pytest.skip("needs mkfs.ext4: apt install e2fsprogs")
    assert made.returncode == 0, made.stderr
    found = PowerDisk(image, disk)
    mounted = _run("mount", "-o", "loop", str(image), str(disk))
    if mounted.returncode:
        pytest.skip(f"needs to mount a file as a disk: {mounted.stderr.strip()}")
    try:
        yield found
    finally:
        _run("umount", "--lazy", str(disk))


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True)
