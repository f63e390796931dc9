"""Starts a command: a session of its own, descriptors 0, 1 and 2, and nothing else of ours.

The parent never waits.  What goes wrong in the child before its exec comes back through a pipe that
the exec closes, as an exit status and a sentence for people.
"""

import contextlib
import errno
import os
import pwd
import signal
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from . import kernel

NOT_FOUND, NOT_RUNNABLE = 127, 126  # what a shell would exit with
DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # the warden outlives them
CHANGED_SIGNALS = (*DEAF_TO, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)  # the last two by Python
_FAILURE_FD = 3
_MESSAGE_MAX = 4000


class Order(NamedTuple):
    """What the node asks to be started.  Text is UTF-8, other bytes by surrogateescape."""

    id: str
    words: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    user: str
    trusted_by: float
    term_by: float
    timeout_s: float
    kill_after_s: float
    children: str
    output_path: str


class Spawned(NamedTuple):
    """A child on its way to exec."""

    pid: int
    output_fd: int  # not blocking
    failure_fd: int  # not blocking; says something if the exec did not come to pass


class Failure(Exception):
    """Why a command could not be started."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def spawn(order: Order, joins: Callable[[], None]) -> Spawned:
    """Start it; `joins` is called in the child, to put itself where it belongs."""
    parent = os.getpid()
    with contextlib.ExitStack() as writers, contextlib.ExitStack() as readers:
        output, failure = _pipe(readers, writers), _pipe(readers, writers)
        mask = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        try:
            pid = os.fork()
            if pid == 0:
                _be_child(order, joins, parent, (output[1], failure[1]))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        readers.pop_all()  # from here on they are the caller's
    return Spawned(pid, output[0], failure[0])


def read_failure(fd: int) -> Failure | None:
    """What the child left behind when it ended; None: its exec came to pass."""
    try:
        status, _, text = os.read(fd, _MESSAGE_MAX).partition(b" ")
    except BlockingIOError:
        return None
    return Failure(int(status), text.decode("utf-8", "replace")) if status else None


def _pipe(readers: contextlib.ExitStack, writers: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    readers.callback(os.close, reader)
    writers.callback(os.close, writer)
    os.set_blocking(reader, False)
    return reader, writer


# In the child.


def _be_child(order: Order, joins: Callable[[], None], parent: int, fds: tuple[int, int]) -> NoReturn:
    failure = Failure(NOT_RUNNABLE, "could not be started")
    try:
        kernel.die_with_parent()
        os.setsid()
        _take_descriptors(*fds)
        _reset_signals()
        joins()
        _become(order.user, order.env)
        _enter(order.cwd)
        kernel.die_with_parent()  # the change of user has taken it back
        if os.getppid() == parent:
            _execute(order)
    except Failure as why:
        failure = why
    except BaseException as error:
        failure = Failure(NOT_RUNNABLE, f"could not be started: {error}")
    finally:
        os.write(_FAILURE_FD, f"{failure.status} {failure.text}".encode("utf-8", "replace")[:_MESSAGE_MAX])
        os._exit(failure.status)


def _take_descriptors(output_fd: int, failure_fd: int) -> None:
    signal.set_wakeup_fd(-1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    if failure_fd != _FAILURE_FD:
        os.dup2(failure_fd, _FAILURE_FD, inheritable=False)
    os.closerange(_FAILURE_FD + 1, os.sysconf("SC_OPEN_MAX"))


def _reset_signals() -> None:
    """A command expects none of what the warden or Python made of them."""
    for signum in CHANGED_SIGNALS:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _become(user: str, env: dict[str, str]) -> None:
    if not user:
        return
    entry = _entry_of(user)
    if os.geteuid() != entry.pw_uid:
        try:
            os.initgroups(entry.pw_name, entry.pw_gid)
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
        except PermissionError:
            text = f'cannot become user "{user}": only root may, and this node runs as user {os.geteuid()}'
            raise Failure(NOT_RUNNABLE, text) from None
    for name, value in (("HOME", entry.pw_dir), ("USER", entry.pw_name), ("LOGNAME", entry.pw_name)):
        env.setdefault(name, value)


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


def _execute(order: Order) -> None:
    if not order.words:
        raise Failure(NOT_FOUND, "there is no command: its list of words is empty")
    words = [to_bytes(word) for word in order.words]
    env = {to_bytes(name): to_bytes(value) for name, value in order.env.items()}
    try:
        _search(words, env)
    except OSError as error:
        raise _explain(error, order) from None
    except ValueError as error:  # a NUL byte, or a "=" in a variable's name
        raise Failure(NOT_RUNNABLE, f"a word or variable cannot be passed on: {error}") from None


def _search(words: list[bytes], env: dict[bytes, bytes]) -> NoReturn:
    """Execute the first such program in the command's own PATH.  Folders that hide it, or that hold
    one which is not for us, are passed over, as a shell does."""
    failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in _candidates(words[0], env.get(b"PATH") or os.defpath.encode()):
        try:
            os.execve(path, words, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            if os.access(path, os.F_OK):
                failure = error
    raise failure


def _candidates(name: bytes, path: bytes) -> list[bytes]:
    return [name] if b"/" in name else [(folder or b".") + b"/" + name for folder in path.split(b":")]


def _explain(error: OSError, order: Order) -> Failure:
    name = order.words[0]
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if "/" in name and os.access(to_bytes(name), os.F_OK):
            return Failure(NOT_FOUND, f'cannot run "{name}": the interpreter in its first line is not there')
        where = "" if "/" in name else f" in PATH ({order.env.get('PATH') or os.defpath})"
        return Failure(NOT_FOUND, f'command not found: "{name}"{where}')
    if error.errno == errno.ENOEXEC:
        return Failure(
            NOT_RUNNABLE, f'cannot run "{name}": no known format; a script begins with a line like #!/bin/sh'
        )
    return Failure(NOT_RUNNABLE, f'cannot run "{name}": {error.strerror}')
