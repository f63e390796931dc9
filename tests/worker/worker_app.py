"""The app of worker tests: its tasks do what a message says, and report to a witness process.

A witness is a file to which each start and each end is appended, in one write each: what is there was done.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import detent

app = detent.Detent(
    os.environ["WORKER_APP"],
    store=os.environ["WORKER_STORE"],
    signing=("raw:the secret of the tests",),
    node={"keep_fires": 1_000_000, "drain_seconds": 600},  # to see them all; and how it is cut short
)
WITNESS = os.open(os.environ["WORKER_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
log = logging.getLogger("worker_app")
if "DETENT_RUN_ID" in os.environ:  # a child, and not the worker
    time.sleep(float(os.environ.get("WORKER_IMPORT_S", "0")))


def tell(what: str, fire: detent.Fire, **more: Any) -> None:
    line = {"what": what, "key": fire.key, "attempt": fire.attempt, "pid": os.getpid(), **more}
    os.write(WITNESS, json.dumps({**line, "at": time.monotonic()}).encode() + b"\n")


# What a message can ask for.


class Odd(BaseException):
    """An exception that no caller expects."""


def warden() -> int:
    return os.getppid()


def worker() -> int:
    """The process that started the warden."""
    return int(Path(f"/proc/{warden()}/stat").read_text().rpartition(")")[2].split()[1])


def kill_worker() -> None:
    os.kill(worker(), signal.SIGKILL)
    time.sleep(60)


def kill_both() -> None:
    first, second = worker(), warden()
    os.kill(first, signal.SIGKILL)
    os.kill(second, signal.SIGKILL)
    time.sleep(60)


def fork() -> str:
    return "the fork" if os.fork() == 0 else "the child"


def spawn() -> int:
    """Start a process that outlives the message."""
    return subprocess.Popen(["sleep", "1000"]).pid


def spawn_and_wait(seconds: float) -> None:
    line = {"what": "spawned", "pid": subprocess.Popen(["sleep", "1000"]).pid}
    os.write(WITNESS, json.dumps(line).encode() + b"\n")
    time.sleep(seconds)


def spoil() -> None:
    os.environ.clear()
    os.chdir("/")
    os.umask(0o777)
    sys.path.clear()


def close_streams() -> None:
    sys.stdout.close()
    sys.stderr.close()


def close_descriptors() -> None:
    os.close(1)
    os.close(2)


def write(what: str) -> None:
    print("printed", what)
    sys.stderr.write(f"errors {what}\n")
    log.info("logged %s", what)


def tell_off(error: type[BaseException], *args: Any) -> None:
    raise error(*args)


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


def give_odd(kind: str) -> Any:
    """A value that cannot be kept."""
    return {"object": object(), "long": "x" * 70_000, "nan": float("nan")}[kind]


def awaitable(seconds: float) -> Any:
    return asyncio.sleep(seconds, "awaited")


DEEDS: dict[str, Any] = {
    "nothing": lambda: None,
    "give": lambda value, *_: value,
    "give-odd": give_odd,
    "leave-thread": lambda: threading.Thread(target=time.sleep, args=(1000,), name="late").start(),
    "sleep": time.sleep,
    "exit": os._exit,
    "segfault": lambda: ctypes.string_at(0),
    "kill-child": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "kill-worker": kill_worker,
    "kill-both": kill_both,
    "sys-exit": sys.exit,
    "fail": lambda what="no such customer": tell_off(ValueError, what),
    "odd": lambda: tell_off(Odd, "out of line"),
    "interrupt": lambda: tell_off(KeyboardInterrupt),
    "fork": fork,
    "spawn": spawn,
    "spawn-and-wait": spawn_and_wait,
    "spoil": spoil,
    "close-streams": close_streams,
    "close-descriptors": close_descriptors,
    "write": write,
    "write-much": lambda: print("x" * 30_000),
    "wait-for": wait_for,
    "awaitable": awaitable,
    "around": lambda: [os.environ.get("PATH"), str(Path.cwd()), len(sys.path), os.umask(0o22)],
}


def carry_out(fire: detent.Fire, deed: str, *args: Any) -> Any:
    tell("start", fire)
    value = DEEDS[deed](*args)
    if not hasattr(value, "__await__"):
        tell("end", fire)
    return value


# Tasks: the same, with different settings.


@app.task(queue="q", max_retries=2, backoff=0.1, keep_result=True)
def quick(fire: detent.Fire, deed: str = "nothing", *args: Any) -> Any:
    return carry_out(fire, deed, *args)


@app.task(queue="q")
def noted(value: Any, word: str, fire: detent.Fire) -> None:
    tell(f"noted: {[value, word]}", fire)


@app.task(queue="q", max_retries=0)
def once(fire: detent.Fire, deed: str = "nothing", *args: Any) -> Any:
    return carry_out(fire, deed, *args)


@app.task(queue="q", max_retries=1, backoff=0.1, timeout_seconds=3)
def limited(fire: detent.Fire, deed: str = "nothing", *args: Any) -> Any:
    return carry_out(fire, deed, *args)


@app.task(queue="q", timeout_seconds=1)
def hasty(fire: detent.Fire, deed: str = "nothing", *args: Any) -> Any:
    return carry_out(fire, deed, *args)


@app.task(queue="q", max_retries=2, backoff=0.1, claim_seconds=3, keep_result=True)
def short(fire: detent.Fire, deed: str = "nothing", *args: Any) -> Any:
    return carry_out(fire, deed, *args)


@app.task(queue="q", max_retries=2, backoff=0.1, claim_seconds=3, single="one", keep_result=True)
def lone(fire: detent.Fire, deed: str = "nothing", *args: Any) -> Any:
    with Path(os.environ["WORKER_WITNESS"] + ".lane").open("a") as lane:
        fcntl.flock(lane, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel grants the lock: no other process runs
        return carry_out(fire, deed, *args)


@app.task(queue="q", single="two")
def lone_without_result(fire: detent.Fire, value: Any) -> Any:
    tell("start", fire)
    return value


@app.task(queue="q", single="three")
def lone_without_keeping(fire: detent.Fire, kind: str) -> Any:
    tell("start", fire)
    return give_odd(kind)


@app.task(queue="q", max_retries=2, backoff=0.1, isolation="thread", keep_result=True)
def threaded(fire: detent.Fire, deed: str = "nothing", *args: Any) -> Any:
    return carry_out(fire, deed, *args)


@app.task(queue="q", max_retries=2, backoff=0.1, keep_result=True)
async def give_async(kind: str) -> Any:
    return give_odd(kind)


@app.task(queue="q", max_retries=2, backoff=0.1, isolation="loop", keep_result=True)
async def give_on_loop(kind: str) -> Any:
    return give_odd(kind)


@app.task(queue="q", max_retries=1, backoff=0.1, keep_result=True)
async def nap(fire: detent.Fire, seconds: float, what: str = "") -> str:
    tell("start", fire)
    if what:
        write(what)
    await asyncio.sleep(seconds)
    if what:
        write(f"{what} again")
    tell("end", fire)
    return what


@app.task(queue="q")
async def nap_in_thread(fire: detent.Fire) -> None:
    """As SDKs and name lookups do."""
    await asyncio.to_thread(tell, "start", fire)
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


@app.task(queue="q", max_retries=0, timeout_seconds=1)
async def limited_nap(fire: detent.Fire, seconds: float, blocks: bool = False) -> None:
    tell("start", fire)
    if blocks:
        time.sleep(seconds)
    await asyncio.sleep(seconds)
    tell("end", fire)


@app.task(queue="storm", max_retries=5, backoff=0.5, claim_seconds=3)
def stormy(fire: detent.Fire, number: int) -> None:
    """Some take a while, some fail at first, and a few fail always."""
    tell("start", fire, fence=fire.fence)
    if number % 50 == 7:
        time.sleep(0.03)
    if number % 100 == 13 and fire.attempt == 1:
        raise ValueError("not yet")
    if number % 500 == 99:
        raise ValueError("never")
    tell("end", fire, fence=fire.fence)


if lacks := os.environ.get("WORKER_LACKS"):  # an older version of the app
    del app.task_functions[lacks]
