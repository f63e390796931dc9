"""A command that records its start and end: `witnessed.py FILE LANE DEED …`.  Uses only the standard library.

It appends `start` to FILE, with its environment and whether the flock of its lane was free, and
`end` when it ends by itself.  The lock goes to all its children: it is free when the last is gone.
"""

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path


def tell(what: str, free: bool = True) -> None:
    env = os.environ
    line = {
        "what": what,
        "at": time.clock_gettime(time.CLOCK_MONOTONIC),
        "lane": LANE,
        "key": env["DETENT_FIRE"],
        "run_id": env["DETENT_RUN_ID"],
        "node": env["DETENT_NODE"],
        "pid": os.getpid(),
        "fence": int(env["DETENT_FENCE"]),
        "attempt": int(env["DETENT_ATTEMPT"]),
        "free": free,
    }
    os.write(WITNESS, json.dumps(line).encode() + b"\n")


def take_lane() -> bool:
    lock = os.open(f"{FILE}.{LANE}", os.O_RDWR | os.O_CREAT, 0o666)
    os.set_inheritable(lock, True)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sleep(seconds: str, status: str = "0") -> None:
    time.sleep(float(seconds))
    tell("end")
    sys.exit(int(status))


def deaf(seconds: str) -> None:
    """Only SIGKILL ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep(seconds)


def without_pipes(seconds: str) -> None:
    for fd in (0, 1, 2):
        os.close(fd)
    sleep(seconds)


def daemon(seconds: str) -> None:
    """Runs on, beside an orphaned grandchild in its own session."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _drop_output()
            tell("daemon")
            time.sleep(1000)
        os._exit(0)
    os.wait()
    sleep(seconds)


def background(seconds: str) -> None:
    """Ends at once; its child runs on with redirected output, and takes this long to end after SIGTERM."""
    if os.fork() == 0:
        _drop_output()
        signal.signal(signal.SIGTERM, lambda *_: sleep(seconds))
        tell("background")
        time.sleep(1000)
    while "background" not in _recorded():
        time.sleep(0.01)


def execute(*words: str) -> None:
    os.execvp(words[0], words)


def _recorded() -> set[str]:
    *lines, _ = Path(FILE).read_text().split("\n")
    lines_read = map(json.loads, lines)
    return {one["what"] for one in lines_read if one["key"] == os.environ["DETENT_FIRE"]}


def _drop_output() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


DEEDS: dict[str, Callable[..., None]] = {
    "sleep": sleep,
    "deaf": deaf,
    "without-pipes": without_pipes,
    "daemon": daemon,
    "background": background,
    "execute": execute,
}

if __name__ == "__main__":
    FILE, LANE, deed = sys.argv[1:4]
    WITNESS = os.open(FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    tell("start", take_lane())
    DEEDS[deed](*sys.argv[4:])
