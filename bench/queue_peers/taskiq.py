"""taskiq: two asyncio processes, on a stream with acknowledgements or, as a variant, on a list without."""

import os

from queue_peers.tally import tally, url, variant
from taskiq_redis import ListQueueBroker, RedisStreamBroker

PACKAGE = "taskiq"
LINES = [["taskiq", "worker", "queue_peers.taskiq:broker", "--workers", "2", "--log-level", "WARNING"]]
SETTINGS = f"--workers 2, 100 tasks at once, {'ListQueueBroker' if variant() else 'RedisStreamBroker'}"
LOSES = (
    "the tasks that run, and those that were fetched, are lost: a list has no acknowledgement"
    if variant()
    else "nothing: what was not acknowledged is read again after ten minutes"
)
# without a timeout: newer redis-py has one of 5 s, on which its idle BRPOP fails
broker = ListQueueBroker(url(), socket_timeout=None) if variant() else RedisStreamBroker(url())


@broker.task
async def noop() -> None:
    tally(os.getpid())


async def open() -> None:
    await broker.startup()


async def push() -> None:
    await noop.kiq()
