"""What a server answers, read as HTTP/1.1: the status, the headers, the body piece by piece.

The standard library's reader brings TLS and mail along, which takes longer to load than a fire takes.  This
one knows what one answer on a connection of its own needs: a length, chunks, or the end of the connection.
Everything has a limit; what keeps to none of it is not HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import io

LINE_MAX = 65_536  # bytes
HEADERS_MAX = 200
INTERIM_MAX = 10  # answers 100 to 199 that may come before the real one
READ_MAX = 65_536  # bytes of a body at a time
BODILESS = (204, 304)

_STATUS = re.compile(rb"HTTP/1\.[0-9] +([1-9][0-9]{2})(?: .*)?")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")


class NotHttp(Exception):
    """The other side speaks something else."""


class Silent(Exception):
    """It closed the connection without a word."""


class BrokenOff(Exception):
    """It closed the connection before all was said."""


class Answer:
    """One answer; its body is read by `read`."""

    def __init__(self, reader: io.BufferedReader[Any], status: int, headers: Mapping[str, str]) -> None:
        self._reader, self.status, self._headers = reader, status, headers
        self._is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._left = _length(status, headers)  # of the body, or of the chunk; None: until it closes
        if self._is_chunked:
            self._left = 0
        self._is_over = self._left == 0 and not self._is_chunked

    def header(self, name: str) -> str:
        """By its name in lower case; the first of them."""
        return self._headers.get(name, "")

    def read(self) -> bytes:
        """What is there of the body already, or comes next; nothing: that was all."""
        if not self._is_over and self._is_chunked and self._left == 0:
            self._begin_chunk()
        if self._is_over:
            return b""
        content = self._reader.read1(READ_MAX if self._left is None else min(self._left, READ_MAX))
        if self._left is None:
            self._is_over = not content
            return content
        if not content:
            raise BrokenOff
        self._left -= len(content)
        if self._left == 0:
            self._end_piece()
        return content

    def _begin_chunk(self) -> None:
        size = _line(self._reader).partition(b";")[0].strip()
        if not _SIZE.fullmatch(size):
            raise NotHttp(f"a chunk of the size {size[:20]!r}")
        self._left = int(size, 16)
        if self._left == 0:
            _headers(self._reader)  # what follows the last chunk
            self._is_over = True

    def _end_piece(self) -> None:
        if not self._is_chunked:
            self._is_over = True
        elif _line(self._reader):
            raise NotHttp("a chunk longer than its size")


def read_answer(reader: io.BufferedReader[Any]) -> Answer:
    """The first answer that is not an interim one, up to its body."""
    for _ in range(INTERIM_MAX):
        status = _status(reader)
        headers = _headers(reader)
        if status >= 200:
            return Answer(reader, status, headers)
    raise NotHttp("interim answers without end")


def _status(reader: io.BufferedReader[Any]) -> int:
    begins = reader.peek(1)[:5]
    if not begins:
        raise Silent
    if not b"HTTP/".startswith(begins):
        raise NotHttp("no status line")
    found = _STATUS.fullmatch(_line(reader))
    if found is None:
        raise NotHttp("no status line")
    return int(found[1])


def _headers(reader: io.BufferedReader[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(HEADERS_MAX):
        line = _line(reader)
        if not line:
            return found
        name, _, value = line.decode("latin-1").partition(":")
        found.setdefault(name.strip().lower(), value.strip())
    raise NotHttp("too many headers")


def _line(reader: io.BufferedReader[Any]) -> bytes:
    line = reader.readline(LINE_MAX + 1)
    if len(line) > LINE_MAX:
        raise NotHttp("a line that is too long")
    if not line.endswith(b"\n"):
        raise BrokenOff
    return line.rstrip(b"\r\n")


def _length(status: int, headers: Mapping[str, str]) -> int | None:
    if status in BODILESS:
        return 0
    said = headers.get("content-length", "")
    if not said:
        return None
    if not (said.isascii() and said.isdecimal() and len(said) < 19):
        raise NotHttp("a length that is no number")
    return int(said)
