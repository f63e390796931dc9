"""Runs the commands of a page in a temporary folder and home, on terminals.

- One shell on a terminal runs all commands of a page.  A command that goes on has its own terminal.
- Stand-ins replace what a test must not touch: a copy of Debian's crontab for the system's, a local server
  for the host that takes alerts, and free ports for the app, the Redis and the metrics of the page.
- At the end, every process that was started gets SIGTERM, and is waited for by its id.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.docs.docs_pages import ROOT
from tests.equipment.redis_server import free_port, server_binary

WAIT_MAX_S = 60.0  # for a command, or for its expected output
COLUMNS, ROWS = 140, 60
LOOK_S, LOOK_AGAIN_S = 0.02, 1.0  # between two checks of a terminal; before a command is repeated
HURRY_S = 0.3  # between two signals: the second one makes a node stop at once
MARK = "--said--"
_SAID = re.compile(rf".*\n{MARK}\d+\n.*", re.DOTALL)
CRONTAB, ALERTS, APP = "/etc/crontab", "https://alerts.example.com", "localhost:8000"
REDIS_PORT, METRICS = "7379", "127.0.0.1:9464"
DEBIAN = ROOT / "tests/corpus/crontab/debian-default.system.crontab"


class Terminal:
    """A pseudo terminal that keeps what was written to it."""

    def __init__(self) -> None:
        self._own, self.fd = pty.openpty()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        settings = termios.tcgetattr(self.fd)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(self.fd, termios.TCSANOW, settings)
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        return self._written.decode(errors="replace")

    def clear(self) -> None:
        self._written.clear()

    def close(self) -> None:
        """Close it after its last writer has ended."""
        os.close(self.fd)
        self._reader.join(WAIT_MAX_S)
        os.close(self._own)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the last writer has closed it
            while part := os.read(self._own, 65_536):
                self._written += part


class Reader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self._terminal, self._status = Terminal(), 0
        self._goers: list[tuple[subprocess.Popen[bytes], Terminal]] = []
        self._env = _environment(folder)
        self.folder.mkdir()
        (folder / "crontab").write_text(DEBIAN.read_text())
        self._alerts = ThreadingHTTPServer(("127.0.0.1", 0), _Alerts)
        threading.Thread(target=self._alerts.serve_forever, daemon=True).start()
        self._stand_ins = {
            CRONTAB: f"system:{folder / 'crontab'}",
            ALERTS: f"http://127.0.0.1:{self._alerts.server_port}",
            APP: f"127.0.0.1:{free_port()}",
            REDIS_PORT: str(free_port()),
            METRICS: f"127.0.0.1:{free_port()}",
        }
        self._shell = subprocess.Popen(
            ["bash", "--norc", "-s"],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=self._terminal.fd,
            stderr=self._terminal.fd,
            start_new_session=True,
        )

    def type(self, command: str) -> tuple[str, int]:
        """Run a command in the shell, and return its output and its exit code."""
        assert self._shell.stdin
        self._terminal.clear()
        meant = shlex.quote(self.meant(command))
        line = f"(exit {self._status}); eval {meant} </dev/null; printf '\\n{MARK}%d\\n' $?\n"
        self._shell.stdin.write(line.encode())
        self._shell.stdin.flush()
        until(f"`{command}` is over", lambda: bool(_SAID.fullmatch(self._terminal.text)))
        said, _, status = self._terminal.text.rpartition(f"\n{MARK}")
        self._status = int(status.partition("\n")[0])  # a background process may write after it
        return self.shown(said), self._status

    def file(self, name: str) -> Path:
        """Return the file that a page names."""
        return Path(self.type("pwd")[0].strip(), self.meant(name).removeprefix("system:"))

    def meant(self, text: str) -> str:
        """Replace what the page names by its stand-ins."""
        for theirs, ours in self._stand_ins.items():
            text = text.replace(theirs, ours)
        return text

    def shown(self, text: str) -> str:
        """Replace the stand-ins by what the page names."""
        for theirs, ours in self._stand_ins.items():
            text = text.replace(ours, theirs).replace(ours.removeprefix("system:"), theirs)
        return text

    def start(self, command: str) -> Terminal:
        """Start a command that goes on, in the shell's folder."""
        terminal, folder = Terminal(), self.type("pwd")[0].strip()
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self.meant(command)}"],
            cwd=folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=terminal.fd,
            stderr=terminal.fd,
            start_new_session=True,
        )
        self._goers.append((process, terminal))
        return terminal

    def leave(self) -> None:
        background = [int(pid) for pid in self.type("jobs -p")[0].split()]
        pids = [*background, *(process.pid for process, _ in self._goers if process.poll() is None)]
        for _ in range(2):
            _tell(pids, signal.SIGTERM)
            threading.Event().wait(HURRY_S if pids else 0)
        self.type("wait")
        for process, terminal in self._goers:
            process.wait(WAIT_MAX_S)
            terminal.close()
        assert self._shell.stdin
        self._shell.stdin.close()
        self._shell.wait(WAIT_MAX_S)
        self._terminal.close()
        self._alerts.shutdown()
        self._alerts.server_close()


class _Alerts(BaseHTTPRequestHandler):
    """Accepts every alert."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


def until(what: str, holds: Callable[[], bool], every_s: float = LOOK_S) -> None:
    give_up = time.monotonic() + WAIT_MAX_S
    while not holds():
        assert time.monotonic() < give_up, f"{what}: not within {WAIT_MAX_S:g} s"
        time.sleep(every_s)


def _tell(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _environment(folder: Path) -> dict[str, str]:
    """Return a small environment with a home, and with this detent and this Python first in PATH."""
    home, programs = folder / "home", folder / "bin"
    home.mkdir()
    programs.mkdir()
    for name, words in (("detent", "-m detent "), ("python3", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        program.chmod(0o755)
    (programs / "redis-server").symlink_to(server_binary())
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / ".local/state"),  # root's default is a folder of the machine
        "USER": "reader",
        "TERM": "xterm",
        "NO_COLOR": "1",
        "COLUMNS": str(COLUMNS),
        "LANG": "C.UTF-8",
    }
