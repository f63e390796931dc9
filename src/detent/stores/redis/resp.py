"""A small RESP 2 client for the trigger, because redis-py takes longer to import than a fire takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

RECEIVE = 65_536
_TEXT, _NUMBER, _LIST, _WORD, _ERROR = b"$:*+-"


class Refused(Exception):
    """The server answered with an error."""


class Wire:
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._buffer, self._at = b"", 0

    def call_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The replies.  If one is an error, raises it after all were read."""
        self._socket.sendall(b"".join(map(encoded, commands)))
        answers = [self._answer() for _ in commands]
        for answer in answers:
            if isinstance(answer, Refused):
                raise answer
        return answers

    def _receive(self) -> bytes:
        data = self._socket.recv(RECEIVE)
        if not data:
            raise ConnectionError("it closed the connection")
        return data

    def _answer(self) -> Any:
        line = self._line()
        kind = line[0] if line else 0
        if kind == _TEXT:
            return self._exactly(int(line[1:])) if line != b"$-1" else None
        if kind == _NUMBER:
            return int(line[1:])
        if kind == _LIST:
            return [self._answer() for _ in range(int(line[1:]))] if line != b"*-1" else None
        if kind == _WORD:
            return line[1:]
        if kind == _ERROR:
            return Refused(line[1:].decode("utf-8", "replace"))
        raise ConnectionError("it does not speak RESP")

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n", self._at)) < 0:
            self._more()
        line, self._at = self._buffer[self._at : end], end + 2
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < self._at + size + 2:
            self._more()
        first, last = self._at, self._at + size
        self._at = last + 2
        return self._buffer[first:last]

    def _more(self) -> None:
        self._buffer, self._at = self._buffer[self._at :] + self._receive(), 0


def encoded(command: Sequence[Any]) -> bytes:
    words = [b"*%d\r\n" % len(command)]
    for word in command:
        text = word if isinstance(word, bytes) else str(word).encode()
        words.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(words)
