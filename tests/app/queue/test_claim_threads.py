"""Threads and forked processes that claim without a worker: each message goes to one of them."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from detent import Detent
from detent.stores.memory.store import MemoryStore

PATIENCE_S = 20.0


def test_threads_that_claim_get_each_message_once(shop: Detent) -> None:
    @shop.task(name="noop", queue="mail")
    def noop(number: int) -> None: ...

    noop.push_many([(number,) for number in range(120)])
    queue, seen = shop.queue("mail"), list[Any]()

    def work(uses_done: bool) -> None:
        done = queue.claim(1)
        while done:
            seen.extend(one.args[0] for one in done)
            if not uses_done:
                done[0].ack()
            done = queue.claim(1, done=done if uses_done else ())
        assert not any(one.is_lost for one in done)

    with ThreadPoolExecutor(8) as threads:
        for one in [threads.submit(work, place % 2 == 0) for place in range(8)]:
            one.result(PATIENCE_S * 3)
    assert sorted(seen) == list(range(120))
    assert not any(queue.size())


def test_after_a_fork_parent_and_child_claim_different_messages(shop: Detent) -> None:
    @shop.task(name="noop", queue="mail")
    def noop(number: int) -> None: ...

    noop.push_many([(number,) for number in range(3)])
    queue = shop.queue("mail")
    queue.claim(1)
    pid = os.fork()
    if not pid:
        signal.alarm(int(PATIENCE_S))
        os._exit(queue.claim(1)[0].args[0])
    of_child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    is_shared = not isinstance(shop.open_store(), MemoryStore)
    assert of_child == 1
    assert queue.claim(1)[0].args == ([2] if is_shared else [1])
