"""Starts a command: in a session of its own, with descriptors 0, 1 and 2, and no other descriptor of ours.

1. A command with a cgroup and our own user is started by posix_spawn, which takes a third of the time of a
   fork of Python.  If the warden dies, the cgroup still identifies its processes.
2. Otherwise it is forked: only a process itself can change its user, or ask to be killed with its parent.
   Everything possible is prepared before the fork, as each memory page that the fork touches is copied.  An
   error before exec is reported through a pipe that exec closes, as an exit status and a text.
"""

import errno
import functools
import os
import pwd
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple, NoReturn

from . import kernel
from .cgroups import SpawnTarget
from .host_locks import LANE_FD, NO_LANE

NOT_FOUND, NOT_RUNNABLE = 127, 126  # the exit statuses of a shell
NODE_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # the warden ignores them
CHANGED_SIGNALS = (*NODE_SIGNALS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)  # the last two: by Python
NO_INPUT = -1
_FAILURE_FD = 3
_OPEN_MAX = os.sysconf("SC_OPEN_MAX")
_MESSAGE_MAX = 4000


class CommandOrder(NamedTuple):
    """A command to start.  Text is UTF-8, other bytes by surrogateescape."""

    id: str
    words: tuple[str, ...]
    env: dict[str, str]  # overrides `base`
    work_dir: str
    user: str
    trusted_by: float
    term_by: float
    timeout_s: float
    kill_after_s: float
    children: str
    output_path: str
    lane: str  # the path of its lane's files, without the number; "": it has no lane
    places: int
    base: Mapping[bytes, bytes] = {}  # environment that many commands share


class Spawned(NamedTuple):
    pid: int
    output_fd: int  # non-blocking
    failure_fd: int = -1  # non-blocking; has a message if exec failed
    lane_fd: int = NO_LANE  # our own descriptor of its lane


class Failure(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text

    @property
    def line(self) -> bytes:
        """The failure in the output of the command."""
        return f"detent: {self.text}\n".encode("utf-8", "surrogateescape")


@functools.lru_cache(maxsize=4096)
def to_bytes(text: str) -> bytes:
    """Cached: most of a command's environment is that of the previous command."""
    return text.encode("utf-8", "surrogateescape")


class Prepared(NamedTuple):
    """A command in the form that the kernel needs."""

    order: CommandOrder
    words: list[bytes]
    env: dict[bytes, bytes]
    lane_fd: int  # a command whose children are left on purpose gets none: they must not hold the lane
    input_fd: int


def spawn(
    order: CommandOrder, target: SpawnTarget | None = None, lane_fd: int = NO_LANE, input_fd: int = NO_INPUT
) -> Spawned:
    """Start a command in this cgroup, with the lock of its lane; raises `Failure` or OSError."""
    words = [to_bytes(word) for word in order.words]
    env = {**order.base, **env_of(order.env)}
    command = Prepared(order, words, env, NO_LANE if order.children == "leave" else lane_fd, input_fd)
    if not words:
        raise Failure(NOT_FOUND, "there is no command: its list of words is empty")
    with ExitStack() as readers, ExitStack() as writers:
        output = _open_pipe(readers, writers)
        if target and not order.user:
            spawned = Spawned(_launch(command, target, output[1]), output[0])
        else:
            failure = _open_pipe(readers, writers)
            spawned = Spawned(_fork(command, target, output[1], failure[1]), output[0], failure[0])
        readers.pop_all()  # the caller closes them
    return spawned


def env_of(env: dict[str, str]) -> dict[bytes, bytes]:
    return {to_bytes(name): to_bytes(value) for name, value in env.items()}


def read_failure(fd: int) -> Failure | None:
    """Return why a process that ended did not reach exec; None: it did."""
    if fd < 0:
        return None
    try:
        status, _, text = os.read(fd, _MESSAGE_MAX).partition(b" ")
    except BlockingIOError:
        return None
    return Failure(int(status), text.decode("utf-8", "replace")) if status else None


def _open_pipe(readers: ExitStack, writers: ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    readers.callback(os.close, reader)
    writers.callback(os.close, writer)
    os.set_blocking(reader, False)
    return reader, writer


def ignore_node_signals() -> None:
    """Ignore the signals that are for the node.  No other signal stays ignored: commands would inherit it."""
    for signum in signal.valid_signals() - {*CHANGED_SIGNALS, signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)
    for signum in NODE_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


# By posix_spawn.


def _launch(command: Prepared, target: SpawnTarget, output_fd: int) -> int:
    target.enter()
    try:
        _change_directory(command.order.work_dir)
        return _start_first(command, functools.partial(_posix_spawn, command, output_fd))
    finally:
        target.leave(directory=bool(command.order.work_dir))


def _posix_spawn(command: Prepared, output_fd: int, path: bytes) -> int:
    files: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
        if command.input_fd == NO_INPUT
        else (os.POSIX_SPAWN_DUP2, command.input_fd, 0),
        (os.POSIX_SPAWN_DUP2, output_fd, 1),
        (os.POSIX_SPAWN_DUP2, output_fd, 2),
    ]
    if command.lane_fd != NO_LANE:
        files.append((os.POSIX_SPAWN_DUP2, command.lane_fd, LANE_FD))
    signals: dict[str, Any] = {"setsigmask": (), "setsigdef": CHANGED_SIGNALS}
    return os.posix_spawn(path, command.words, command.env, file_actions=files, setsid=True, **signals)


# By fork.


def _fork(command: Prepared, target: SpawnTarget | None, output_fd: int, failure_fd: int) -> int:
    parent = os.getpid()
    # Blocked signals stay pending for the child, which does not ignore them.
    signal.pthread_sigmask(signal.SIG_BLOCK, NODE_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _run_child(command, target, parent, (output_fd, failure_fd))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NODE_SIGNALS)
    return pid


def _run_child(command: Prepared, target: SpawnTarget | None, parent: int, fds: tuple[int, int]) -> NoReturn:
    failure = Failure(NOT_RUNNABLE, "could not be started")
    try:
        kernel.die_with_parent()
        os.setsid()
        if target:
            target.enter()
        _take_descriptors(*fds, command.lane_fd, command.input_fd)
        _reset_signals()
        _change_user(command.order.user, command.env)
        _change_directory(command.order.work_dir)
        if command.order.user:
            kernel.die_with_parent()  # the change of user has reset it
        if os.getppid() == parent:
            _start_first(command, lambda path: os.execve(path, command.words, command.env))
    except Failure as why:
        failure = why
    except BaseException as error:
        failure = Failure(NOT_RUNNABLE, f"could not be started: {error}")
    finally:
        os.write(_FAILURE_FD, f"{failure.status} {failure.text}".encode("utf-8", "replace")[:_MESSAGE_MAX])
        os._exit(failure.status)


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
    """A command must not inherit what the warden or Python ignores."""
    for signum in CHANGED_SIGNALS:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _change_user(user: str, env: dict[bytes, bytes]) -> None:
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


def _change_directory(cwd: str) -> None:
    try:
        if cwd:
            os.chdir(to_bytes(cwd))
    except OSError as error:
        raise Failure(NOT_RUNNABLE, f'cannot enter work_dir "{cwd}": {error.strerror}') from None


def _start_first(command: Prepared, start: Callable[[bytes], int]) -> int:
    """Start the first program of this name in the command's own PATH.  As a shell does, skip folders that
    we may not read, and programs that we may not execute."""
    failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in _candidates(command.words[0], command.env.get(b"PATH") or os.defpath.encode()):
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
        except ValueError as error:  # a NUL byte, or "=" in the name of a variable
            raise Failure(NOT_RUNNABLE, f"a word or variable cannot be passed on: {error}") from None
    raise _explain(failure, command) from None


def _candidates(name: bytes, path: bytes) -> list[bytes]:
    if b"/" in name:
        return [name]
    paths = [(folder or b".") + b"/" + name for folder in path.split(b":")]
    return [path for path in paths if os.access(path, os.F_OK)]


def _explain(error: OSError, command: Prepared) -> Failure:
    name = command.order.words[0]
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if "/" in name and os.access(to_bytes(name), os.F_OK):
            return Failure(
                NOT_FOUND, f'cannot run "{name}": the interpreter in its first line does not exist'
            )
        path = command.env.get(b"PATH", b"").decode("utf-8", "surrogateescape")
        where = "" if "/" in name else f" in PATH ({path or os.defpath})"
        return Failure(NOT_FOUND, f'command not found: "{name}"{where}')
    if error.errno == errno.ENOEXEC:
        return Failure(
            NOT_RUNNABLE,
            f'cannot run "{name}": unknown format; a script must begin with a line like #!/bin/sh',
        )
    return Failure(NOT_RUNNABLE, f'cannot run "{name}": {error.strerror}')
