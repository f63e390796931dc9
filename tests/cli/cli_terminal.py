"""Runs a verb on a pseudo terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from pathlib import Path

from tests.cli.cli_world import WAIT_MAX_S, command, environment

from detent import clock


class Terminal:
    """A verb on a terminal of 80 columns and 24 lines."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        env = environment(folder, TERM="xterm")
        for name in ("COLUMNS", "LINES"):
            env.pop(name, None)
        self.process = subprocess.Popen(
            command(*words), cwd=folder, env=env, stdin=inner, stdout=inner, stderr=inner
        )
        os.close(inner)
        self.shown = ""

    def read_until(self, pattern: str) -> str:
        """Return and remove the output up to the end of the first match; fail if there is none."""
        deadline = clock.monotonic() + WAIT_MAX_S
        while not (found := re.search(pattern, self.shown, re.DOTALL)):
            assert clock.monotonic() < deadline and self._read(), self.shown
        shown, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return shown

    def read_all(self) -> str:
        while self._read():
            pass
        self.process.wait(WAIT_MAX_S)
        os.close(self._outer)
        return self.shown

    def _read(self) -> bool:
        if not select.select([self._outer], [], [], WAIT_MAX_S)[0]:
            return False
        try:
            data = os.read(self._outer, 65536)
        except OSError:  # how Linux says that the other side is closed
            return False
        self.shown += data.decode()
        return bool(data)


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
