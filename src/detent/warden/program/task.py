"""One fire's work in the warden's task: from its start until its last process is gone."""

import math
import os
import signal
from collections.abc import Callable
from typing import NamedTuple

from . import deadlines, kernel
from .host_locks import NO_LANE
from .output import Output, Pipe
from .process_trees import CallTree, Tree
from .spawn import Failure, Order, Spawned, read_failure

Terms = deadlines.Terms
SLACK_S = 0.01  # a child may say so much later that one of several messages has ended, and the next began
IMPORTS = {b'{"imports":1}': True, b'{"imports":0}': False}  # what a child says before and after an import
EXITED = "its process exited with status 0 before the function returned"
IMPORT_S = 60.0  # for the import of what is to be called, on top of the call's own time


class WardenTask:
    """How long it may go on, and how far it is with ending."""

    def __init__(self, id: str, tree: Tree, terms: Terms, output_path: str) -> None:
        self.id, self.tree, self.output = id, tree, Output(output_path)
        self.started_at = kernel.boottime()
        self.lane_fd = NO_LANE  # our own hold on its lane
        self.status: int | None = None  # once its main process, or its call, has ended
        self.error = ""  # why it could not be started, or failed
        self.result = ""  # of a call
        self.stir: Callable[[WardenTask], None] = lambda _: None  # called when it needs a look
        self._terms, self._seen = terms, deadlines.Seen()
        self._ending: deadlines.Ending | None = None

    # What it is told.

    def extend(self, trusted_by: float, term_by: float) -> None:
        self._terms = self._terms._replace(trusted_by=trusted_by, term_by=term_by)

    def stop(self, now: float, kill_after_s: float | None) -> None:
        """End it; told again with less time, it hurries."""
        kill_by = now + (self._terms.kill_after_s if kill_after_s is None else kill_after_s)
        self._seen = self._seen._replace(stopped_by=min(kill_by, self._seen.stopped_by))
        self.stir(self)

    def hang_up(self, now: float) -> None:
        self._seen = self._seen._replace(hung_up_at=min(now, self._seen.hung_up_at))
        self.stir(self)

    def ended(self, status: int, error: str = "") -> None:
        """What it was started for is over; what it left behind may not be."""
        self.status, self.error = status, error
        self._seen = self._seen._replace(main_ended=True)
        self.stir(self)

    # What it does.

    def check(self, now: float) -> None:
        """Begin to end, or go on with it, as far as it is time."""
        if self._ending is None:
            self._ending = deadlines.begin(self._terms, self._seen, now)
            if self._ending:
                self.stir(self)
                self.tree.signal(signal.SIGTERM)
                self.tree.signal(signal.SIGCONT)  # a stopped process hears SIGTERM only then
        if self._ending and now >= deadlines.kill_at(self._terms, self._seen, self._ending):
            self.tree.signal(signal.SIGKILL)

    def next_at(self) -> float:
        return deadlines.next_at(self._terms, self._seen, self._ending)

    def is_gone(self) -> bool:
        """The last process that counts has ended."""
        return self.status is not None and (self.is_left() or self.tree.is_empty())

    def is_left(self) -> bool:
        """What is still there is left on purpose."""
        return False

    def is_ending(self) -> bool:
        """Was it sent SIGTERM?"""
        return self._ending is not None

    def cause(self) -> deadlines.Cause:
        cause = self._ending.cause if self._ending else ""
        return cause or ("error" if self.error else "")


class CommandTask(WardenTask):
    """A process that was started for this fire."""

    def __init__(self, order: Order, spawned: Spawned, tree: Tree) -> None:
        super().__init__(order.id, tree, terms_of(order), order.output_path)
        self.pid, self.pipe = spawned.pid, Pipe(spawned.output_fd)
        self.is_heard = False  # somebody listens to its output
        self._leaves = order.children == "leave"
        self._failure_fd, self.lane_fd = spawned.failure_fd, spawned.lane_fd

    def main_ended(self, status: int) -> None:
        failure = read_failure(self._failure_fd)
        if self._failure_fd >= 0:
            os.close(self._failure_fd)
        self.ended(status, failure.text if failure else "")
        if failure:
            self.output.write(failure.line)

    def is_left(self) -> bool:
        """Where we end a command, nothing is."""
        return self._leaves and not self.cause()


class CallOrder(NamedTuple):
    """What the node asks a child to carry out."""

    id: str
    pool: str  # the name of the surroundings
    request: bytes  # for the child, which alone reads it
    tags: list[str]  # `NAME=value` in the environment of what the call starts
    trusted_by: float
    term_by: float
    timeout_s: float
    kill_after_s: float
    output_path: str
    lane: str
    places: int
    messages: int = 0  # that it consists of, if of any


class Answer(NamedTuple):
    """What a child says of its call."""

    status: int
    error: str = ""
    result: str = ""


class CallTask(WardenTask):
    """A function that a child carries out."""

    def __init__(self, order: CallOrder, tree: Tree) -> None:
        super().__init__(order.id, tree, terms_of(order), order.output_path)
        self._timeout_s, self.messages, self._inbox = order.timeout_s, order.messages, 0
        self._import_by, self._is_importing = math.inf, False
        self._answer: Answer | None = None
        self.go_on(self.started_at, heard=0)

    def imports(self, now: float, *, is_under_way: bool) -> None:
        """The time of a call begins when its function is called; an import has a bound of its own."""
        self._is_importing = is_under_way
        if self._timeout_s and is_under_way:
            self._import_by = min(self._import_by, now + IMPORT_S)
            self._terms = self._terms._replace(timeout_by=self._import_by + self._timeout_s)
        else:
            self.go_on(now, heard=0)

    def go_on(self, now: float, heard: int = 1) -> None:
        """A part of it has ended in time.  What was under way since then may have ended without a word."""
        self._inbox += heard
        if self._timeout_s:
            slack_s = SLACK_S if self.messages > 1 else 0.0
            self._terms = self._terms._replace(timeout_by=now + slack_s + self._timeout_s)

    def unheard_of(self) -> int:
        """How many messages it has not begun, if it says a word for each."""
        return max(0, self.messages - self._inbox - 1)

    def check(self, now: float) -> None:
        was_ending = self.is_ending()
        super().check(now)
        if self._is_importing and self.is_ending() and not was_ending:
            self.output.write(b"detent: it was ended while it imported what it was to call\n")

    def answered(self, answer: Answer, *, is_last: bool) -> None:
        """The function has ended.  Where it is the child's last, the call goes on until the child ends."""
        self._answer = answer
        if not is_last:
            self._take(answer)
            if isinstance(self.tree, CallTree):
                self.tree.spares_child = not self.is_ending()

    @property
    def is_answered(self) -> bool:
        return self._answer is not None

    def why_killed(self) -> str:
        """Why its child is gone although the call has ended; "": it is not."""
        was_spared = not isinstance(self.tree, CallTree) or self.tree.spares_child
        if was_spared or not self.is_answered or self.cause():
            return ""
        return "processes that a call left did not end by SIGTERM"

    def child_ended(self, status: int, failure: Failure | None) -> None:
        if self.status is not None:
            return
        if self._answer and status == 0:
            self._take(self._answer)
        else:
            self.ended(status, failure.text if failure else "" if status else EXITED)
        if failure:
            self.output.write(failure.line)

    def _take(self, answer: Answer) -> None:
        self.ended(answer.status, answer.error)
        self.result = answer.result


class GuardOrder(NamedTuple):
    """What the node asks us to look after although it runs in the node itself."""

    id: str
    pid: int  # the node's
    trusted_by: float
    lane: str
    places: int


class GuardTask(WardenTask):
    """Work that runs in the node itself: where its claim is not trusted any more, the node is killed.

    It hears of no SIGTERM: a node that is to stop could no more end such work than we can."""

    def __init__(self, order: GuardOrder, tree: Tree) -> None:
        terms = Terms(order.trusted_by, order.trusted_by, kill_after_s=math.inf)
        super().__init__(order.id, tree, terms, "")
        self.is_released = False

    def hang_up(self, now: float) -> None:
        self.release()  # the node is gone, and such work with it

    def release(self) -> None:
        """It has ended."""
        self.is_released = True
        self.stir(self)

    def is_gone(self) -> bool:
        return self.is_released


def terms_of(order: Order | CallOrder) -> Terms:
    """From now on."""
    return Terms(
        trusted_by=order.trusted_by,
        term_by=order.term_by,
        timeout_by=kernel.boottime() + order.timeout_s if order.timeout_s else math.inf,
        kill_after_s=order.kill_after_s,
    )
