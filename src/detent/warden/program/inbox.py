"""What the node has told the warden and is not yet obeyed.

A line is a JSON object or, if it begins with `REQUEST`, what a child is to be given with the order that comes
next: the warden passes it on as it is.
"""

from __future__ import annotations

from collections import deque
from json import loads
from typing import Any

REQUEST = b"="


class Inbox:
    def __init__(self) -> None:
        self._rest, self._lines = b"", deque[bytes]()

    def take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(lines)

    @property
    def is_order_next(self) -> bool:
        """Is there one, whole?"""
        return len(self._lines) > (1 if self._lines and self._lines[0].startswith(REQUEST) else 0)

    def next_order(self) -> dict[str, Any]:
        """The oldest, with its request if it has one."""
        line, request = self._lines.popleft(), {}
        if line.startswith(REQUEST):
            line, request = self._lines.popleft(), {"request": line[len(REQUEST) :]}
        return {**loads(line), **request}
