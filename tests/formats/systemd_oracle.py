"""What systemd itself says about calendar events: `systemd-analyze calendar`."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime

import pytest

needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed here"
)


def elapses(events: list[str], since: datetime, count: int) -> list[datetime]:
    """The elapses of a timer with these events after an instant: as many as all of them are known for."""
    base = f"--base-time={since:%Y-%m-%d %H:%M:%S} UTC"
    words = ["systemd-analyze", "calendar", base, f"--iterations={count}"]
    env = {"TZ": "UTC", "LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([*words, *events], capture_output=True, text=True, env=env)
    assert done.returncode == 0, (events, done.stderr)
    found: set[datetime] = set()
    horizon: list[datetime] = []  # until when the elapses of each event are complete
    last: datetime | None = None
    listed = 0
    for line in [*done.stdout.splitlines(), "Normalized form:"]:
        label, _, value = line.strip().partition(": ")
        if label.startswith(("Original form", "Normalized form")):
            if listed >= count and last:
                horizon.append(last)
            listed, last = 0, None
        elif label.startswith(("Next elapse", "Iteration", "Iter.")) and value.strip() != "never":
            last = datetime.strptime(value.strip(), "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
            found.add(last)
            listed += 1
    until = min(horizon) if horizon else datetime.max.replace(tzinfo=UTC)
    return sorted(at for at in found if at <= until)
