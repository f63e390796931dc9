"""RQ: two workers, with the default fork for each task, or in the worker's own process."""

import os

from queue_peers.tally import tally, url, variant
from redis import Redis
from rq import Queue

PACKAGE = "rq"
CLASSES = {"": "rq.worker.Worker", "simple": "rq.worker.SimpleWorker"}
PRELOADED = "import sys, queue_peers.rq; from rq.cli import main; main(sys.argv[1:])"  # as its docs advise
WORDS = ["worker", "--quiet", "--url", url(), "--worker-class", CLASSES[variant()], "bench"]
LINES = 2 * [["python", "-c", PRELOADED, *WORDS]]
SETTINGS = "2 × rq worker, the task's module preloaded, no results kept" + (
    ", SimpleWorker: no fork" if variant() else ""
)
LOSES = (
    "nothing is lost, but a task that ran is not run again: it goes to the failed ones, unless Retry is set"
)
queue = Queue("bench", connection=Redis.from_url(url()))


def noop() -> None:
    tally(os.getpid() if variant() else os.getppid())


def open() -> None:
    queue.connection.ping()


def push() -> None:
    queue.enqueue(noop, result_ttl=0)


def push_many(n: int) -> None:
    queue.enqueue_many([Queue.prepare_data(noop, result_ttl=0) for _ in range(n)])
