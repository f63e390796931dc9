"""arq: two asyncio workers that poll."""

import os

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from queue_peers.tally import tally, url

PACKAGE = "arq"
ROOM = 100
LINES = 2 * [
    ["python", "-c", "from arq import run_worker; from queue_peers.arq import Worker; run_worker(Worker)"]
]
SETTINGS = f"2 workers, max_jobs {ROOM}, polls every 0.5 s as it comes, no results kept"
LOSES = "nothing: a task stays in its queue until it is over, and is run again after its timeout and 10 s"
pool: ArqRedis


async def noop(context: object) -> None:
    tally(os.getpid())


class Worker:
    functions = (noop,)
    redis_settings = RedisSettings.from_dsn(url())
    max_jobs = ROOM
    keep_result = 0


async def open() -> None:
    global pool
    pool = await create_pool(Worker.redis_settings)


async def push() -> None:
    await pool.enqueue_job("noop")
