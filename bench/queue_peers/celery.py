"""Celery on Redis: a prefork pool of two processes, with prefetch."""

import os

from celery import Celery
from queue_peers.tally import tally, url

PACKAGE = "celery"
PREFETCH = 64
LINES = [
    [
        *("celery", "--app", "queue_peers.celery", "worker", "--pool", "prefork", "--concurrency", "2"),
        *("--prefetch-multiplier", str(PREFETCH), "--loglevel", "WARNING", "--without-gossip"),
        *("--without-mingle", "--without-heartbeat"),
    ]
]
SETTINGS = f"prefork -c 2, prefetch {PREFETCH} × 2, -Ofair as it comes, results ignored, no gossip or mingle"
LOSES = "the tasks that run are lost (acks_late is off); what was prefetched comes back after an hour"
app = Celery("bench", broker=url())
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)


@app.task
def noop() -> None:
    tally(os.getpid())


def open() -> None:
    app.connection_for_write().ensure_connection()


def push() -> None:
    noop.delay()
