"""A log whose reader is stalled: a real pipe that is not read."""

import os
import threading
from functools import partial
from itertools import takewhile

from detent import clock
from detent.observe.background_writer import BURST, GATHER_S, LINES_MAX, BackgroundWriter


def test_a_stalled_reader_blocks_no_writer_and_gets_a_count_of_missed_lines() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as lines:
        log = BackgroundWriter(writer, lambda count: f"dropped {count}\n")
        for number in range(2 * LINES_MAX):
            log.write(f"line {number} {'x' * 80}\n")  # more than the pipe and the queue can hold
        seen = list(takewhile(lambda line: not line.startswith("dropped "), lines))
        log.write("end\n")
        rest = list(takewhile(lambda line: line != "end\n", lines))
        log.close(10)
    os.close(writer)
    assert seen[0].startswith("line 0 ")
    assert LINES_MAX <= len(seen) + len(rest) < 2 * LINES_MAX


def test_every_written_line_arrives() -> None:
    reader, writer = os.pipe()
    log = BackgroundWriter(writer, str)
    log.write("one\n")
    log.write("two\n")
    log.close(10)
    os.close(writer)
    with os.fdopen(reader) as lines:
        assert lines.read() == "one\ntwo\n"


def test_a_reader_that_never_reads_does_not_keep_us_from_ending() -> None:
    reader, writer = os.pipe()
    log = BackgroundWriter(writer, str)
    for _ in range(1000):
        log.write("x" * 200 + "\n")
    log.close(0.05)
    os.close(reader)  # which lets its thread go
    log._thread.join(10)
    assert not log._thread.is_alive()
    os.close(writer)


def test_lines_of_a_burst_are_formatted_after_it() -> None:
    """Formatting would take the interpreter from the thread that emits the events."""
    reader, writer = os.pipe()
    log, worded = BackgroundWriter(writer, str), []

    def word(number: int) -> str:
        worded.append(number)
        return str(number)

    began = before = clock.monotonic()
    longest_s = 0.0  # that this thread itself was kept waiting
    while before < began + 3 * GATHER_S:
        for number in range(BURST):
            log.write(partial(word, number))
        threading.Event().wait(0.001)
        longest_s, before = max(longest_s, clock.monotonic() - before), clock.monotonic()
    assert not worded or longest_s > GATHER_S / 2
    log.close(10)
    os.close(writer)
    os.close(reader)
    assert worded
