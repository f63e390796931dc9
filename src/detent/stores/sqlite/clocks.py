"""The clocks of a SQLite store."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

READ_WITHIN_S = 0.01  # two readings further apart than this are repeated


def boot_id() -> str:
    """The id of this boot; "" if the system has none, and then a reboot expires no claim."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    import subprocess  # late: not needed on Linux

    with suppress(OSError, subprocess.SubprocessError):
        words = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(words, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return ""


class Clocks(NamedTuple):
    wall: Callable[[], float]
    monotonic: Callable[[], float]
    boot_id: str

    def read(self) -> tuple[float, float]:
        """Both clocks at one moment.  Reads again if the process was suspended between the two readings."""
        for _ in range(8):
            before, wall = self.monotonic(), self.wall()
            if self.monotonic() - before <= READ_WITHIN_S:
                break
        return wall, before
