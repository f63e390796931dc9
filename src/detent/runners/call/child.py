"""A warm child: it carries out calls, one at a time, until its warden wants no more.

1. The wire is descriptor 0, a socket to the warden; the function finds /dev/null there.  A line of JSON
   each way: `{"id", "function", "args", "env", "previous_success"}`, then `{"id", "status", "error",
   "result", "last", "took_s"}`, where `last` says why the child ends, if it does.  The first line is ours,
   `{}`: ready.  When the wire ends, so do we.
   Messages of a queue come several at once, as `calls`: `call_batch` has them.  What is said of them are
   lines that begin with `[`.  A first line of the warden may tell the node's store: `{"store"}`.
   `IMPORTING` and `IMPORTED` are around the import of what is called: the call's time begins after it.
2. What a call writes, by print, logging, C or a process of its own, goes to descriptors 1 and 2 and so to
   the warden.  It is flushed before the answer, so that it is told from the next call's.  Logging of INFO
   and up goes to stderr, unless the app configured it otherwise.
3. Between calls the environment, the working directory, the umask, the module path, the standard streams
   and the handler of SIGTERM are put back.  Modules and their state stay, as does what cannot be taken back
   (niceness, limits).
   Threads that a call leaves have a moment to end; then it was the child's last call: `call_leftovers`.
4. On SIGTERM a function is interrupted by SystemExit, an async one is cancelled, so that both clear up;
   then the child dies of the signal.  An idle one dies of it at once.
5. `sys.exit(n)` in a call is the exit status of a program; an exception is status 1, with its traceback.
6. It starts fast: what most calls do without is imported when it is needed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from detent.clock import monotonic
from detent.runners.call.django_setup import await_call, run_call
from detent.runners.call.function import (
    RESULT_NOT_KEPT,
    bind,
    exit_status,
    failure_of,
    find,
    returned,
    traceback_of,
)
from detent.runners.call.leftovers import GRACE_S, Leftovers, named, working
from detent.runners.call.store import NodeStore, set_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RECEIVE = 64 * 1024  # what is larger would be mapped and unmapped for each read
PR_SET_PDEATHSIG = 1
TURNS_FD = 99  # as in the warden's `lanes.LANE_FD`
IMPORTING, IMPORTED = b'{"imports":1}', b'{"imports":0}'  # as the warden's `charge` knows them
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Child:
    def __init__(self, wire: int) -> None:
        self.wire, self._incoming = wire, b""
        self._pid, self._home, self._env = os.getpid(), os.open(".", os.O_RDONLY), _variables()
        self._umask, self._streams, self._path = _umask(), (sys.stdout, sys.stderr), [*sys.path]
        self.interrupt: Callable[[], object] | None = None  # stops the call that is under way
        self._is_idle = self.is_told_to_end = False
        self._c, self._turns = _c_library(), _turns()
        self._unsaid = b""  # what goes with the next answer
        self._leftovers = Leftovers()
        self._die_with_parent()
        signal.signal(signal.SIGTERM, self._terminated)

    def serve(self) -> None:
        self._send(b"{}\n")
        while line := self._next_line():
            request, began = json.loads(line), monotonic()
            if "more" in request:  # for a call that is over: nobody begins it
                continue
            if "store" in request:
                set_store(NodeStore(*request["store"]))
                continue
            answer = self._answer_all(request) if "calls" in request else self._answer(request)
            took_s = monotonic() - began
            self._put_back(request["env"])
            self.flush()
            self._die_if_told()
            said = {"id": request["id"], "took_s": took_s, **answer}
            unsaid, self._unsaid = self._unsaid, b""
            self._send(unsaid + json.dumps(said).encode() + b"\n")
            if answer["last"]:
                return

    def may_begin(self) -> bool:
        """Take a turn: is the next message of several still ours?"""
        try:
            return self._turns < 0 or bool(os.read(self._turns, 8))
        except OSError:  # there is none left; or a message closed what is not its own
            return False

    def import_begins(self, is_so: bool) -> None:
        """Or it has ended."""
        self._leftovers.import_begins(is_so)
        self._send((IMPORTING if is_so else IMPORTED) + b"\n")

    # The wire.

    def _next_line(self) -> bytes:
        self._is_idle = True
        self._die_if_told()
        while b"\n" not in self._incoming:
            data = os.read(self.wire, RECEIVE)
            if not data:
                return b""
            self._incoming += data
        line, _, self._incoming = self._incoming.partition(b"\n")
        self._is_idle = False
        return line

    def hear_more(self, *, is_said: bool) -> list[Any] | None:
        """Further messages for the call that is under way.  None: nobody speaks to us any more."""
        data = os.read(self.wire, RECEIVE) if is_said else b""
        if is_said and not data:
            return None
        *lines, self._incoming = (self._incoming + data).split(b"\n")
        return [call for line in lines for call in json.loads(line)["more"]]

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.wire, data) :]

    # A call.

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self._reap()
        os.environ.update(request["env"])
        last = f"the import of {request['function']} failed"  # what that left is not for the next call
        try:
            function = self._find(request["function"])
            last = ""
            answer = _succeeded(self._call(function, request), keeps=request["keeps"])
        except SystemExit as error:
            answer = _exited(error)
        except BaseException as error:
            answer = self._failed(error)
        if os.getpid() != self._pid:  # a fork that came back from the function: it has no say here
            self.flush()
            os._exit(answer["status"])
        return answer | {"last": self._wait_for_threads(request["function"]) or last}

    def _answer_all(self, request: dict[str, Any]) -> dict[str, Any]:
        from detent.runners.call.child_batch import ANSWERED, Answers, Batch

        self._reap()
        os.environ.update(request["env"])
        at_once = request["at_once"]
        batch = Batch(self, request["calls"], at_once=at_once)
        answers = Answers(self._send, may_wait=self._turns >= 0 and not at_once)
        for part in batch.carry_out():
            if self.is_told_to_end:  # of what was interrupted nothing is said
                self._die_if_told()
            if os.getpid() != self._pid:
                os._exit(1)
            answers.add(part)
        if self._leftovers.left():
            self._send(answers.take())  # they do not wait for what others left
        self._unsaid = answers.take()
        last = f"the import of {batch.broken} failed" if batch.broken else ""
        last = self._wait_for_threads(", ".join(batch.functions)) or last
        return _judged(0, result=ANSWERED) | {"last": last}

    def _wait_for_threads(self, functions: str) -> str:
        """Why this child must end; "": it need not."""
        left = self._leftovers.wait(lambda: self.is_told_to_end)
        if not left:
            return ""
        late = f"still ran {GRACE_S:g} s after"
        _say(f"detent: {named(left)} {late} the function returned: ended with its process\n")
        return f"{functions} left {named(left)} that {late} it had returned"

    def _find(self, function: str) -> Callable[..., Any]:
        with self.interrupted_by(interrupt):
            found = find(function, self.import_begins)
        set_up_logging()
        return found

    def _call(self, function: Callable[..., Any], request: dict[str, Any]) -> object:
        args, named = bind(function, request["args"], lambda: _fire(request))
        with self.interrupted_by(interrupt):
            value = run_call(function, args, named)
        return self._await(value) if hasattr(value, "__await__") else value

    def _await(self, value: Any) -> object:
        import asyncio  # late: it takes as long as all the rest

        async def main() -> object:
            loop, task = asyncio.get_running_loop(), asyncio.ensure_future(await_call(value))
            with self.interrupted_by(lambda: loop.call_soon_threadsafe(task.cancel)):
                return await task

        return asyncio.run(main())

    def _failed(self, error: BaseException) -> dict[str, Any]:
        status, reason = failure_of(error)
        if not self.is_told_to_end:
            _say(traceback_of(error) or f"detent: {reason}\n")
        return _judged(status, error=reason)

    # Around it.

    def _reap(self) -> None:
        """What the calls before left was ended by the warden; nobody else waits for it."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _put_back(self, given: dict[str, str]) -> None:
        """The variables that were given stay: the next call is given the same ones."""
        expected = self._env | {os.fsencode(name): os.fsencode(value) for name, value in given.items()}
        if _variables() != expected:
            os.environb.clear()
            os.environb.update(expected)
        with suppress(OSError):
            os.fchdir(self._home)
        os.umask(self._umask)
        if (sys.stdout, sys.stderr) != self._streams:
            self.flush()  # what the call put in their place
        (sys.stdout, sys.stderr), sys.path[:] = self._streams, self._path
        signal.signal(signal.SIGTERM, self._terminated)

    def flush(self) -> None:
        logging = sys.modules.get("logging")
        for stream in (sys.stdout, sys.stderr, *(logging.root.handlers if logging else ())):
            with suppress(Exception):  # closed, or replaced by something that cannot
                stream.flush()
        if self._c:
            self._c.fflush(None)

    # Its end.

    def _die_with_parent(self) -> None:
        """Not all ways in which the warden starts us have seen to it."""
        if self._c and sys.platform == "linux":
            self._c.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)

    def interrupted_by(self, interrupt: Callable[[], object]) -> _Interruption:
        return _Interruption(self, interrupt)

    def _terminated(self, *_: object) -> None:
        is_first, self.is_told_to_end = not self.is_told_to_end, True
        if self._is_idle or os.getpid() != self._pid:
            self._die_if_told()
        elif is_first and self.interrupt:
            self.interrupt()

    def _die_if_told(self) -> None:
        """Of the signal, as a program does that has cleared up."""
        if self.is_told_to_end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


class _Interruption:
    """Within it, this is how a call is stopped.  A class, as it is entered for each of thousands."""

    __slots__ = ("_before", "_child", "_interrupt")

    def __init__(self, child: Child, interrupt: Callable[[], object]) -> None:
        self._child, self._interrupt = child, interrupt

    def __enter__(self) -> None:
        child = self._child
        self._before, child.interrupt = child.interrupt, self._interrupt
        if child.is_told_to_end:
            child.interrupt = self._before
            self._interrupt()

    def __exit__(self, *_: object) -> None:
        self._child.interrupt = self._before


def _turns() -> int:
    """Where turns are taken; -1: everything is ours.  Nothing that we start has it."""
    try:
        turns = os.dup(TURNS_FD)
    except OSError:
        return -1
    os.close(TURNS_FD)
    return turns


def _variables() -> dict[bytes, bytes]:
    """Those of our environment; all at once, where it keeps them as we think."""
    return dict(getattr(os.environb, "_data", os.environb))


def _umask() -> int:
    """To read it, it has to be set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def interrupt() -> None:
    raise SystemExit(128 + signal.SIGTERM)


def _fire(request: dict[str, Any]) -> Any:
    from detent.runners.call.fire import fire_of

    return fire_of(request["env"], request["previous_success"])


def _succeeded(value: object, *, keeps: bool) -> dict[str, Any]:
    text, why_not = returned(value)
    _say(f"detent: {why_not}\n" if why_not else "")
    return _judged(RESULT_NOT_KEPT, error=why_not) if why_not and keeps else _judged(0, result=text)


def _exited(error: SystemExit) -> dict[str, Any]:
    status, said = exit_status(error)
    _say(f"{said}\n" if said else "")
    return _judged(status)


def _judged(status: int, error: str = "", result: str = "") -> dict[str, Any]:
    return {"status": status, "error": error, "result": result}


def _say(text: str) -> None:
    with suppress(Exception):  # the call may have closed it
        sys.stderr.write(text)


def set_up_logging() -> None:
    """By what logging falls back on: whoever configures it, before or in a call, has it so."""
    import logging

    if logging.root.level == logging.WARNING and not logging.root.handlers and logging.lastResort:
        logging.lastResort.setFormatter(logging.Formatter(LOG_FORMAT))
        logging.lastResort.setLevel(logging.INFO)
        logging.root.setLevel(logging.INFO)


def _c_library() -> Any:
    """None: there is none to be had."""
    try:
        import ctypes

        return ctypes.CDLL(None)
    except (ImportError, OSError):
        return None


def main() -> int:
    wire, null = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109, see rule 6
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    child = Child(wire)
    child.serve()
    if working():  # an interpreter that ends in order would wait for them
        child.flush()
        os._exit(0)
    return 0
