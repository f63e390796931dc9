"""The tasks of the warden: each is the work of one fire, from its start until its last process is gone."""

import math
import os
import signal
from collections.abc import Callable, ValuesView
from typing import NamedTuple

from . import deadlines, kernel
from .host_locks import NO_LANE
from .output import Output, Pipe
from .process_trees import CallTree, ProcessTree
from .spawn import CommandOrder, Failure, Spawned, read_failure

Terms = deadlines.Terms
SLACK_S = 0.01  # a child may report this much later that one message of a batch has ended and the next begun
IMPORTS = {b'{"imports":1}': True, b'{"imports":0}': False}  # a child sends these around an import
EXITED = "its process exited with status 0 before the function returned"
IMPORT_S = 60.0  # for the import of the module that is called, in addition to the call's own timeout
CHECK_S = 1.0  # all tasks are checked at least this often
CHANGED_CHECK_S = 0.05  # while a task is ending


class WardenTask:
    """How long the task may run, and how far it is with ending."""

    def __init__(self, id: str, tree: ProcessTree, terms: Terms, output_path: str) -> None:
        self.id, self.tree, self.output = id, tree, Output(output_path)
        self.started_at = kernel.boottime()
        self.lane_fd = NO_LANE  # the warden's own descriptor of its lane
        self.status: int | None = None  # once its main process, or its call, has ended
        self.error = ""  # why it could not be started, or failed
        self.result = ""  # of a call
        self.on_change: Callable[[WardenTask], None] = lambda _: None  # called when it needs a check
        self._terms, self._seen = terms, deadlines.Seen()
        self._ending: deadlines.Ending | None = None

    def extend(self, trusted_by: float, term_by: float) -> None:
        self._terms = self._terms._replace(trusted_by=trusted_by, term_by=term_by)

    def stop(self, now: float, kill_after_s: float | None) -> None:
        """End it.  A further stop can only shorten the time until SIGKILL."""
        kill_by = now + (self._terms.kill_after_s if kill_after_s is None else kill_after_s)
        self._seen = self._seen._replace(stopped_by=min(kill_by, self._seen.stopped_by))
        self.on_change(self)

    def hang_up(self, now: float) -> None:
        """The node is gone."""
        self._seen = self._seen._replace(hung_up_at=min(now, self._seen.hung_up_at))
        self.on_change(self)

    def ended(self, status: int, error: str = "") -> None:
        """The main process or the call has ended; processes that it started may still run."""
        self.status, self.error = status, error
        self._seen = self._seen._replace(main_ended=True)
        self.on_change(self)

    def check(self, now: float) -> None:
        if self._ending is None:
            self._ending = deadlines.begin(self._terms, self._seen, now)
            if self._ending:
                self.on_change(self)
                self.tree.signal(signal.SIGTERM)
                self.tree.signal(signal.SIGCONT)  # a stopped process handles SIGTERM only then
        if self._ending and now >= deadlines.kill_at(self._terms, self._seen, self._ending):
            self.tree.signal(signal.SIGKILL)

    def next_at(self) -> float:
        return deadlines.next_at(self._terms, self._seen, self._ending)

    def is_gone(self) -> bool:
        """Whether its last process has ended, except those that it leaves on purpose."""
        return self.status is not None and (self.leaves_processes() or self.tree.is_empty())

    def leaves_processes(self) -> bool:
        return False

    def is_ending(self) -> bool:
        """Whether it got SIGTERM."""
        return self._ending is not None

    def cause(self) -> deadlines.Cause:
        cause = self._ending.cause if self._ending else ""
        return cause or ("error" if self.error else "")


class CommandTask(WardenTask):
    """A process that was started for this fire."""

    def __init__(self, order: CommandOrder, spawned: Spawned, tree: ProcessTree) -> None:
        super().__init__(order.id, tree, terms_of(order), order.output_path)
        self.pid, self.pipe = spawned.pid, Pipe(spawned.output_fd)
        self.is_registered = False  # whether the selector watches its output
        self._leaves = order.children == "leave"
        self._failure_fd, self.lane_fd = spawned.failure_fd, spawned.lane_fd

    def main_ended(self, status: int) -> None:
        failure = read_failure(self._failure_fd)
        if self._failure_fd >= 0:
            os.close(self._failure_fd)
        self.ended(status, failure.text if failure else "")
        if failure:
            self.output.write(failure.line)

    def leaves_processes(self) -> bool:
        """A command that the warden ends leaves none."""
        return self._leaves and not self.cause()


class CallOrder(NamedTuple):
    id: str
    pool: str
    request: bytes  # only the child reads it
    tags: list[str]  # `NAME=value` in the environment of the processes that the call starts
    trusted_by: float
    term_by: float
    timeout_s: float
    kill_after_s: float
    output_path: str
    lane: str
    places: int
    messages: int = 0  # of a batch; 0: it is not a batch


class Answer(NamedTuple):
    """How a call ended, as its child reports it."""

    status: int
    error: str = ""
    result: str = ""


class CallTask(WardenTask):
    """A function that a child runs."""

    def __init__(self, order: CallOrder, tree: ProcessTree) -> None:
        super().__init__(order.id, tree, terms_of(order), order.output_path)
        self._timeout_s, self.messages, self._answered_messages = order.timeout_s, order.messages, 0
        self._import_by, self._is_importing = math.inf, False
        self._answer: Answer | None = None
        self.restart_timeout(self.started_at)

    def imports(self, now: float, *, is_under_way: bool) -> None:
        """The timeout of a call counts from the call of its function; imports have a limit of their own."""
        self._is_importing = is_under_way
        if self._timeout_s and is_under_way:
            self._import_by = min(self._import_by, now + IMPORT_S)
            self._terms = self._terms._replace(timeout_by=self._import_by + self._timeout_s)
        else:
            self.restart_timeout(now)

    def message_answered(self, now: float) -> None:
        """A message of the batch has ended in time: the next one has its full time."""
        self._answered_messages += 1
        self.restart_timeout(now)

    def restart_timeout(self, now: float) -> None:
        if self._timeout_s:
            slack_s = SLACK_S if self.messages > 1 else 0.0
            self._terms = self._terms._replace(timeout_by=now + slack_s + self._timeout_s)

    def not_started(self) -> int:
        """Return how many messages it has not started, if it reports each one."""
        return max(0, self.messages - self._answered_messages - 1)

    def check(self, now: float) -> None:
        was_ending = self.is_ending()
        super().check(now)
        if self._is_importing and self.is_ending() and not was_ending:
            self.output.write(b"detent: it was ended while it imported what it was to call\n")

    def answered(self, answer: Answer, *, is_last: bool) -> None:
        """The function has ended.  If it is the child's last call, the call lasts until the child ends."""
        self._answer = answer
        if not is_last:
            self._accept(answer)
            if isinstance(self.tree, CallTree):
                self.tree.spares_child = not self.is_ending()

    @property
    def is_answered(self) -> bool:
        return self._answer is not None

    def why_killed(self) -> str:
        """Return why its child was killed although the call had ended; "": it was not."""
        was_spared = not isinstance(self.tree, CallTree) or self.tree.spares_child
        if was_spared or not self.is_answered or self.cause():
            return ""
        return "processes that a call left did not end by SIGTERM"

    def child_ended(self, status: int, failure: Failure | None) -> None:
        if self.status is not None:
            return
        if self._answer and status == 0:
            self._accept(self._answer)
        else:
            self.ended(status, failure.text if failure else "" if status else EXITED)
        if failure:
            self.output.write(failure.line)

    def _accept(self, answer: Answer) -> None:
        self.ended(answer.status, answer.error)
        self.result = answer.result


class GuardOrder(NamedTuple):
    """A call that runs in the node itself."""

    id: str
    pid: int  # of the node
    trusted_by: float
    lane: str
    places: int


class GuardTask(WardenTask):
    """A call that runs in the node itself: when its claim is no longer trusted, the node is killed.

    SIGTERM is not sent: a stopping node cannot end such a call any better."""

    def __init__(self, order: GuardOrder, tree: ProcessTree) -> None:
        terms = Terms(order.trusted_by, order.trusted_by, kill_after_s=math.inf)
        super().__init__(order.id, tree, terms, "")
        self._is_released = False

    def hang_up(self, now: float) -> None:
        self.release()  # the call is gone with the node

    def release(self) -> None:
        """The call has ended."""
        self._is_released = True
        self.on_change(self)

    def is_gone(self) -> bool:
        return self._is_released


def terms_of(order: CommandOrder | CallOrder) -> Terms:
    return Terms(
        trusted_by=order.trusted_by,
        term_by=order.term_by,
        timeout_by=kernel.boottime() + order.timeout_s if order.timeout_s else math.inf,
        kill_after_s=order.kill_after_s,
    )


class Tasks:
    """All tasks, and which of them need a check now.

    A task that just runs is checked at its next deadline, and once a second.  One that changed, as it
    ended, was stopped or lost its node, is checked in every iteration until it is gone."""

    def __init__(self) -> None:
        self._all: dict[str, WardenTask] = {}
        self._changed: dict[str, WardenTask] = {}
        self._check_by = math.inf  # when all tasks are checked: no later than the next deadline

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, task: WardenTask, now: float) -> None:
        self._all[task.id] = task
        task.on_change = self._note_change
        self._check_by = min(self._check_by, task.next_at(), now + CHECK_S)

    def get(self, id: str) -> WardenTask | None:
        return self._all.get(id)

    def values(self) -> ValuesView[WardenTask]:
        return self._all.values()

    def remove(self, task: WardenTask) -> None:
        del self._all[task.id]
        self._changed.pop(task.id, None)

    def to_check(self, now: float) -> list[WardenTask]:
        return list(self._all.values() if now >= self._check_by else self._changed.values())

    def checked(self, now: float) -> None:
        if now >= self._check_by:
            next_at = min((task.next_at() for task in self._all.values()), default=math.inf)
            next_at = next_at if next_at > now else now + CHANGED_CHECK_S
            self._check_by = min(next_at, now + CHECK_S) if self._all else math.inf

    def pause_s(self, now: float) -> float:
        """Return how long nothing has to be checked."""
        if self._changed:
            return CHANGED_CHECK_S
        return min(max(self._check_by - now, 0.0), CHECK_S)

    def _note_change(self, task: WardenTask) -> None:
        self._changed[task.id] = task
