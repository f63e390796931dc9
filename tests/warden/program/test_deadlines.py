"""When work has to end, and why: a table.  And what is kept of its output."""

import math
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.warden.program.deadlines import Ending, Seen, Terms, begin, kill_at, next_at
from detent.warden.program.output import SEGMENT_MAX, TAIL_MAX, Output

TERMS = Terms(trusted_by=130.0, term_by=125.0, timeout_by=110.0, kill_after_s=10.0)
TRUST = TERMS._replace(timeout_by=math.inf)


@pytest.mark.parametrize(
    ("terms", "seen", "now", "cause", "kill"),
    [
        (TERMS, Seen(), 109.9, None, None),
        (TERMS, Seen(), 110.0, "timeout", 120.0),
        (TRUST, Seen(), 124.9, None, None),
        (TRUST, Seen(), 125.0, "trust", 130.0),
        (TRUST, Seen(), 140.0, "trust", 130.0),
        (TERMS, Seen(stopped_by=110.0), 100.0, "stop", 110.0),
        (TERMS, Seen(stopped_by=100.0), 100.0, "stop", 100.0),
        (TERMS, Seen(stopped_by=135.0), 125.0, "stop", 130.0),
        (TERMS, Seen(hung_up_at=100.0), 100.0, "trust", 101.0),
        (TERMS, Seen(hung_up_at=129.9), 129.9, "trust", 130.0),
        (TERMS, Seen(main_ended=True), 100.0, "", 110.0),
        (TERMS, Seen(main_ended=True), 128.0, "", 130.0),
        (TERMS, Seen(main_ended=True, hung_up_at=100.0), 100.0, "", 101.0),
    ],
)
def test_work_begins_to_end_for_a_cause_and_is_killed_in_time(
    terms: Terms, seen: Seen, now: float, cause: str | None, kill: float | None
) -> None:
    ending = begin(terms, seen, now)
    assert (ending and ending.cause) == cause
    assert (ending and kill_at(terms, seen, ending)) == kill


def test_an_extension_after_sigterm_leaves_no_more_than_the_time_to_kill() -> None:
    ending = begin(TRUST, Seen(), 125.0)
    assert ending is not None
    assert kill_at(TRUST._replace(trusted_by=1000.0, term_by=990.0), Seen(), ending) == 135.0


@given(
    terms=st.builds(Terms, *[st.floats(0, 100)] * 4),
    seen=st.builds(Seen, st.just(False), *[st.floats(0, 100) | st.just(math.inf)] * 2),
    now=st.floats(0, 100),
)
def test_a_check_at_next_at_is_never_too_late_for_a_deadline(terms: Terms, seen: Seen, now: float) -> None:
    ending = begin(terms, seen, now)
    if ending is None:
        again_at = next_at(terms, seen, None)
        assert again_at > now
        assert begin(terms, seen, again_at) is not None
    else:
        assert next_at(terms, seen, ending) == kill_at(terms, seen, ending) <= terms.trusted_by


def test_the_first_cause_counts() -> None:
    assert begin(TERMS, Seen(main_ended=True, stopped_by=105.0), 120.0) == Ending("", 130.0)


# Output.


@given(sizes=st.lists(st.integers(0, 300_000), max_size=12))
def test_output_keeps_the_end_of_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("output") / "out"
    output, written = Output(str(path)), b""
    output.write(b"")
    for number, size in enumerate(sizes):
        chunk = bytes([number]) * size
        output.write(chunk)
        written += chunk
    output.close()
    rotated = path.with_name("out.1")
    kept = (rotated.read_bytes() if rotated.exists() else b"") + path.read_bytes()
    assert output.tail == written[-TAIL_MAX:]
    assert written.endswith(kept)
    assert min(len(written), SEGMENT_MAX) <= len(kept) <= 2 * SEGMENT_MAX


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path]).returncode
    ):
        pytest.skip("only root can mount a small disk")
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


@pytest.mark.root
def test_on_a_full_disk_the_tail_in_memory_continues(small_disk: Path) -> None:
    output = Output(str(small_disk / "out"))
    output.write(b"a" * 100_000)
    output.write(b"the end")
    output.close()
    assert output.tail == (b"a" * 100_000 + b"the end")[-TAIL_MAX:]
    assert 0 < (small_disk / "out").stat().st_size <= 65_536
