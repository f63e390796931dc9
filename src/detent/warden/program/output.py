"""The output of a task: the tail of it in memory, and more of it in a file of bounded size.

The file has two segments: when PATH is full it becomes PATH.1, and a new one begins.  Only its owner can read
it.  It replaces an older file or link of that name.  If it cannot be written, as the disk is full, the tail
in memory continues.
"""

import base64
import contextlib
import os

CHUNK = 64 * 1024  # bytes of one read, so that one command with much output does not delay the others
PIPE_MAX = 1024 * 1024  # bytes that a pipe can hold
SEGMENT_MAX = 512 * 1024  # bytes of each of the two segments, so that no command fills a disk
TAIL_MAX = 64 * 1024  # bytes that the store gets
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Output:
    """The file is created by the first `write`."""

    def __init__(self, path: str) -> None:
        self.tail = b""
        self._path = path
        self._fd, self._size = -1, 0
        self._is_begun = False

    def write(self, data: bytes) -> None:
        if not self._is_begun:
            self._fd, self._is_begun = self._open(), True
        self.tail = (self.tail + data)[-TAIL_MAX:]
        while data and self._fd >= 0:
            written = self._write(data[: SEGMENT_MAX - self._size])
            data = data[written:]
            if self._size >= SEGMENT_MAX:
                self._rotate()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        if not self._path:
            return -1
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            return os.open(self._path, _FLAGS, 0o600)
        except OSError:
            return -1

    def _write(self, data: bytes) -> int:
        try:
            written = os.write(self._fd, data)
        except OSError:
            self.close()
            return len(data)
        self._size += written
        return written

    def _rotate(self) -> None:
        self.close()
        try:
            os.replace(self._path, f"{self._path}.1")
        except OSError:
            return
        self._fd, self._size = self._open(), 0


class Pipe:
    """The reading end of a pipe; it does not block."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @property
    def is_open(self) -> bool:
        return self.fd >= 0

    def read(self, output: Output | None) -> bool:
        """Copy a chunk to the output, if there is one.  False: the writers have closed the pipe."""
        data = self._read()
        if data and output:
            output.write(data)
        return data != b""

    def drain(self, output: Output | None) -> None:
        """Copy everything that is in the pipe now."""
        for _ in range(PIPE_MAX // CHUNK + 1):
            data = self._read()
            if not data:
                return
            if output:
                output.write(data)

    def close(self) -> None:
        os.close(self.fd)
        self.fd = -1

    def _read(self) -> bytes | None:
        """None: nothing at the moment.  b"": the end."""
        try:
            return os.read(self.fd, CHUNK)
        except BlockingIOError:
            return None


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()
