"""Dramatiq on Redis: two processes of eight threads, the measure for the others on Redis."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from queue_peers.tally import tally, url

PACKAGE = "dramatiq"
LINES = [["dramatiq", "queue_peers.dramatiq", "--processes", "2", "--threads", "8"]]
SETTINGS = "2 processes × 8 threads, its middleware as it comes"
LOSES = "nothing: what was not acknowledged is queued again, a minute after the worker's last heartbeat"
broker = RedisBroker(url=url())
dramatiq.set_broker(broker)


@dramatiq.actor
def noop() -> None:
    tally(os.getpid())


def open() -> None:
    broker.client.ping()


def push() -> None:
    noop.send()
