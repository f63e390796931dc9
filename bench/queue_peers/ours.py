"""detent: two workers with a process each.  Variants: two workers with threads or a loop, and two processes
whose threads claim and acknowledge one message at a time by hand.
"""

import os
import threading

from queue_peers.tally import tally, url, variant

from detent import Detent

PACKAGE = "detent"
ROOM = 8
WORKER = ["python", "-m", "detent", "worker", "queue_peers.ours:app", "--concurrency", str(ROOM)]


def by_hand(threads: int) -> list[str]:
    return ["python", "-c", f"from queue_peers.ours import work_singly; work_singly({threads})"]


WAYS = {
    "": (2 * [[*WORKER, "--processes", "1"]], f"2 workers, --processes 1 --concurrency {ROOM}"),
    "thread": (2 * [WORKER], f"2 workers, isolation thread, --concurrency {ROOM}"),
    "loop": (2 * [WORKER], f"2 workers, isolation loop, --concurrency {ROOM}"),
    "singly": (2 * [by_hand(ROOM)], f"2 processes × {ROOM} threads that claim 1, run it and acknowledge it"),
    "alone": (2 * [by_hand(1)], "2 processes that claim 1, run it and acknowledge it"),
}
LINES, SETTINGS = WAYS[variant()]
LOSES = "nothing: what was claimed is claimed again when its claim has expired, which counts as an attempt"
WAIT_S = 5.0
app = Detent("bench", store=url())


def count() -> None:
    tally(os.getpid())


async def count_in_loop() -> None:
    tally(os.getpid())


options = {"name": "noop", "max_retries": 3}
if variant() == "loop":
    noop = app.task(isolation="loop", **options)(count_in_loop)
else:
    noop = app.task(isolation="thread" if variant() == "thread" else "process", **options)(count)
count = count_in_loop = noop  # as a decorator would leave them


def open() -> None:
    app.queue("default").size()


def push() -> None:
    noop.push()


def push_many(n: int) -> None:
    noop.push_many([()] * n)


def work_singly(threads: int) -> None:
    for _ in range(threads - 1):
        threading.Thread(target=work_on, daemon=True).start()
    work_on()


def work_on() -> None:
    queue, done = app.queue("default"), []
    while True:
        done = queue.claim(1, wait_seconds=WAIT_S, done=done)
        for _ in done:
            noop()
