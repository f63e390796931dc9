"""What Redis and we say to each other (RESP 2), on a socket that somebody else has connected.

redis-py spends several times as long on a command and its answer.  Where hiredis is installed it reads the
answers; a process that lives for a moment does without, and has no time to load it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from detent.values import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

RECEIVE = 65_536
_TEXT, _NUMBER, _LIST, _WORD, _ERROR = b"$:*+-"


class Refused(Exception):
    """The server answered with an error."""


class Wire:
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._encode: Callable[[Sequence[Any]], bytes] = encoded
        self._buffer, self._at = b"", 0

    def call_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers; where one is an error of the server, that is raised after all were read."""
        self._socket.sendall(b"".join(map(self._encode, commands)))
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


class QuickWire(Wire):
    """The same, written and read by hiredis."""

    def __init__(self, connected: socket.socket, hiredis: Any) -> None:
        super().__init__(connected)
        self._reader = hiredis.Reader(protocolError=ConnectionError, replyError=Refused)
        self._encode = lambda command: hiredis.pack_command(tuple(command))

    def _answer(self) -> Any:
        while (answer := self._reader.gets()) is False:
            self._reader.feed(self._receive())
        return answer


def new_wire(connected: socket.socket) -> Wire:
    """The quickest there is."""
    try:
        import hiredis
    except ImportError:
        return Wire(connected)
    return QuickWire(connected, hiredis)


def encoded(command: Sequence[Any]) -> bytes:
    words = [b"*%d\r\n" % len(command)]
    for word in command:
        text = word if isinstance(word, bytes) else str(word).encode()
        words.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(words)
