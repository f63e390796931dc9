"""Runs one fire through a node on each store, and compares its path with the tables in ARCHITECTURE.md."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from tests.equipment.postgres_server import new_name, shared_server
from tests.equipment.redis_server import RedisServer
from tests.test_tidy import LAYERS

from detent import clock
from detent.model import Claim, Command, End, Job, Outcome, Policy, Work
from detent.node.node import Node
from detent.node.ports import Ports, Tuning
from detent.schedules.timetable import parse_schedule
from detent.stores.base import Store
from detent.stores.memory.store import MemoryStore
from detent.stores.postgres.store import PostgresStore
from detent.stores.redis.store import RedisStore
from detent.stores.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/detent"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
APP, TRACE = "shop", "trace"
FIRE_S = 20.0  # a fire is due every second; a busy machine may take longer
DRIVER = "driver"  # in a table: a look or a commit of the store's driver


class Step(NamedTuple):
    """A function on the path of a fire, as a table names it."""

    file: str
    function: str


def steps_of(cell: str) -> list[Step]:
    return [Step(*found) for found in re.findall(r"`([\w/]+\.py)` `(\w+)`", cell)]


def rows_below(heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by their first cell."""
    table = PAGE.partition(f"\n## {heading}\n")[2].partition("\n\n| ")[2].partition("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]
    return {first: rest for first, *rest in rows}


HOPS = rows_below("The path of one fire")
INSIDE = rows_below("Inside the store")


def path_on(store: str) -> list[Step]:
    """The hops.  A commit of the driver comes after the engine's part; before a decision comes a look."""
    look, commit = map(steps_of, INSIDE[store])
    path: list[Step] = []
    for cells in HOPS.values():
        parts = re.split(rf" → {DRIVER}\b", cells[-1])
        for number, part in enumerate(parts):
            path += steps_of(part)
            if number + 1 < len(parts):
                path += commit if number + 2 == len(parts) else look
    return path


def is_on_the_way(path: Sequence[Step], trace: Sequence[Step]) -> bool:
    """Were these functions called in this order, whatever was called between them?"""
    rest = iter(trace)
    return all(step in rest for step in path)


# One fire.


class Finished:
    """Work that succeeds at once."""

    def __init__(self) -> None:
        self.gone: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self.gone.set_result(End(Outcome("succeeded")))

    def extend(self, trusted_by: float) -> None: ...

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None: ...


class Starter:
    def start(self, work: Work, claim: Claim, trusted_by: float) -> Finished:
        return Finished()


async def inline(line: str, call: Callable[..., Any], *args: Any) -> Any:
    """Makes a call of the store in this thread, where it is traced."""
    return call(*args)


async def run_one_fire(store: Store) -> None:
    tasks, succeeded = list[asyncio.Task[None]](), asyncio.Event()

    def emit(event: str, **_: object) -> None:
        if event == "success":
            succeeded.set()

    def spawn(step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.append(asyncio.ensure_future(step))
        return tasks[-1]

    ports = Ports(
        store=store,
        starter=Starter(),
        offload=inline,  # type: ignore[arg-type]
        spawn=spawn,
        monotonic=clock.boottime,
        rng=Random(1),
        emit=emit,
    )
    name = f"{APP}.sync"
    job = Job(name, parse_schedule("@every 1s"), Command(("/bin/true",)), Policy("Forbid"), revision="1")
    spawn(Node("node-1", APP, {name: job}, ports, Tuning()).run())
    await asyncio.wait_for(succeeded.wait(), FIRE_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def traced(trace: list[Step]) -> Iterator[None]:
    """Notes each call of a function of detent in this thread."""
    below = f"{SOURCE}/"

    def note(frame: Any, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(below):
            trace.append(Step(file.removeprefix(below), frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


def trace_of(store: Store) -> list[Step]:
    trace: list[Step] = []
    with traced(trace), closing(store):
        asyncio.run(run_one_fire(store))
    return trace


# The stores.


def test_a_fire_on_redis_takes_this_path(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    try:
        check("Redis", trace_of(RedisStore(server.url)))
    finally:
        server.end()


def test_a_fire_on_postgresql_takes_this_path() -> None:
    check("PostgreSQL", trace_of(PostgresStore(shared_server().url, new_name())))


def test_a_fire_on_sqlite_takes_this_path(tmp_path: Path) -> None:
    check("SQLite", trace_of(SqliteStore(tmp_path / "detent.db")))


def test_a_fire_in_memory_takes_this_path() -> None:
    check("memory", trace_of(MemoryStore(clock.wall, clock.boottime)))


def check(store: str, trace: Sequence[Step]) -> None:
    path = path_on(store)
    assert len(path) >= 20
    assert [step for step in path if step not in trace] == []
    assert is_on_the_way(path, trace), f"these were called in another order: {path}"


# The picture and the tables.


def test_the_picture_shows_every_package_in_the_order_of_the_layers() -> None:
    picture = PAGE.partition("\n## The packages\n")[2].split("```")[1]
    layers = reversed(picture.split("---\n"))  # the lowest first
    first_words = re.compile(r"(?:^ |  )(\w+)", re.MULTILINE)  # of each column
    shown = [first_words.findall(layer) for layer in layers]
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    drawn = [[name for name in LAYERS if name in part and name in packages] for part in shown]
    assert sorted(name for part in drawn for name in part) == sorted(packages)
    assert [name for part in drawn for name in part] == [name for name in LAYERS if name in packages]


@pytest.mark.parametrize("store", INSIDE)
def test_every_function_that_the_tables_name_is_defined_in_its_file(store: str) -> None:
    for step in path_on(store):
        assert re.search(
            rf"^ *(?:async )?def {step.function}\(", (SOURCE / step.file).read_text(), re.MULTILINE
        ), step


def test_a_path_in_another_order_or_with_another_function_is_found() -> None:
    trace = [Step("a.py", "one"), Step("b.py", "two"), Step("c.py", "three")]
    assert is_on_the_way(trace[::2], trace)
    assert not is_on_the_way(trace[::-1], trace)
    assert not is_on_the_way([Step("a.py", "four")], trace)
