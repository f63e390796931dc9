"""Tells systemd how the service is doing (sd_notify), where there is a systemd that asks."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping


class Notify:
    def __init__(self, env: Mapping[str, str]) -> None:
        self._address = env.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self.watchdog_s = _watchdog_s(env)

    def __call__(self, *lines: str) -> None:
        """A systemd that does not listen is no reason to stop working."""
        if self._address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.connect(self._address)
                sender.send("\n".join(lines).encode())


def _watchdog_s(env: Mapping[str, str]) -> float:
    """How often it wants to hear from us; 0: it does not."""
    text = env.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isdecimal() else 0.0
