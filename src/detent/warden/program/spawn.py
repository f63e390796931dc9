"""Starts a command: a session of its own, descriptors 0, 1 and 2, and nothing else of ours.

1. Where it has a cgroup and our user, the kernel starts it (posix_spawn): a third of the cost of a fork
   of Python.  The cgroup is what ends it then, whoever dies.
2. Else we fork: only a process itself can change its user, or ask to be killed when its parent ends.
   We prepare whatever we can before: each page that a fork touches is copied, and that costs the most.
   What goes wrong before its exec comes back through a pipe that the exec closes, as an exit status and
   a sentence for people.
"""

from __future__ import annotations

import errno
import functools
import os
import pwd
import signal
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from . import kernel
from .cgroups import Place
from .host_locks import LANE_FD, NO_LANE

NOT_FOUND, NOT_RUNNABLE = 127, 126  # what a shell would exit with
DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # the warden outlives them
CHANGED_SIGNALS = (*DEAF_TO, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)  # the last two by Python
NO_INPUT = -1
_FAILURE_FD = 3
_OPEN_MAX = os.sysconf("SC_OPEN_MAX")
_MESSAGE_MAX = 4000


class Order(NamedTuple):
    """What the node asks to be started.  Text is UTF-8, other bytes by surrogateescape."""

    id: str
    words: tuple[str, ...]
    env: dict[str, str]  # over its base
    cwd: str
    user: str
    trusted_by: float
    term_by: float
    timeout_s: float
    kill_after_s: float
    children: str
    output_path: str
    lane: str  # the path of its lane's files, without their numbers; "": it has no lane
    places: int
    base: Mapping[bytes, bytes] = {}  # what many have in their environment


class Spawned(NamedTuple):
    """A child on its way to exec."""

    pid: int
    output_fd: int  # not blocking
    failure_fd: int = -1  # not blocking; says something if the exec did not come to pass
    lane_fd: int = NO_LANE  # our own hold on its lane


class Failure(Exception):
    """Why a command could not be started."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text

    @property
    def line(self) -> bytes:
        """As the command's output shows it."""
        return f"detent: {self.text}\n".encode("utf-8", "surrogateescape")


@functools.lru_cache(maxsize=4096)
def to_bytes(text: str) -> bytes:
    """Remembered, as most of a command's environment is that of the one before."""
    return text.encode("utf-8", "surrogateescape")


class Ready(NamedTuple):
    """All that is needed to start it, as the kernel wants it."""

    order: Order
    words: list[bytes]
    env: dict[bytes, bytes]
    lane_fd: int  # what is left on purpose does not keep the lane: none
    input_fd: int  # none: it reads nothing


def spawn(
    order: Order, place: Place | None = None, lane_fd: int = NO_LANE, input_fd: int = NO_INPUT
) -> Spawned:
    """Start it; in this place, if there is one for it; with the lock of its lane, if it has one."""
    words = [to_bytes(word) for word in order.words]
    env = {**order.base, **env_of(order.env)}
    ready = Ready(order, words, env, NO_LANE if order.children == "leave" else lane_fd, input_fd)
    if not words:
        raise Failure(NOT_FOUND, "there is no command: its list of words is empty")
    with Pipes() as pipes:
        output = pipes.open()
        if place and not order.user:
            spawned = Spawned(_launch(ready, place, output[1]), output[0])
        else:
            failure = pipes.open()
            spawned = Spawned(_fork(ready, place, output[1], failure[1]), output[0], failure[0])
        pipes.readers.clear()  # from here on they are the caller's
    return spawned


def env_of(env: dict[str, str]) -> dict[bytes, bytes]:
    return {to_bytes(name): to_bytes(value) for name, value in env.items()}


def read_failure(fd: int) -> Failure | None:
    """What the child left behind when it ended; None: its exec came to pass."""
    if fd < 0:
        return None
    try:
        status, _, text = os.read(fd, _MESSAGE_MAX).partition(b" ")
    except BlockingIOError:
        return None
    return Failure(int(status), text.decode("utf-8", "replace")) if status else None


class Pipes:
    """Closes what is left of its pipes at the end."""

    def __init__(self) -> None:
        self.readers: list[int] = []
        self._writers: list[int] = []

    def __enter__(self) -> Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (*self.readers, *self._writers):
            os.close(fd)

    def open(self) -> tuple[int, int]:
        reader, writer = os.pipe()
        self.readers.append(reader)
        self._writers.append(writer)
        os.set_blocking(reader, False)
        return reader, writer


def settle_signals() -> None:
    """Ignore what is meant for the node; and nothing that somebody before us ignored, as a command
    would be started with that."""
    for signum in signal.valid_signals() - {*CHANGED_SIGNALS, signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)
    for signum in DEAF_TO:
        signal.signal(signum, signal.SIG_IGN)


# By the kernel.


def _launch(ready: Ready, place: Place, output_fd: int) -> int:
    """We go where it belongs, start it there, and come back."""
    place.enter()
    try:
        _enter(ready.order.cwd)
        return _found(ready, functools.partial(_posix_spawn, ready, output_fd))
    finally:
        place.leave(directory=bool(ready.order.cwd))


def _posix_spawn(ready: Ready, output_fd: int, path: bytes) -> int:
    files: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
        if ready.input_fd == NO_INPUT
        else (os.POSIX_SPAWN_DUP2, ready.input_fd, 0),
        (os.POSIX_SPAWN_DUP2, output_fd, 1),
        (os.POSIX_SPAWN_DUP2, output_fd, 2),
    ]
    if ready.lane_fd != NO_LANE:
        files.append((os.POSIX_SPAWN_DUP2, ready.lane_fd, LANE_FD))
    signals: dict[str, Any] = {"setsigmask": (), "setsigdef": CHANGED_SIGNALS}
    return os.posix_spawn(path, ready.words, ready.env, file_actions=files, setsid=True, **signals)


# In a fork.


def _fork(ready: Ready, place: Place | None, output_fd: int, failure_fd: int) -> int:
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)  # the child does not ignore them: they wait for it
    try:
        pid = os.fork()
        if pid == 0:
            _be_child(ready, place, parent, (output_fd, failure_fd))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, DEAF_TO)
    return pid


def _be_child(ready: Ready, place: Place | None, parent: int, fds: tuple[int, int]) -> NoReturn:
    failure = Failure(NOT_RUNNABLE, "could not be started")
    try:
        kernel.die_with_parent()
        os.setsid()
        if place:
            place.enter()
        _take_descriptors(*fds, ready.lane_fd, ready.input_fd)
        _reset_signals()
        _become(ready.order.user, ready.env)
        _enter(ready.order.cwd)
        if ready.order.user:
            kernel.die_with_parent()  # the change of user has taken it back
        if os.getppid() == parent:
            _found(ready, functools.partial(_execute, ready))
    except Failure as why:
        failure = why
    except BaseException as error:
        failure = Failure(NOT_RUNNABLE, f"could not be started: {error}")
    finally:
        os.write(_FAILURE_FD, f"{failure.status} {failure.text}".encode("utf-8", "replace")[:_MESSAGE_MAX])
        os._exit(failure.status)


def _execute(ready: Ready, path: bytes) -> int:
    os.execve(path, ready.words, ready.env)


def _take_descriptors(output_fd: int, failure_fd: int, lane_fd: int, input_fd: int) -> None:
    signal.set_wakeup_fd(-1)
    os.dup2(os.open(os.devnull, os.O_RDWR) if input_fd == NO_INPUT else input_fd, 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    if failure_fd != _FAILURE_FD:
        os.dup2(failure_fd, _FAILURE_FD, inheritable=False)
    if lane_fd != NO_LANE:
        os.dup2(lane_fd, LANE_FD)
    os.closerange(_FAILURE_FD + 1, LANE_FD)
    os.closerange(LANE_FD + (lane_fd != NO_LANE), _OPEN_MAX)


def _reset_signals() -> None:
    """What the warden or Python ignores, a command must hear."""
    for signum in CHANGED_SIGNALS:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _become(user: str, env: dict[bytes, bytes]) -> None:
    if not user:
        return
    entry = _entry_of(user)
    if os.geteuid() != entry.pw_uid:
        try:
            os.initgroups(entry.pw_name, entry.pw_gid)
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
        except PermissionError:
            text = f'cannot become user "{user}": only root may, with CAP_SETUID and CAP_SETGID'
            text += f"; this node runs as user {os.geteuid()}"
            raise Failure(NOT_RUNNABLE, text) from None
    for name, value in (("HOME", entry.pw_dir), ("USER", entry.pw_name), ("LOGNAME", entry.pw_name)):
        env.setdefault(name.encode(), to_bytes(value))


def _entry_of(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except KeyError:
        raise Failure(NOT_RUNNABLE, f'unknown user "{user}": this host has no such account') from None


def _enter(cwd: str) -> None:
    try:
        if cwd:
            os.chdir(to_bytes(cwd))
    except OSError as error:
        raise Failure(NOT_RUNNABLE, f'cannot enter work_dir "{cwd}": {error.strerror}') from None


# Either way.


def _found(ready: Ready, start: Callable[[bytes], int]) -> int:
    """Start the first such program in the command's own PATH.  Folders that hide it, or that hold one
    which is not for us, are passed over, as a shell does."""
    failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in _candidates(ready.words[0], ready.env.get(b"PATH") or os.defpath.encode()):
        try:
            return start(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            if os.access(path, os.F_OK):
                failure = error
        except OSError as error:
            failure = error
            break
        except ValueError as error:  # a NUL byte, or a "=" in a variable's name
            raise Failure(NOT_RUNNABLE, f"a word or variable cannot be passed on: {error}") from None
    raise _explain(failure, ready) from None


def _candidates(name: bytes, path: bytes) -> list[bytes]:
    if b"/" in name:
        return [name]
    paths = [(folder or b".") + b"/" + name for folder in path.split(b":")]
    return [path for path in paths if os.access(path, os.F_OK)]


def _explain(error: OSError, ready: Ready) -> Failure:
    name = ready.order.words[0]
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if "/" in name and os.access(to_bytes(name), os.F_OK):
            return Failure(NOT_FOUND, f'cannot run "{name}": the interpreter in its first line is not there')
        path = ready.env.get(b"PATH", b"").decode("utf-8", "surrogateescape")
        where = "" if "/" in name else f" in PATH ({path or os.defpath})"
        return Failure(NOT_FOUND, f'command not found: "{name}"{where}')
    if error.errno == errno.ENOEXEC:
        return Failure(
            NOT_RUNNABLE, f'cannot run "{name}": no known format; a script begins with a line like #!/bin/sh'
        )
    return Failure(NOT_RUNNABLE, f'cannot run "{name}": {error.strerror}')
