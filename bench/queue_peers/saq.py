"""SAQ: two asyncio processes."""

import os

from queue_peers.tally import tally, url
from saq import Queue

PACKAGE = "saq"
ROOM = 10
LINES = [["saq", "queue_peers.saq.settings", "--workers", "2"]]
SETTINGS = f"--workers 2, {ROOM} tasks at once as it comes, no results kept"
LOSES = "the tasks that run are aborted by the next sweep: with its default of one try they are not run again"
queue = Queue.from_url(url())


async def noop(context: object) -> None:
    tally(os.getpid())


settings = {"queue": queue, "functions": [noop], "concurrency": ROOM}


async def open() -> None:
    await queue.connect()


async def push() -> None:
    await queue.enqueue("noop", ttl=-1)
