"""Runs Debian's cron for a test, with its own crontabs and clock."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.hosts.hosts_world import SPOOL, lacks_crontab_program

DAEMON = "/usr/sbin/cron"
WAIT_MAX_S = 90.0
# Mounts in a namespace of its own: the spool and cron.d are the test's, and what a trigger writes as root
# goes away with the namespace.
INSIDE = f"""
set -e
mount --bind "$1" {SPOOL}
mount --bind "$2" /etc/cron.d
mount --bind /dev/null /etc/crontab
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
exec {DAEMON} -f -L 15
"""


def lacks_cron() -> str:
    """Return why cron cannot be started here, or ""."""
    return lacks_crontab_program() or (
        "" if shutil.which(DAEMON) else "the cron daemon is not installed here"
    )


@contextmanager
def cron_daemon(spool: Path, cron_d: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    words = ["unshare", "-m", "--propagation", "private", "sh", "-c", INSIDE, "sh", str(spool), str(cron_d)]
    process = subprocess.Popen(words, env={**os.environ, **env}, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def until(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_MAX_S
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)
