"""Procrastinate: two asyncio workers, the measure for others on PostgreSQL."""

import os

from procrastinate import App, PsycopgConnector
from queue_peers.tally import tally, url

PACKAGE = "procrastinate"
ROOM = 10
LINES = 2 * [
    [
        *("procrastinate", "--app", "queue_peers.procrastinate.app", "--log-level", "warning", "worker"),
        *("--concurrency", str(ROOM), "--delete-jobs", "successful"),
    ]
]
SETTINGS = f"2 workers, {ROOM} tasks at once, wakes by LISTEN, tasks that are over are deleted"
LOSES = "nothing is lost, but what ran stays `doing` until a task of the user's own retries the stalled ones"
app = App(connector=PsycopgConnector(conninfo=url()))


@app.task
async def noop() -> None:
    tally(os.getpid())


async def prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def open() -> None:
    await app.open_async()


async def push() -> None:
    await noop.defer_async()


async def push_many(n: int) -> None:
    await noop.batch_defer_async(*({} for _ in range(n)))
