"""The signals that a trigger gets: the handler only counts them, and the trigger reacts where it waits.

So a signal disturbs nothing that it interrupts, such as a call of the store.
"""

from __future__ import annotations

import os
import select
import signal

from detent import clock

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Signals:
    def __init__(self) -> None:
        self.first = 0  # the number of the first signal
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
        """Wait until a signal comes, `fd` is readable, or the time is over.  True: `fd` is readable."""
        files = [self._reader] if fd < 0 else [self._reader, fd]
        ready, _, _ = select.select(files, [], [], max(0.0, seconds))
        if self._reader in ready:
            os.read(self._reader, 64)
        return fd in ready

    def sleep(self, seconds: float) -> bool:
        """False: a signal came before the time was over."""
        until = clock.boottime() + seconds
        while not self.first and (left := until - clock.boottime()) > 0:
            self.wait(min(left, 3600.0))
        return not self.first


def hold_back() -> None:
    """Block the signals until `let_through`: around a fork, whose child must not count them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def let_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
