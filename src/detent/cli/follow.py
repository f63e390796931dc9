"""Follows one fire: prints its output to stdout, and its attempts and outcome to stderr.

An attempt that has ended has the last part of its output in the store.  A running one has its output in
files on its node's host; whatever could not be read from them in time is printed from the store at the end.
"""

import sys

from detent import clock
from detent.cli.tables import say
from detent.errors import UsageError
from detent.model import Attempt, Outcome, Row
from detent.runners.lifeline import TAIL_MAX
from detent.stores.base import Store, app_of
from detent.text import plural
from detent.views.formatting import duration, printable
from detent.views.job_text import shorten
from detent.views.json_records import attempt_took_s, state_text, took_s
from detent.views.lookup import fetch_fire
from detent.views.nodes import live_nodes
from detent.views.output import SegmentReader, find_output

POLL_S = 0.2
NO_NODE_MAX_S = 10.0  # a node that is restarted is back by then


class Follower:
    """Prints what is new about a fire each time it looks."""

    def __init__(self, store: Store, *, quiet: bool = False) -> None:
        self._store, self._quiet = store, quiet
        self._begun, self._ended = (0, ""), 0
        self._segments: SegmentReader | None = None
        self._printed, self._last = 0, b""  # bytes of the attempt: how many, and the last of them
        self._state_line = ""

    def follow(self, row: Row) -> Row:
        """Look until the fire is over; raises UsageError if no node is alive to run it."""
        app, seen_at = app_of(row.fire.job), clock.monotonic()
        while row.state != "over":
            self.look(row)
            if live_nodes(self._store, app):
                seen_at = clock.monotonic()
            elif clock.monotonic() - seen_at > NO_NODE_MAX_S:
                raise UsageError(f"no node is alive, and {row.fire.key} waits for one: start `detent run`")
            self._store.wait(app, POLL_S)
            row = fetch_fire(self._store, row.fire.key)
        self.look(row)
        return row

    def look(self, row: Row) -> None:
        if self._quiet:
            return
        for attempt in row.attempts:
            if attempt.number > self._ended:
                self._begin(row, attempt.number, attempt.node)
                self._end(row, attempt)
        if row.state == "claimed" and row.attempt > self._ended:
            self._begin(row, row.attempt, row.node)
            self._print_new()
        line = _state_line(row)
        if line and line != self._state_line:
            self._state_line = line
            say(line)

    def _begin(self, row: Row, number: int, node: str) -> None:
        if self._begun == (number, node):
            return
        self._begun, self._printed, self._last = (number, node), 0, b""
        say(f"attempt {number} on {node}")
        if row.state == "claimed" and row.attempt == number:
            self._segments = find_output(self._store, row)
            if self._segments is None:
                say("its output is on another host; it is stored when the attempt ends")

    def _print_new(self) -> None:
        if self._segments is None:
            return
        try:
            for data in self._segments.read():
                self._print(data)
            if self._segments.has_gap:
                self._segments.has_gap = False
                say("the output is faster than this terminal: some of it may be missing here")
        except OSError as error:
            say(f"cannot read the output before the attempt ends: {error.strerror}: {error.filename}")
            self._segments = None

    def _print(self, data: bytes) -> None:
        self._printed += len(data)
        self._last = (self._last + data)[-TAIL_MAX:]
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

    def _end(self, row: Row, attempt: Attempt) -> None:
        self._print_new()
        if self._segments:
            self._segments.close()
            self._segments = None
        self._print_rest(attempt.tail)
        self._ended = attempt.number
        if row.state != "over" or attempt is not row.attempts[-1]:  # the fire's last line covers the last one
            details = ", ".join(filter(None, (_reason(attempt.outcome), duration(attempt_took_s(attempt)))))
            say(f"attempt {attempt.number} {attempt.outcome.kind}{': ' if details else ''}{details}")

    def _print_rest(self, tail: bytes) -> None:
        size = f"{TAIL_MAX // 1024} KiB"
        if len(tail) < TAIL_MAX:  # the store has all of the output
            self._print(tail[self._printed :])
        elif not self._printed:
            say(f"the last {size} of its output:")
            self._print(tail)
        elif self._last != tail:
            say(f"some of its output could not be followed; the last {size}:")
            self._print(tail)


def _state_line(row: Row) -> str:
    """`demo.backup@… succeeded: 1 attempt, 3.0 s`; empty while it runs, as its output is printed."""
    if row.state == "claimed" and not row.stop:
        return ""
    details = ", ".join(filter(None, _details(row)))
    return f"{row.fire.key} {state_text(row)}" + (f": {details}" if details else "")


def _details(row: Row) -> list[str]:
    if row.state == "over" and row.attempts:
        result = row.attempts[-1].result
        returned = f"returned {shorten(printable(result))}" if result else ""
        return [_reason(row.outcome), plural(len(row.attempts), "attempt"), duration(took_s(row)), returned]
    if row.state == "pending" and row.outcome and row.run_at:
        return [f"due again at {row.run_at.astimezone():%H:%M:%S}"]
    return [_reason(row.outcome if row.state == "over" else row.stop)]


def _reason(outcome: Outcome | None) -> str:
    return printable(outcome.reason) if outcome else ""
