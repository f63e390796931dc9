"""Waits for wake-ups: by LISTEN on its own connection, and by polling their count.

A pooler accepts LISTEN but may forward no notification.  So the store also counts its wake-ups.  A waiter
polls the count rarely, and often once it has grown without a notification.
"""

from __future__ import annotations

import threading

from detent import clock
from detent.stores.postgres.link import Link, Links

SLICE_S = 0.25  # how often it checks whether `close` was called
LOOK_OFTEN_S = 0.25  # if notifications do not arrive
LOOK_SELDOM_S = 5.0
NOTIFIED_S = 1.0  # a wake-up is counted shortly before its notification arrives


class Listener:
    def __init__(self, links: Links) -> None:
        self._links = links
        self._link: Link | None = None
        self._waiting = threading.Lock()  # one waiting thread at a time
        self._closing = threading.Event()
        self._wakeups: int | None = None  # None: unknown since the last notification, which was not counted
        self._looked_at = 0.0
        self.is_deaf = False  # notifications do not arrive

    def wait(self, app: str, seconds: float) -> bool:
        closing, until = self._closing, clock.monotonic() + seconds
        if not self._waiting.acquire(timeout=seconds):
            return False
        try:
            with self._links.errors():
                link = self._listening()
                while (left := until - clock.monotonic()) > 0 and not closing.is_set():
                    if heard := _heard(link, min(left, SLICE_S)):
                        self.is_deaf, self._wakeups = False, None
                    if app in heard or self._missed_one(link):
                        return True
            return False
        finally:
            self._waiting.release()

    def close(self) -> None:
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        with self._waiting:
            if self._link is not None:
                self._link.close()

    def _listening(self) -> Link:
        if self._link is None or not self._link.is_open:
            link = self._links.open()
            link.value(f'LISTEN "{self._links.schema}"')
            self._wakeups, self._link = self._count(link), link
        return self._link

    def _missed_one(self, link: Link) -> bool:
        """Whether the count has grown without a notification, perhaps for another app."""
        now = clock.monotonic()
        if now < self._looked_at + (LOOK_OFTEN_S if self.is_deaf else LOOK_SELDOM_S):
            return False
        wakeups = self._count(link)
        if self._wakeups is None or wakeups == self._wakeups:
            self._wakeups = wakeups
            return False
        if not self.is_deaf and _heard(link, NOTIFIED_S):
            self._wakeups = wakeups
            return True
        self.is_deaf, self._wakeups = True, wakeups
        return True

    def _count(self, link: Link) -> int:
        self._looked_at = clock.monotonic()
        wakeups = f'SELECT last_value + is_called::integer FROM "{self._links.schema}".wakeups'
        return int(link.value(wakeups))


def _heard(link: Link, within_s: float) -> list[str]:
    """Wait for notifications; returns their payloads, empty after `within_s`."""
    return [one.payload for one in link.db.notifies(timeout=within_s, stop_after=1)]
