"""Tasks in a worker's processes: found by name, called as declared, their errors distinguished."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.app_world import World
from tests.equipment.fleet import wait_for

from detent import Detent, TaskFailed
from detent.model import Query

SHOP = """
import detent

app = detent.Detent("shop", store="sqlite:///shop.db", signing=("env:SHOP_MESSAGES",))


@app.task(keep_result=True)
def plain(to: str, fire: detent.Fire) -> list[str]:
    return [to, fire.key]


@app.task(keep_result=True)
async def waiting(to: str) -> str:
    return to


@app.task(keep_result=True, isolation="loop")
async def on_loop(to: str) -> str:
    return to


@app.task(keep_result=True, isolation="thread")
def in_thread(to: str) -> str:
    return to


@app.task(keep_result=True)
def pushing(to: str) -> str:
    return plain.push(to).key


@app.task(breaker="smtp", breaker_threshold=1, keep_result=True)
def broken() -> None:
    raise detent.BackendError("no answer")


@app.task(keep_result=True)
def failing() -> None:
    raise ValueError("no such customer")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Detent]:
    """The app, for whose tasks a worker runs."""
    monkeypatch.setenv("SHOP_MESSAGES", "a secret")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    world = World(tmp_path, "")
    world.write("tasks_shop.py", SHOP)
    import tasks_shop  # type: ignore[import-not-found]

    with world.running("detent", "worker", "tasks_shop:app", "--concurrency", "2"):
        yield tasks_shop.app
    del sys.modules["tasks_shop"]


def test_a_worker_runs_tasks_of_every_kind(shop: Detent) -> None:
    tasks = {name: shop.task_named(name) for name in shop.tasks()}
    simple = [tasks[name].push("a") for name in ("waiting", "on-loop", "in-thread")]
    plain, pushing = tasks["plain"].push("b"), tasks["pushing"].push("c")
    assert [handle.get(30) for handle in simple] == ["a", "a", "a"]
    assert plain.get(30) == ["b", plain.key]
    inner = pushing.get(30)
    wait_for(lambda: [one for one in shop.open_store().find(Query(key=inner)) if one.state == "over"])
    (row,) = shop.open_store().find(Query(key=inner))
    assert row.attempts[-1].result == f'["c", "{inner}"]'


def test_a_backend_error_in_a_child_opens_the_breaker_and_another_does_not(shop: Detent) -> None:
    failures = {
        "failing": ("ValueError: no such customer", "work"),
        "broken": ("BackendError: no answer", "backend"),
    }
    for name, (reason, cause) in failures.items():
        with pytest.raises(TaskFailed) as caught:
            shop.task_named(name).push().get(30)
        assert (caught.value.outcome, caught.value.reason, caught.value.cause) == ("failed", reason, cause)
    assert shop.breaker("smtp").state() == "open"
    (row,) = (one for one in shop.queue("default").dead() if one.task == "broken")
    (whole,) = shop.open_store().find(Query(key=row.key))
    traceback = whole.attempts[-1].tail.decode()
    assert "tasks_shop.py" in traceback and "app/queue" not in traceback
