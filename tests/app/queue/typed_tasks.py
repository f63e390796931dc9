"""Lines that a type checker must accept; it must refuse those that end in `# wrong`."""

from __future__ import annotations

from typing import assert_type

import detent
from detent.app.queue.handles import Handle

app = detent.Detent("typed", store="memory:")


@app.task
def bare(to: str, count: int = 1) -> int:
    return len(to) * count


@app.task(queue="mail", max_retries=3, backoff=(1, 60), keep_result=True, on_lost="rerun")
async def waiting(to: str, *, urgent: bool = False) -> list[str]:
    return [to, str(urgent)]


@app.job("@daily", args=["everybody"], enqueue=True)
@app.task(queue="mail")
def both(to: str, fire: detent.Fire | None = None) -> None: ...


@app.job("*/5 * * * *", timeout_seconds=60)
async def job() -> None: ...


async def right() -> None:
    assert_type(bare("a", 2), int)
    assert_type(bare.push("a", count=2), Handle[int])
    assert_type(bare.push("a").get(timeout=1), int)
    assert_type(await waiting("a"), list[str])
    assert_type(waiting.push("a", urgent=True), Handle[list[str]])
    assert_type(await waiting.apush("a"), Handle[list[str]])
    assert_type(await (await waiting.apush("a")).aget(), list[str])
    assert_type(
        waiting.options(delay=5, priority="high", then=bare.message("b")).push("a"), Handle[list[str]]
    )
    bare.options(then=waiting.message_with_result()).push("a")
    assert_type(bare.push_many([("a",), {"to": "b", "count": 2}]), list[Handle[int]])
    assert_type(await bare.apush_many([("a",)]), list[Handle[int]])
    both("a")
    both.push("a")
    await job()


async def wrong() -> None:
    bare.push(1)  # wrong
    bare.push()  # wrong
    bare.push("a", cuont=2)  # wrong
    await waiting.apush("a", True)  # wrong
    waiting.options(dealy=5)  # wrong
    waiting.options(priority="urgent")  # wrong
    bare.options(then=bare).push("a")  # wrong
    bare.message(7)  # wrong
    bare.push("a").get().upper()  # wrong
    app.job("@daily", timeout="60")  # wrong
    app.task(max_retires=3)  # wrong
    app.task(isolation="fork")  # wrong
