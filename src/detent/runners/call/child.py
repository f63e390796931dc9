"""A warm child: a process that runs calls, one at a time, until its warden closes the connection.

1. Descriptor 0 is a socket to the warden, with a line of JSON each way; the function finds /dev/null there.
   The child first sends `{}`: it is ready.  A request is `{"id", "function", "args", "env",
   "previous_success", "keeps", "trace"}`, or has `calls`: a batch of messages (`child_batch`), whose answers
   are lines that begin with `[`.  The answer to a request is `{"id", "status", "error", "result", "last",
   "took_s"}`, where `last` says why the child exits after it, if it does.  The first line of the warden may
   be the node's store: `{"store"}`.  `IMPORTING` and `IMPORTED` surround imports: the timeout of a call
   begins after them.
2. The output of a call, by print, logging, C or its processes, goes to descriptors 1 and 2, and so to the
   warden. It is flushed before the answer, so that it is not mixed with that of the next call.  Logging of
   INFO and above goes to stderr, unless the app configures it otherwise.
3. After a call, the environment, the working directory, the umask, the module path, the standard streams
   and the handler of SIGTERM are restored.  Modules and their state stay, and so does what cannot be
   restored (niceness, limits).  Threads that a call leaves have a moment to end; after that the child exits
   (`leftovers`).
4. SIGTERM raises SystemExit in a function and cancels an async one, so that both can clean up; then the child
   dies of the signal.  An idle child dies at once.
5. `sys.exit(n)` in a call is its exit status.  Another exception is status 1, with a traceback in the output.
6. It starts fast: slow imports happen when they are needed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from detent.clock import monotonic
from detent.runners.call import store as call_store
from detent.runners.call.django_setup import await_call, run_call
from detent.runners.call.function import CallEnd, bind, end_of_raise, end_of_return, find
from detent.runners.call.leftovers import GRACE_S, Leftovers, named, working
from detent.runners.call.store import NodeStore, set_store
from detent.runners.call.trace import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

RECEIVE = 64 * 1024  # a larger buffer would be mapped and unmapped for each read
PR_SET_PDEATHSIG = 1
PERMITS_FD = 99  # as `host_locks.LANE_FD` in the warden
IMPORTING, IMPORTED = b'{"imports":1}', b'{"imports":0}'  # as `task.IMPORTS` in the warden
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Child:
    def __init__(self, wire: int) -> None:
        self.wire, self._incoming = wire, b""
        self._pid, self._home, self._env = os.getpid(), os.open(".", os.O_RDONLY), dict(os.environb)
        self._umask, self._streams, self._path = _umask(), (sys.stdout, sys.stderr), [*sys.path]
        self._interrupt: Callable[[], object] | None = None  # stops the running call
        self._is_idle = self.is_terminated = False
        self._c, self._permits = _c_library(), _permits()
        self._unsent = b""  # answers that are sent with the next line
        self._leftovers = Leftovers()
        self._die_with_parent()
        signal.signal(signal.SIGTERM, self._terminated)

    def serve(self) -> None:
        self._send(b"{}\n")
        while line := self._next_line():
            request, began = json.loads(line), monotonic()
            if "more" in request:  # for a batch that is over
                continue
            if "store" in request:
                set_store(NodeStore(*request["store"]))
                continue
            end, last = self._run_batch(request) if "calls" in request else self._run(request)
            took_s = monotonic() - began
            self._restore(request["env"])
            self.flush()
            self._die_if_terminated()
            answer = {"status": end.status, "error": end.error, "result": end.result, "last": last}
            line = json.dumps({"id": request["id"], "took_s": took_s, **answer}).encode() + b"\n"
            unsent, self._unsent = self._unsent, b""
            self._send(unsent + line)
            if last:
                return

    def take_permit(self) -> bool:
        """Whether the next message of a batch may start.  False: it was recalled."""
        try:
            return self._permits < 0 or bool(os.read(self._permits, 8))
        except OSError:  # none is left; or a message closed a descriptor that is not its own
            return False

    def note_import(self, is_under_way: bool) -> None:
        self._leftovers.note_import(is_under_way)
        self._send((IMPORTING if is_under_way else IMPORTED) + b"\n")

    # The connection.

    def _next_line(self) -> bytes:
        self._is_idle = True
        self._die_if_terminated()
        while b"\n" not in self._incoming:
            data = os.read(self.wire, RECEIVE)
            if not data:
                return b""
            self._incoming += data
        line, _, self._incoming = self._incoming.partition(b"\n")
        self._is_idle = False
        return line

    def receive_more(self, *, is_readable: bool) -> list[Any] | None:
        """Return further messages for the running batch.  None: the connection is closed."""
        data = os.read(self.wire, RECEIVE) if is_readable else b""
        if is_readable and not data:
            return None
        *lines, self._incoming = (self._incoming + data).split(b"\n")
        return [call for line in lines for call in json.loads(line)["more"]]

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.wire, data) :]

    # Calls.

    def _run(self, request: dict[str, Any]) -> tuple[CallEnd, str]:
        """Return how the call ended, and why the child exits after it, or ""."""
        self._reap_zombies()
        os.environ.update(request["env"])
        last = f"the import of {request['function']} failed"  # it may have left anything behind
        try:
            function = self._find(request["function"])
            last = ""
            end = end_of_return(self._call(function, request), keeps=request["keeps"])
        except BaseException as error:
            end = end_of_raise(error)
            if self.is_terminated and not isinstance(error, SystemExit):
                end = end._replace(output="")
        _write_error(end.output)
        if os.getpid() != self._pid:  # a fork that returned from the function: it must not answer
            self.flush()
            os._exit(end.status)
        return end, self._wait_for_threads(request["function"]) or last

    def _run_batch(self, request: dict[str, Any]) -> tuple[CallEnd, str]:
        from detent.runners.call.child_batch import ANSWERED, Answers, Batch

        self._reap_zombies()
        os.environ.update(request["env"])
        at_once = request["at_once"]
        batch = Batch(self, request["calls"], at_once=at_once)
        answers = Answers(self._send, may_wait=self._permits >= 0 and not at_once)
        for answer in batch.run():
            if self.is_terminated:  # the answer of an interrupted message does not count
                self._die_if_terminated()
            if os.getpid() != self._pid:
                os._exit(1)
            answers.add(answer)
        if self._leftovers.left():
            self._send(answers.take())  # before the wait for threads
        self._unsent = answers.take()
        last = f"the import of {batch.broken} failed" if batch.broken else ""
        return CallEnd(result=ANSWERED), self._wait_for_threads(", ".join(batch.functions)) or last

    def _wait_for_threads(self, functions: str) -> str:
        """Return why this child must exit, or ""."""
        left = self._leftovers.wait(lambda: self.is_terminated)
        if not left:
            return ""
        late = f"still ran {GRACE_S:g} s after"
        _write_error(f"detent: {named(left)} {late} the function returned: ended with its process\n")
        return f"{functions} left {named(left)} that {late} it had returned"

    def _find(self, function: str) -> Callable[..., Any]:
        with self.interrupted_by(interrupt):
            found = find(function, self.note_import)
        set_up_logging()
        return found

    def _call(self, function: Callable[..., Any], request: dict[str, Any]) -> object:
        def fire() -> Any:
            from detent.runners.call.fire import fire_of

            return fire_of(request["env"], request["previous_success"])

        args, named = bind(function, request["args"], fire)
        with within(request["trace"], request["function"], exports=True):
            with self.interrupted_by(interrupt):
                value = run_call(function, args, named)
            return self._await(value) if hasattr(value, "__await__") else value

    def _await(self, value: Any) -> object:
        import asyncio  # late: it takes as long as all other imports together

        async def main() -> object:
            loop, task = asyncio.get_running_loop(), asyncio.ensure_future(await_call(value))
            with self.interrupted_by(lambda: loop.call_soon_threadsafe(task.cancel)):
                return await task

        return asyncio.run(main())

    # Before and after a call.

    def _reap_zombies(self) -> None:
        """The warden has killed the processes that earlier calls left; only this process can reap them."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _restore(self, given: dict[str, str]) -> None:
        """The given variables stay: the next call gets the same ones."""
        expected = self._env | {os.fsencode(name): os.fsencode(value) for name, value in given.items()}
        if dict(os.environb) != expected:
            os.environb.clear()
            os.environb.update(expected)
        with suppress(OSError):
            os.fchdir(self._home)
        os.umask(self._umask)
        if (sys.stdout, sys.stderr) != self._streams:
            self.flush()  # those that the call has set
        (sys.stdout, sys.stderr), sys.path[:] = self._streams, self._path
        signal.signal(signal.SIGTERM, self._terminated)

    def flush(self) -> None:
        logging = sys.modules.get("logging")
        for stream in (sys.stdout, sys.stderr, *(logging.root.handlers if logging else ())):
            with suppress(Exception):  # closed, or replaced by an object without flush
                stream.flush()
        if self._c:
            self._c.fflush(None)

    # The end.

    def _die_with_parent(self) -> None:
        """A warden that starts us by posix_spawn cannot do this for us."""
        if self._c and sys.platform == "linux":
            self._c.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)

    @contextmanager
    def interrupted_by(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """SIGTERM calls `interrupt` while the context is active."""
        before, self._interrupt = self._interrupt, interrupt
        try:
            if self.is_terminated:
                self._interrupt = before
                interrupt()
            yield
        finally:
            self._interrupt = before

    def _terminated(self, *_: object) -> None:
        is_first, self.is_terminated = not self.is_terminated, True
        if self._is_idle or os.getpid() != self._pid:
            self._die_if_terminated()
        elif is_first and self._interrupt:
            self._interrupt()

    def _die_if_terminated(self) -> None:
        if self.is_terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


def _permits() -> int:
    """Return the descriptor of the start permits, which no process that we start inherits; -1: there are
    none."""
    try:
        permits = os.dup(PERMITS_FD)
    except OSError:
        return -1
    os.close(PERMITS_FD)
    return permits


def _umask() -> int:
    """The umask can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def interrupt() -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _write_error(text: str) -> None:
    with suppress(Exception):  # the call may have closed it
        sys.stderr.write(text)


def set_up_logging() -> None:
    """Change the fallback of logging only: an app that configures logging, now or later, overrides it."""
    import logging

    if logging.root.level == logging.WARNING and not logging.root.handlers and logging.lastResort:
        logging.lastResort.setFormatter(logging.Formatter(LOG_FORMAT))
        logging.lastResort.setLevel(logging.INFO)
        logging.root.setLevel(logging.INFO)


def _c_library() -> Any:
    """None: it cannot be loaded."""
    try:
        import ctypes

        return ctypes.CDLL(None)
    except (ImportError, OSError):
        return None


def main() -> int:
    call_store.is_child = True
    wire, null = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109, see rule 6
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    child = Child(wire)
    child.serve()
    if working():  # a normal exit of the interpreter would wait for these threads
        child.flush()
        os._exit(0)
    return 0
