"""Connections that redis-py made, with TLS and passwords as its URL says, on which we speak ourselves.

A thread that calls has one of its own for that time.  Those that nobody uses are kept by their client, which
is redis-py's; its own pool would take longer to hand one out than the call takes.
"""

from __future__ import annotations

import select
import socket
import threading
from typing import Any

from detent.stores.redis_wire import Refused, new_wire

Client = Any  # redis-py's own types do not say enough


class Lines:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Client, list[Line]] = {}

    def exchange(self, client: Client, *commands: tuple[Any, ...]) -> list[Any]:
        """Send these, and have their answers."""
        line = self._take(client)
        try:
            answers = line.wire.call_all(commands)
        except Refused:
            self._give_back(client, line)
            raise
        except BaseException:
            line.connection.disconnect()  # what comes next on it may be the answer to this
            client.connection_pool.release(line.connection)
            raise
        self._give_back(client, line)
        return answers

    def let_go(self) -> None:
        """Of those that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for client, lines in idle.items():
            for line in lines:
                line.connection.disconnect()
                client.connection_pool.release(line.connection)

    def _take(self, client: Client) -> Line:
        """One that nobody uses, and that the server has not closed."""
        with self._lock:
            idle = self._idle.get(client)
            line = idle.pop() if idle else None
        if line is None:
            return _new_line(client)
        if not line.is_quiet():
            line.connection.disconnect()
            client.connection_pool.release(line.connection)
            return _new_line(client)
        return line

    def _give_back(self, client: Client, line: Line) -> None:
        with self._lock:
            self._idle.setdefault(client, []).append(line)


class Line:
    def __init__(self, connection: Client) -> None:
        self.connection, connected = connection, connection._sock
        self.wire, self._poll = new_wire(connected), None
        if type(connected) is socket.socket:
            self._poll = select.poll()
            self._poll.register(connected, select.POLLIN)

    def is_quiet(self) -> bool:
        """Has the server neither closed it nor said what nobody waits for?"""
        if self._poll is not None:
            return not self._poll.poll(0)
        import redis

        try:  # with TLS there is more to read than answers
            return not self.connection.can_read(0)
        except (redis.exceptions.ConnectionError, OSError):
            return False


def _new_line(client: Client) -> Line:
    connection = client.connection_pool.get_connection()
    try:
        return Line(connection)
    except BaseException:
        client.connection_pool.release(connection)
        raise
