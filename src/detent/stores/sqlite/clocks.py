"""What a SQLite store knows of the world around it, and the clocks that it lives by."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

READ_WITHIN_S = 0.01  # two clocks that were read further apart than this were not read together


def boot_id() -> str:
    """What names this boot of the machine; "" where nothing does, and then no boot ends a claim."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    import subprocess  # late: Linux does without

    with suppress(OSError, subprocess.SubprocessError):
        words = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(words, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return ""


class Clocks(NamedTuple):
    wall: Callable[[], float]
    monotonic: Callable[[], float]
    boot_id: str

    def read(self) -> tuple[float, float]:
        """Both clocks at one moment.  A process may be stopped between two readings."""
        for _ in range(8):
            before, wall = self.monotonic(), self.wall()
            if self.monotonic() - before <= READ_WITHIN_S:
                break
        return wall, before


class Header(NamedTuple):
    """What the store knows of the world around it."""

    epoch: str
    file: str
    device: str
    boot: str
    clock: float
    quarantined_until: float = 0.0
    longest_ttl_s: float = 0.0
    wakeups: int = 0
