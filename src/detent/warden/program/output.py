"""What a command writes: the last of it in memory, some more in a bounded file.

The file has two segments: at the limit, PATH becomes PATH.1 and a new one is begun.  It is readable
by its owner only, and neither an older file nor a link of that name is ever written to.  Where it
cannot be written (a full disk), the tail in memory goes on.
"""

import base64
import contextlib
import os

CHUNK = 64 * 1024  # read at once, so that one talkative command does not starve the others
PIPE_MAX = 1024 * 1024  # what a pipe may hold at the most
SEGMENT_MAX = 512 * 1024  # of each of the two segments, so that no command fills a disk
TAIL_MAX = 64 * 1024  # what travels into the store
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Pipe:
    """Our end of what processes write to; it does not block."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @property
    def is_open(self) -> bool:
        return self.fd >= 0

    def read(self, output: "Output | None") -> bool:
        """Take a chunk, if there is one.  False: there will be no more."""
        data = self._take()
        if data and output:
            output.write(data)
        return data != b""

    def drain(self, output: "Output | None") -> None:
        """Take what is in it, as far as those who wrote it are gone, or have said that it is all."""
        for _ in range(PIPE_MAX // CHUNK + 1):
            data = self._take()
            if not data:
                return
            if output:
                output.write(data)

    def close(self) -> None:
        os.close(self.fd)
        self.fd = -1

    def _take(self) -> bytes | None:
        """None: nothing just now; nothing at all: it is at its end."""
        try:
            return os.read(self.fd, CHUNK)
        except BlockingIOError:
            return None


class Output:
    """What one fire's work wrote, as far as it is kept.  The file is there when it is begun or written to."""

    def __init__(self, path: str) -> None:
        self.tail = b""
        self._path = path
        self._fd, self._size = -1, 0
        self._is_begun = False

    def begin(self) -> None:
        """Open the file, if that is not done yet."""
        if not self._is_begun:
            self._fd, self._is_begun = self._open(), True

    def write(self, data: bytes) -> None:
        self.begin()
        self.tail = (self.tail + data)[-TAIL_MAX:]
        while data and self._fd >= 0:
            written = self._write(data[: SEGMENT_MAX - self._size])
            data = data[written:]
            if self._size >= SEGMENT_MAX:
                self._turn()

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

    def _turn(self) -> None:
        """Keep the full segment as PATH.1, and begin another."""
        self.close()
        try:
            os.replace(self._path, f"{self._path}.1")
        except OSError:
            return
        self._fd, self._size = self._open(), 0


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()
