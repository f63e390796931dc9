"""Orders that the warden has received and not yet carried out.

A line is an order as a JSON object.  A line that begins with `REQUEST` belongs to the order that follows: the
warden passes it on to a child without reading it.
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
        """Whether an order has arrived completely."""
        return len(self._lines) > (1 if self._lines and self._lines[0].startswith(REQUEST) else 0)

    def next_order(self) -> dict[str, Any]:
        """Return the oldest order, with its request if it has one."""
        line, request = self._lines.popleft(), {}
        if line.startswith(REQUEST):
            line, request = self._lines.popleft(), {"request": line[len(REQUEST) :]}
        return {**loads(line), **request}
