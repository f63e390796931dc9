"""A reader at work: a folder, a home, and terminals in which the commands of a page are typed.

- All commands of a page go to one shell, on a terminal, as a reader's would; a command that goes on has a
  terminal of its own.
- Some things of the world are not for tests to touch; others stand for them: a crontab of the system that
  holds what Debian's does, a host that takes alerts, and free ports for an app and a Redis of the page's own.
- At the end everything that was started is told to stop, and is waited for, by its process id.
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

WAIT_MAX_S = 60.0  # for a command, or for what is shown to come
COLUMNS, ROWS = 140, 60
LOOK_S, LOOK_AGAIN_S = 0.02, 0.2  # between two looks at a terminal; before a command is repeated
HURRY_S = 0.3  # between two signals: a second one makes a node hurry
MARK = "--said--"
_SAID = re.compile(rf".*\n{MARK}\d+\n.*", re.DOTALL)
CRONTAB, ALERTS, APP = "/etc/crontab", "https://alerts.example.com", "localhost:8000"
REDIS_PORT = "7379"
DEBIAN = ROOT / "tests/corpus/crontab/debian-default.system.crontab"


class Terminal:
    """What was written to it so far."""

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
        """Once nobody writes to it any more."""
        os.close(self.fd)
        self._reader.join(WAIT_MAX_S)
        os.close(self._own)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the last writer is gone
            while part := os.read(self._own, 65_536):
                self._written += part


class Reader:
    """Somebody who does what a page says."""

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
        """What the command said, and its exit code."""
        assert self._shell.stdin
        self._terminal.clear()
        meant = shlex.quote(self.meant(command))
        line = f"(exit {self._status}); eval {meant} </dev/null; printf '\\n{MARK}%d\\n' $?\n"
        self._shell.stdin.write(line.encode())
        self._shell.stdin.flush()
        until(f"`{command}` is over", lambda: bool(_SAID.fullmatch(self._terminal.text)))
        said, _, status = self._terminal.text.rpartition(f"\n{MARK}")
        self._status = int(status.partition("\n")[0])  # what goes on in the background may write behind it
        return self.shown(said), self._status

    def file(self, name: str) -> Path:
        """The file that a page means."""
        return Path(self.type("pwd")[0].strip(), self.meant(name).removeprefix("system:"))

    def meant(self, text: str) -> str:
        """What a page says, in this world."""
        for theirs, ours in self._stand_ins.items():
            text = text.replace(theirs, ours)
        return text

    def shown(self, text: str) -> str:
        """What was said in this world, as on the page."""
        for theirs, ours in self._stand_ins.items():
            text = text.replace(ours, theirs).replace(ours.removeprefix("system:"), theirs)
        return text

    def start(self, command: str) -> Terminal:
        """The command goes on, in the folder where the shell is."""
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
    """Takes every alert, and says nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Not here."""


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
    """Little of ours; a home, and programs: this detent and this Python before those of the system."""
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
        "XDG_STATE_HOME": str(home / ".local/state"),  # root's would be the machine's
        "USER": "reader",
        "TERM": "xterm",
        "NO_COLOR": "1",
        "COLUMNS": str(COLUMNS),
        "LANG": "C.UTF-8",
    }
