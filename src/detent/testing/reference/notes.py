"""The notes of the in-memory store."""

from __future__ import annotations

from collections.abc import Callable

from detent.clock import instant
from detent.model import Note

FOREVER = float("inf")


class Notes:
    def __init__(self, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._notes: dict[tuple[str, str], tuple[str, float, float]] = {}  # text, written, expires

    def write(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        self._notes.pop((app, name), None)
        if text:
            expires = self._monotonic() + ttl_s if ttl_s else FOREVER
            self._notes[app, name] = text, self._wall(), expires

    def read(self, app: str, name: str) -> str | None:
        text, _, expires = self._notes.get((app, name), ("", 0.0, 0.0))
        return text if expires > self._monotonic() else None

    def apps(self) -> set[str]:
        return {app for app, _ in self._notes}

    def under(self, app: str, prefix: str) -> list[Note]:
        now, monotonic, found = self._wall(), self._monotonic(), []
        for (of, name), (text, written, expires) in self._notes.items():
            if of == app and name.startswith(prefix) and expires > monotonic:
                ends = None if expires == FOREVER else instant(now + expires - monotonic)
                found.append(Note(name, text, instant(written), ends))
        return sorted(found)
