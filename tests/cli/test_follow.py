"""Following the output of a command, which the warden writes into two segments."""

from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.views.output import SegmentReader
from detent.warden.program.output import SEGMENT_MAX, Output

PIECE = SEGMENT_MAX // 3 + 1


def written(number: int, size: int) -> bytes:
    return (b"%d " % number * size)[:size]


@settings(max_examples=10, deadline=None)
@given(sizes=st.lists(st.integers(0, PIECE), max_size=12), looks=st.lists(st.booleans(), max_size=12))
def test_a_frequent_reader_sees_every_byte_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], looks: list[bool]
) -> None:
    path = tmp_path_factory.mktemp("output") / "run.1.log"
    output, segments, seen, all_of_it = Output(str(path)), SegmentReader(path), b"", b""
    for number, size in enumerate(sizes):
        data = written(number, size)
        output.write(data)
        all_of_it += data
        if number % 2 or (looks[number] if number < len(looks) else True):  # at most two pieces unseen
            seen += b"".join(segments.read())
    seen += b"".join(segments.read())
    assert seen == all_of_it
    assert not segments.has_gap


def test_the_end_can_be_read_when_the_file_was_removed(tmp_path: Path) -> None:
    output, segments = Output(str(tmp_path / "a")), SegmentReader(tmp_path / "a")
    output.write(b"one ")
    assert b"".join(segments.read()) == b"one "
    output.write(b"two")
    (tmp_path / "a").unlink()
    assert b"".join(segments.read()) == b"two"


def test_output_written_just_before_a_rename_is_not_missed(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "a"))

    class Unlucky(SegmentReader):
        """The segment is full and renamed after it was read, before it is looked at again."""

        def _is_renamed(self, known: BinaryIO) -> bool:
            output.write(b"x" * (SEGMENT_MAX - len(b"one ")) + b"two")
            return super()._is_renamed(known)

    output.write(b"one ")
    segments = Unlucky(tmp_path / "a")
    assert b"".join(segments.read()) == b"one " + b"x" * (SEGMENT_MAX - len(b"one ")) + b"two"
    assert not segments.has_gap


def test_a_late_reader_gets_both_segments(tmp_path: Path) -> None:
    output = Output(str(tmp_path / "a"))
    output.write(written(1, SEGMENT_MAX) + b"rest")
    assert b"".join(SegmentReader(tmp_path / "a").read()) == written(1, SEGMENT_MAX) + b"rest"


def test_output_that_was_too_fast_leaves_a_known_gap(tmp_path: Path) -> None:
    output, segments = Output(str(tmp_path / "a")), SegmentReader(tmp_path / "a")
    output.write(b"x")
    list(segments.read())
    for number in range(4):
        output.write(written(number, SEGMENT_MAX))
    output.write(b"end")
    assert b"".join(segments.read()).endswith(b"end")
    assert segments.has_gap


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    segments = SegmentReader(tmp_path / "a")
    assert list(segments.read()) == []
    Output(str(tmp_path / "a")).write(b"now")
    assert b"".join(segments.read()) == b"now"
