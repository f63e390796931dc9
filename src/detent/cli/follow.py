"""Watches one fire: shows its output on stdout, and says on stderr what becomes of it.

An attempt that is over has the last of its output in the store; one that runs has it in a file on its
node's host.  What the file did not show in time is made up from the store.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from detent import clock
from detent.cli.formatting import duration
from detent.cli.job_text import shorten
from detent.cli.json_records import attempt_took_s, state_text, took_s
from detent.cli.look.heartbeats import live_nodes
from detent.cli.look.why_segments import SegmentReader
from detent.cli.lookup import fetch_fire
from detent.cli.tables import printable, say
from detent.errors import UsageError
from detent.model import Attempt, Outcome, Row
from detent.runners.lifeline import TAIL_MAX
from detent.stores.base import Store, app_of
from detent.text import plural
from detent.warden.instances import output_path

POLL_S = 0.2
ALONE_MAX_S = 10.0  # without any node: one that is being restarted is back by then


def find_output(store: Store, row: Row) -> SegmentReader | None:
    """The output of a running attempt, where it can be read from here."""

    for node in live_nodes(store, app_of(row.fire.job)):
        if node.instance == row.node and node.host == socket.gethostname():
            return SegmentReader(Path(output_path(str(node.outputs), row.fire.run_id, row.attempt)))
    return None


class Follower:
    """What was told of a fire so far."""

    def __init__(self, store: Store, *, quiet: bool = False) -> None:
        self._store, self._quiet = store, quiet
        self._begun, self._ended = (0, ""), 0
        self._segments: SegmentReader | None = None
        self._shown, self._last = 0, b""
        self._said = ""

    def follow(self, row: Row) -> Row:
        """Until it is over, or nobody is there to run it."""
        app, seen_at = app_of(row.fire.job), clock.monotonic()
        while row.state != "over":
            self.look(row)
            if live_nodes(self._store, app):
                seen_at = clock.monotonic()
            elif clock.monotonic() - seen_at > ALONE_MAX_S:
                raise UsageError(
                    f"no node is alive any more; {row.fire.key} waits for one: start `detent run`"
                )
            self._store.wait(app, POLL_S)
            row = fetch_fire(self._store, row.fire.key)
        self.look(row)
        return row

    def look(self, row: Row) -> None:
        """Tell what is new."""
        if self._quiet:
            return
        for attempt in row.attempts:
            if attempt.number > self._ended:
                self._begin(row, attempt.number, attempt.node)
                self._end(row, attempt)
        if row.state == "claimed" and row.attempt > self._ended:
            self._begin(row, row.attempt, row.node)
            self._show_new()
        line = _standing_line(row)
        if line and line != self._said:
            self._said = line
            say(line)

    # One attempt.

    def _begin(self, row: Row, number: int, node: str) -> None:
        if self._begun == (number, node):
            return
        self._begun, self._shown, self._last = (number, node), 0, b""
        say(f"attempt {number} on {node}")
        if row.state == "claimed" and row.attempt == number:
            self._segments = find_output(self._store, row)
            if self._segments is None:
                say("its output is on its node's host; it comes into the store when the attempt ends")

    def _show_new(self) -> None:
        if self._segments is None:
            return
        try:
            for data in self._segments.read():
                self._show(data)
            if self._segments.has_gap:
                self._segments.has_gap = False
                say("its output comes faster than it can be followed: some of it may be missing here")
        except OSError as error:
            say(f"its output cannot be read before the attempt ends: {error.strerror}: {error.filename}")
            self._segments = None

    def _show(self, data: bytes) -> None:
        self._shown += len(data)
        self._last = (self._last + data)[-TAIL_MAX:]
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

    def _end(self, row: Row, attempt: Attempt) -> None:
        self._show_new()
        if self._segments:
            self._segments.close()
            self._segments = None
        self._show_rest(attempt.tail)
        self._ended = attempt.number
        if row.state != "over" or attempt is not row.attempts[-1]:  # the fire's end tells the last one's
            told = [_why(attempt.outcome), duration(attempt_took_s(attempt))]
            rest = ", ".join(word for word in told if word)
            say(f"attempt {attempt.number} {attempt.outcome.kind}{': ' if rest else ''}{rest}")

    def _show_rest(self, tail: bytes) -> None:
        size = f"{TAIL_MAX // 1024} KiB"
        if len(tail) < TAIL_MAX:  # then it is all that was written
            self._show(tail[self._shown :])
        elif not self._shown:
            say(f"the last {size} of its output:")
            self._show(tail)
        elif self._last != tail:
            say(f"some of its output could not be followed; the last {size}:")
            self._show(tail)


# What is said of the fire as a whole.


def _standing_line(row: Row) -> str:
    """Nothing where its output speaks for itself."""
    if row.state == "claimed" and not row.stop:
        return ""
    details = [detail for detail in _details(row) if detail]
    return f"{row.fire.key} {state_text(row)}" + (f": {', '.join(details)}" if details else "")


def _details(row: Row) -> list[str]:
    if row.state == "over":
        if not row.attempts:
            return [_why(row.outcome)]
        took = [plural(len(row.attempts), "attempt"), duration(took_s(row))]
        return [_why(row.outcome), *took, _returned(row.attempts[-1])]
    if row.state == "pending" and row.outcome and row.run_at:
        return [f"due again at {row.run_at.astimezone():%H:%M:%S}"]
    return [_why(row.stop)]


def _returned(attempt: Attempt) -> str:
    return f"returned {shorten(printable(attempt.result))}" if attempt.result else ""


def _why(outcome: Outcome | None) -> str:
    return printable(outcome.reason) if outcome else ""
