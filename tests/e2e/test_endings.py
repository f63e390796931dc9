"""Commands that are hard to stop: each is stopped, and its lane is free after its last process ended."""

from pathlib import Path

import pytest
from tests.equipment.fleet import NEVER, Fleet

TIMEOUT_S = 1
KILL_AFTER_S, LATE_S = 2, 600  # LATE_S is longer than a test waits
LINGERS_S = 0.5
OUTPUT = 200 * 10**6
TAIL = 64 * 1024
MEMORY_MAX = 150 * 10**6

DEEDS = {
    "tree": ("execute", "sh", "-c", "sleep 100 & sleep 100"),
    "deaf": ("deaf", "100"),
    "without-pipes": ("without-pipes", "100"),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_timeout_ends_the_whole_tree_before_the_next_fire_starts(either_fleet: Fleet, deed: str) -> None:
    fleet = either_fleet
    policy = {"timeout_seconds": TIMEOUT_S}
    kill_after_s = KILL_AFTER_S if deed == "deaf" else LATE_S
    fleet.write(fleet.job("job", *DEEDS[deed], kill_after_seconds=kill_after_s, policy=policy))
    fleet.start()

    first, second = fleet.witness.wait_start("job"), fleet.witness.wait_start("job", after=1)
    assert second.free
    assert first.alive() == set()
    row = fleet.wait_over(first.key)
    assert row.outcome is not None and row.outcome.kind == "timed-out"
    assert row.attempts[0].took_s >= TIMEOUT_S - 0.05, "the limit counts from before its start"


def test_a_lane_is_free_only_when_the_last_background_process_is_gone(either_fleet: Fleet) -> None:
    fleet = either_fleet
    fleet.write(fleet.job("job", "background", str(LINGERS_S)))
    fleet.start()

    first, second = fleet.witness.wait_start("job"), fleet.witness.wait_start("job", after=1)
    assert second.free
    (end,) = fleet.witness.seen("end", key=first.key)
    assert end.at < second.at
    row = fleet.wait_over(first.key)
    assert row.outcome is not None and row.outcome.kind == "succeeded"
    assert row.attempts[0].took_s >= LINGERS_S


def test_much_output_costs_no_memory_and_its_end_is_kept(fleet: Fleet) -> None:
    program = (
        "import os, sys\n"
        "block = b'x' * 1_000_000\n"
        f"[os.write(1, block) for _ in range({OUTPUT} // len(block))]\n"
        f"sys.stdout.write(''.join(f'{{n:07}}\\n' for n in range({TAIL // 8})))"
    )
    words = ("execute", "python3", "-I", "-S", "-c", program)
    fleet.write(fleet.job("loud", *words, schedule=NEVER))
    node = fleet.start()

    row = fleet.wait_over(fleet.fire("loud"), within_s=60)
    assert row.outcome is not None and row.outcome.kind == "succeeded"
    peaks = [peak_memory(node.pid), peak_memory(node.warden)]
    assert sum(peaks) < MEMORY_MAX, peaks
    expected = "".join(f"{n:07}\n" for n in range(TAIL // 8)).encode()
    assert fleet.row(row.fire.key).attempts[0].tail == expected
    assert fleet.ask("logs", row.fire.key).endswith(expected)


def peak_memory(pid: int) -> int:
    """The most that a process ever had in memory, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
