"""Passes events to functions of the user (`@app.on`), each in a thread of its own.

A function that raises, or is slower than the events, disturbs neither the node nor the other functions.  It
is reported once (`listener-failed`) for each function and each of the two reasons.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from queue import Full, Queue
from typing import Any, NamedTuple, get_args

from detent import clock
from detent.events import EVENTS, Emit
from detent.messages.masking import Mask
from detent.model import Kind
from detent.observe.logs import record_of

WAITING_MAX = 1000  # events that wait for one function
NAMES = tuple(dict.fromkeys((*get_args(Kind), *EVENTS)))  # outcomes and events


class Listener(NamedTuple):
    names: frozenset[str]
    function: Callable[[Mapping[str, Any]], object]

    def hears(self, event: str, fields: Mapping[str, Any]) -> bool:
        """Return whether this is one of its events, or the end of a fire with one of its outcomes."""
        return event in self.names or (event != "hook-failed" and fields.get("outcome") in self.names)


class Listeners:
    def __init__(self, listeners: Iterable[Listener], mask: Callable[[], Mask], emit: Emit) -> None:
        """`emit` gets each event first, and the warnings."""
        self._emit = emit
        self._threads = [_ListenerThread(one, mask, emit) for one in listeners]

    def emit(self, event: str, **fields: Any) -> None:
        self._emit(event, **fields)
        for thread in self._threads:
            thread.offer(event, fields)

    def close(self, seconds: float) -> None:
        """Wait until the functions have handled the waiting events, but at most this time in all."""
        give_up_at = clock.monotonic() + seconds
        for thread in self._threads:
            thread.close()
        for thread in self._threads:
            thread.join(max(0.0, give_up_at - clock.monotonic()))


class _ListenerThread(threading.Thread):
    def __init__(self, listener: Listener, mask: Callable[[], Mask], emit: Emit) -> None:
        name = getattr(listener.function, "__qualname__", repr(listener.function))
        super().__init__(name=f"detent-listener-{name}", daemon=True)
        self._listener, self._mask, self._emit, self._label = listener, mask, emit, name
        self._waiting: Queue[tuple[str, float, dict[str, Any]] | None] = Queue(WAITING_MAX)
        self._is_closing, self._warned = threading.Event(), set[str]()
        self.start()

    def offer(self, event: str, fields: dict[str, Any]) -> None:
        if not self._listener.hears(event, fields):
            return
        try:
            self._waiting.put_nowait((event, clock.wall(), fields))
        except Full:
            self._warn("drops", f"too slow: {WAITING_MAX} events wait for it, and more are dropped")

    def close(self) -> None:
        self._is_closing.set()
        with suppress(Full):  # it then sees `_is_closing` after what waits
            self._waiting.put_nowait(None)

    def run(self) -> None:
        while not (self._is_closing.is_set() and self._waiting.empty()):
            if (waiting := self._waiting.get()) is None:
                return
            event, at, fields = waiting
            try:
                self._listener.function(record_of(event, at, self._mask().fields(fields)))
            except Exception as error:
                self._warn("raises", f"{type(error).__name__}: {error}")

    def _warn(self, what: str, error: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            self._emit("listener-failed", listener=self._label, error=error)
