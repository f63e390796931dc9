"""One fire's work in the warden's charge: from its start until its last process is gone."""

import contextlib
import math
import os
import signal

from . import ending, kernel
from .output import Output
from .spawn import Order, Spawned, read_failure
from .trees import Tree

CHUNK = 64 * 1024  # read at once, so that one talkative command does not starve the others
PIPE_MAX = 1024 * 1024  # what a pipe may hold at the most


class Charge:
    """Its processes, its output, and how far it is with ending."""

    def __init__(self, order: Order, spawned: Spawned, tree: Tree, output: Output) -> None:
        self.id, self.pid, self.tree = order.id, spawned.pid, tree
        self.started_at = kernel.boottime()
        self.status: int | None = None  # of the main process, once it has ended
        self.error = ""  # why it could not be started
        self._leaves = order.children == "leave"
        self.output, self.output_fd = output, spawned.output_fd
        self._failure_fd = spawned.failure_fd
        self._terms = ending.Terms(
            trusted_by=order.trusted_by,
            term_by=order.term_by,
            timeout_by=self.started_at + order.timeout_s if order.timeout_s else math.inf,
            kill_after_s=order.kill_after_s,
        )
        self._seen = ending.Seen()
        self._ending: ending.Ending | None = None

    # What it is told.

    def extend(self, trusted_by: float, term_by: float) -> None:
        self._terms = self._terms._replace(trusted_by=trusted_by, term_by=term_by)

    def stop(self, now: float, kill_after_s: float | None) -> None:
        """End it; told again with less time, it hurries."""
        kill_by = now + (self._terms.kill_after_s if kill_after_s is None else kill_after_s)
        self._seen = self._seen._replace(stopped_by=min(kill_by, self._seen.stopped_by))

    def hang_up(self, now: float) -> None:
        self._seen = self._seen._replace(hung_up_at=min(now, self._seen.hung_up_at))

    def main_ended(self, status: int) -> None:
        self.status = status
        self._seen = self._seen._replace(main_ended=True)
        if failure := read_failure(self._failure_fd):
            self.error = failure.text
            self.output.write(f"detent: {failure.text}\n".encode("utf-8", "surrogateescape"))
        os.close(self._failure_fd)

    # What it does.

    def check(self, now: float) -> None:
        """Begin to end, or go on with it, as far as it is time."""
        if self._ending is None:
            self._ending = ending.begin(self._terms, self._seen, now)
            if self._ending:
                self.tree.signal(signal.SIGTERM)
                self.tree.signal(signal.SIGCONT)  # a stopped process hears SIGTERM only then
        if self._ending and now >= ending.kill_at(self._terms, self._seen, self._ending):
            self.tree.signal(signal.SIGKILL)

    def next_at(self) -> float:
        return ending.next_at(self._terms, self._seen, self._ending)

    def is_gone(self) -> bool:
        """The last process that counts has ended."""
        return self.status is not None and (self.is_left() or self.tree.is_empty())

    def is_left(self) -> bool:
        """What is still there is left on purpose.  Where we end a command, nothing is."""
        return self._leaves and not self.cause()

    def cause(self) -> ending.Cause:
        if self.error:
            return "error"
        return self._ending.cause if self._ending else ""

    # What it says.

    def read(self) -> bool:
        """Take a chunk of output, if there is one.  False: there will be no more."""
        try:
            data = os.read(self.output_fd, CHUNK)
        except BlockingIOError:
            return True
        self.output.write(data)
        return bool(data)

    def drain(self) -> None:
        """Take what is in the pipe, as far as those who wrote it are gone."""
        for _ in range(PIPE_MAX // CHUNK):
            if not self.read():
                return

    def close_output(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.output_fd)
        self.output_fd = -1
        self.output.close()
