"""Threads for calls: one each, kept for the next, and not for long."""

from __future__ import annotations

import os
import queue
import threading
import time

from detent.runners.call.threads import Act, Threads, threads

PATIENCE_S = 60.0


def idents(pool: Threads, count: int) -> set[int]:
    """Return the threads of this many concurrent calls."""
    barrier, seen = threading.Barrier(count), queue.SimpleQueue[int]()

    def call() -> None:
        barrier.wait(PATIENCE_S)
        seen.put(threading.get_ident())

    for _ in range(count):
        pool.run(call)
    return {seen.get(timeout=PATIENCE_S) for _ in range(count)}


def settle(pool: Threads, idle: int) -> None:
    """Wait until this many threads are idle; there is no event for that."""
    give_up_at = time.monotonic() + PATIENCE_S
    while pool._idle != idle:
        assert time.monotonic() < give_up_at, f"{pool._idle} are idle, and not {idle}"
        time.sleep(0.001)


def test_concurrent_calls_have_a_thread_each_and_later_calls_reuse_them() -> None:
    pool = Threads()
    first = idents(pool, 3)
    assert len(first) == 3
    settle(pool, 3)
    assert idents(pool, 3) == first
    settle(pool, 3)
    assert len(idents(pool, 5) - first) == 2


def test_an_idle_thread_ends() -> None:
    pool, ended = Threads(idle_s=0.01), queue.SimpleQueue[threading.Thread]()
    pool.run(lambda: ended.put(threading.current_thread()))
    thread = ended.get(timeout=PATIENCE_S)
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and pool._idle == 0


class Impatient:
    """Calls that arrive just after the idle timeout of a thread."""

    def __init__(self) -> None:
        self.calls, self.has_come = queue.SimpleQueue[Act](), threading.Event()

    def put(self, call: Act) -> None:
        self.calls.put(call)
        self.has_come.set()

    def get(self, timeout: float | None = None) -> Act:
        if timeout is not None:
            self.has_come.wait(PATIENCE_S)
            raise queue.Empty
        return self.calls.get()


def test_a_thread_for_which_a_call_is_on_its_way_does_not_end() -> None:
    pool, called = Threads(), queue.SimpleQueue[int]()
    pool._calls = Impatient()  # type: ignore[assignment]
    for number in range(2):
        pool.run(lambda number=number: called.put(number))  # type: ignore[misc]
        assert called.get(timeout=PATIENCE_S) == number
        settle(pool, 1 - number)


def test_no_call_is_left_to_a_thread_that_is_about_to_end() -> None:
    pool, called = Threads(idle_s=0.0), queue.SimpleQueue[int]()
    for number in range(5_000):
        pool.run(lambda number=number: called.put(number))  # type: ignore[misc]
        if number % 3 == 0:
            called.put(called.get(timeout=PATIENCE_S))  # so that there are idle ones, now and then
    assert {called.get(timeout=PATIENCE_S) for _ in range(5_000)} == set(range(5_000))


def test_a_call_that_raises_ends_only_its_own_thread() -> None:
    pool, errors = Threads(), queue.SimpleQueue[str]()
    before, threading.excepthook = threading.excepthook, lambda found: errors.put(str(found.exc_value))

    def fail() -> None:
        raise ValueError("no such customer")

    try:
        pool.run(fail)
        assert errors.get(timeout=PATIENCE_S) == "no such customer"
    finally:
        threading.excepthook = before
    assert len(idents(pool, 2)) == 2


def test_a_fork_has_threads_of_its_own() -> None:
    idents(threads(), 1)
    settle(threads(), threads()._idle or 1)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if len(idents(threads(), 2)) == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
