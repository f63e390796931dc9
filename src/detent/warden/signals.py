"""What signals tell the trigger: noted at once, acted upon where it waits.

A handler does nothing else: whatever it interrupts, a call of the store among it, goes on undisturbed.
"""

from __future__ import annotations

import os
import select
import signal

from detent import clock

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Signals:
    def __init__(self) -> None:
        self.first = 0  # the number of the first one that told us to end
        self.count = 0
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup wants it ignored
                signal.signal(number, self._note)

    @property
    def name(self) -> str:
        return signal.Signals(self.first).name

    def _note(self, number: int, _: object) -> None:
        self.first = self.first or number
        self.count += 1

    def wait(self, seconds: float, fd: int = -1) -> bool:
        """Wait so long, until a signal comes, or until there is something to read; True: there is."""
        files = [self._reader] if fd < 0 else [self._reader, fd]
        ready, _, _ = select.select(files, [], [], max(0.0, seconds))
        if self._reader in ready:
            os.read(self._reader, 64)
        return fd in ready

    def sleep(self, seconds: float) -> bool:
        """Sleep so long.  False: a signal told us to end."""
        until = clock.boottime() + seconds
        while not self.first and (left := until - clock.boottime()) > 0:
            self.wait(min(left, 3600.0))
        return not self.first


def hold_back() -> None:
    """Signals wait until `let_through`: for a fork, whose child must not note them as we do."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def let_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
