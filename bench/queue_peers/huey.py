"""Huey: two consumers with threads."""

import os

from huey import RedisHuey
from queue_peers.tally import tally, url

PACKAGE = "huey"
THREADS = 4
LINES = 2 * [["huey_consumer", "queue_peers.huey.huey", "-q", "-k", "thread", "-w", str(THREADS), "-n"]]
SETTINGS = f"2 × huey_consumer, {THREADS} threads, RedisHuey, no results kept"
LOSES = "the tasks that run are lost: a task has left the queue (BRPOP) when it begins"
huey = RedisHuey("bench", url=url(), results=False)


@huey.task()
def noop() -> None:
    tally(os.getpid())


def open() -> None:
    huey.storage.conn.ping()


def push() -> None:
    noop()
