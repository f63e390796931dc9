"""The due fires of one queue and tier, as an ask reads them page by page.

There may be a hundred thousand that cannot run, and an ask must not read them all.  It reads a few pages in
each of three places: from the oldest fire on, from the first that is not left over from an outage, and from
where an earlier ask stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from detent.stores.engine.driver import Due, Place, place_of
from detent.stores.engine.record import Record

PAGES = 3  # in each place


class Stream:
    def __init__(
        self, reads: tuple[Due, int], first_page: Sequence[Record], jumps: Sequence[Place | None]
    ) -> None:
        """`reads`: how to read the next pages, and how many fires the first page could have."""
        self._read, self._most = reads
        self.queue, self.tier = self._read.queue, self._read.tier
        self.buffer: list[Record] = []
        self.is_complete = False  # there is nothing that was not read
        self.head_end: Place | None = None  # how far the oldest fires were read, without a gap
        self._jumps = [place for place in jumps if place]
        self._last: Place | None = None
        self._pages, self._is_head = PAGES - 1, True
        self.extend(first_page)

    @property
    def limits_order(self) -> bool:
        """Whether other streams must not get ahead of it: its next page continues the order."""
        return self._is_head and not self.is_complete and bool(self._pages or self._jumps)

    @property
    def stopped_at(self) -> Place | None:
        return self._last

    def next_read(self) -> Due | None:
        """The read for the next page; None: this ask has read enough."""
        while not self.is_complete:
            if self._pages:
                self._pages, self._most = self._pages - 1, self._read.most
                return self._read._replace(after=self._last)
            if not self._jumps:
                return None
            place = self._jumps.pop(0)
            if self.head_end and place > self.head_end:
                self._last, self._is_head, self._pages = place, False, PAGES
            elif self._is_head:
                self._pages = PAGES  # there is no gap to jump over
        return None

    def extend(self, page: Sequence[Record]) -> None:
        self.buffer += page
        self._last = place_of(page[-1]) if page else self._last
        if self._is_head:
            self.head_end = self._last
        if len(page) < self._most:
            self.is_complete, self._pages = self._is_head, 0

    def take(self, until: Place | None) -> list[Record]:
        """Take the records up to this place, or all of them."""
        taken = [one for one in self.buffer if until is None or place_of(one) <= until]
        self.buffer = [one for one in self.buffer if until is not None and place_of(one) > until]
        return taken
