"""Runs `systemctl` if systemd is running, or says what to do by hand."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from detent.errors import HostError

RUNNING = Path("/run/systemd/system")  # exists if and only if systemd is the init system
CALL_S = 60.0


class Systemctl:
    def __init__(self, is_user: bool, is_read: bool) -> None:
        self._words = ["systemctl", "--user"] if is_user else ["systemctl"]
        self._is_user = is_user
        self.is_live = is_read and self._is_running()

    def _is_running(self) -> bool:
        if shutil.which("systemctl") is None or not RUNNING.is_dir():
            return False
        return not self._is_user or self._run("show-environment").returncode == 0

    def is_active(self, timers: Sequence[str]) -> dict[str, bool]:
        """Return which timers are active; empty if systemd does not run."""
        if not self.is_live or not timers:
            return {}
        states = self._run("is-active", *timers).stdout.decode().split("\n")
        return {timer: state == "active" for timer, state in zip(timers, states, strict=False)}

    def reload(self) -> None:
        if self.is_live:
            self._call("daemon-reload")

    def start(self, timers: Sequence[str]) -> None:
        if self.is_live and timers:
            self._call("restart", *timers)

    def stop(self, timers: Sequence[str]) -> None:
        if self.is_live and timers:
            self._call("stop", *timers)

    def advice(self) -> str:
        if self.is_live:
            return ""
        command = " ".join(self._words)
        return (
            "systemd does not run or read these units here: they are enabled, and fire from the next boot on,"
            f" or after `{command} daemon-reload` and `{command} start 'detent-*.timer'`"
        )

    def _call(self, *words: str) -> None:
        done = self._run(*words)
        if done.returncode:
            output = "; ".join(done.stderr.decode("utf-8", "replace").strip().splitlines())
            raise HostError(f"`{' '.join([*self._words, *words])}` failed ({done.returncode}): {output}")

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run([*self._words, *words], capture_output=True, timeout=CALL_S)
        except subprocess.TimeoutExpired:
            raise HostError(
                f"`{' '.join([*self._words, *words])}` did not finish within {CALL_S:g} s"
            ) from None
