"""The work of every no-op task, in every program: append the time of its call to the benchmark's file.

One write of eight bytes, the same for all; the benchmark counts them.  The first call in a process also
leaves a file with its name, so that the bench knows who is warm.
"""

import os
from pathlib import Path

from noted import VARIABLE, note

URL, VARIANT = "BENCH_URL", "BENCH_VARIANT"
is_known = False


def tally(who: int) -> None:
    global is_known
    if not is_known:
        Path(f"{os.environ[VARIABLE]}.{who}").touch()
        is_known = True
    note()


def url() -> str:
    return os.environ[URL]


def variant() -> str:
    """Return the variant of the program to measure."""
    return os.environ[VARIANT]
