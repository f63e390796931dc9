"""A node within a web process: each instant fires once, however the server forks and kills processes."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.app.app_world import APP, EVERY_SECOND, Tick, World
from tests.equipment.fleet import PATIENCE_S, wait_for
from tests.equipment.redis_server import RedisServer, free_port

from detent.loading import module_app
from detent.model import Query, Row
from detent.stores.registry import open_store
from detent.views.nodes import live_nodes

INSTANTS = int(os.environ.get("DETENT_TEST_INSTANTS", "5"))  # 60 for the long form
WSGI = """

app.start()


def wsgi(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]
"""
SLOW = """
import time

@app.job("* * * * * *", claim_seconds=600)
def slow(fire: detent.Fire) -> None:
    note(f"start {fire.key}")
    while not os.path.exists("over"):
        time.sleep(0.05)
    note(f"end {fire.key}")
"""
WAIT = """
import signal
signal.sigwait([signal.SIGTERM])
"""


def gunicorn(*words: str) -> list[str]:
    place = f"127.0.0.1:{free_port()}"
    return ["gunicorn", "-b", place, "--no-control-socket", *words, "shop:wsgi"]


def keys_in_between(ticks: list[Tick]) -> list[str]:
    """The instants from the first to the last of these."""
    first, last = (datetime.fromisoformat(one.what.partition("@")[2]) for one in (ticks[0], ticks[-1]))
    count = int((last - first).total_seconds()) + 1
    return [f"shop.tick@{first + timedelta(seconds=i):%Y-%m-%dT%H:%M:%SZ}" for i in range(count)]


def rows(world: World, **query: str) -> list[Row]:
    store = open_store(world.store)
    try:
        return store.find(Query(app="shop", limit=1000, **query))  # type: ignore[arg-type]
    finally:
        store.close()


def check_each_instant_is_launched_once(world: World, count: int, *words: str) -> None:
    store = open_store(world.store)
    with world.running(*gunicorn("-w", str(count), *words)) as server:
        wait_for(lambda: len(live_nodes(store, "shop")) == count, 2 * PATIENCE_S, f"{count} nodes")
        before = len(world.ticks())
        ticks = sorted(world.wait_ticks(before + INSTANTS, INSTANTS + PATIENCE_S))
        assert [tick.what for tick in ticks] == keys_in_between(ticks)
        workers = {node.pid for node in live_nodes(store, "shop")}
        assert {tick.pid for tick in ticks} <= workers and server.pid not in workers
        doctor = world.run("detent", "doctor", "--file", "shop:app").stdout
        assert "weak  embedded nodes" in doctor and "their work cannot be killed" in " ".join(doctor.split())
    assert "internal-error" not in world.log()
    assert live_nodes(store, "shop") == []  # each has removed its heartbeat
    store.close()


def test_eight_workers_of_gunicorn_launch_each_instant_once_on_sqlite(world: World) -> None:
    world.write("shop.py", APP, EVERY_SECOND, WSGI)
    check_each_instant_is_launched_once(world, 8)


def test_workers_that_are_forked_after_the_app_was_loaded_do_on_redis(
    tmp_path: Path, app_redis: RedisServer
) -> None:
    app_redis.call("FLUSHALL")
    world = World(tmp_path, app_redis.url)
    world.write("shop.py", APP, EVERY_SECOND, WSGI)
    check_each_instant_is_launched_once(world, 3, "--preload")


def test_a_fire_of_a_killed_process_is_settled_by_another_before_its_claim_expires(world: World) -> None:
    """The claim lasts ten minutes, but the death of the process is detected at once."""
    world.write("shop.py", APP, SLOW, "\napp.start()", WAIT)
    with world.running("python", "shop.py") as first:
        (tick,) = world.wait_ticks(1)
        with world.running("python", "shop.py"):
            first.send_signal(signal.SIGKILL)
            first.wait(PATIENCE_S)
            key = tick.what.removeprefix("start ")
            wait_for(lambda: any(row.fire.key == key for row in rows(world, state="over")), what="its end")
            (row,) = rows(world, key=key)
            assert row.outcome and row.outcome.kind == "lost"
            wait_for(lambda: len(world.ticks()) > 1, what="the next fire")
            (world.folder / "over").touch()
    assert f"end {key}" not in [tick.what for tick in world.ticks()]


def test_a_program_waits_for_its_work_before_it_exits(world: World) -> None:
    end = "\nimport threading\nthreading.Timer(0.5, lambda: open('over', 'w')).start()\n"
    waits = "\napp.start()\nwhile not os.path.exists(os.environ['TICKS']):\n    time.sleep(0.01)\n"
    world.write("shop.py", APP, SLOW, waits, end)
    assert world.run("python", "shop.py").returncode == 0
    (row,) = [row for row in rows(world, state="over") if row.outcome and row.outcome.kind == "succeeded"]
    assert [tick.what for tick in world.ticks()][:2] == [f"start {row.fire.key}", f"end {row.fire.key}"]
    # A new store is not taken for one that lost data, which would grant nothing for 30 s.
    assert row.claimed_at and row.claimed_at - row.fire.due_at < timedelta(seconds=20)


def forking(how: str) -> str:
    return f"""
import signal
import threading
import multiprocessing

def child() -> None:
    note("child")
    signal.pause()

app.start()
if {how == "fork"}:
    pid = os.fork()
    if pid == 0:
        child()
else:
    process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
    process.start()
    pid = process.pid
signal.sigwait([signal.SIGTERM])
os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["fork", "multiprocessing"])
def test_a_forked_child_runs_the_jobs_and_one_of_multiprocessing_does_not(world: World, how: str) -> None:
    world.write("shop.py", APP, EVERY_SECOND, forking(how))
    with world.running("python", "shop.py") as parent:
        ticks = world.wait_ticks(4)
        (child,) = {tick.pid for tick in ticks if tick.what == "child"}
        runs = {tick.pid for tick in ticks if tick.what != "child"}
        assert runs == ({child} if how == "fork" else {parent.pid})
        (alive,) = live_nodes(open_store(world.store), "shop")
        assert alive.pid in runs


def test_jobs_that_need_a_process_are_refused_where_they_are_declared(world: World) -> None:
    for said in ('isolation="process"', 'work_dir="/"', 'on_failure="echo failed"'):
        job = f'\n@app.job("@hourly", {said})\ndef job() -> None: ...\n\napp.start()\n'
        world.write("shop.py", APP, job)
        stderr = world.run("python", "shop.py").stderr
        assert "shop.py:15: job needs a process of its own" in stderr, stderr


def test_work_that_outlives_its_node_keeps_its_lane_until_it_has_ended(world: World) -> None:
    """The node waits at most `drain_seconds` for it; the next node waits until it has ended."""
    again = """
app._settings["node"] = {"drain_seconds": 0}
app.start()
while not os.path.exists(os.environ["TICKS"]):
    time.sleep(0.01)
app.stop()
app.start()
signal.sigwait([signal.SIGTERM])
"""
    world.write("shop.py", APP, "import signal", SLOW.replace("600", "2"), again)
    with world.running("python", "shop.py"):
        world.wait_ticks(1)
        wait_for(lambda: len(live_nodes(open_store(world.store), "shop")) == 1, what="the second node")
        held_back = "a process of an earlier fire still runs on this host"
        wait_for(
            lambda: [row for row in rows(world) if row.outcome and held_back in row.outcome.reason],
            what="a fire that is held back",
        )
        assert len(world.ticks()) == 1
        (world.folder / "over").touch()
        wait_for(lambda: len(world.ticks()) >= 4, what="the next fires")
    started, ended = [tick.what for tick in world.ticks()[:2]]
    assert started.removeprefix("start") == ended.removeprefix("end")


def test_events_appear_in_the_log_of_the_host_program_at_its_own_level(world: World) -> None:
    check = """
import logging, time
logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
app.start()
while not os.path.exists(os.environ["TICKS"]):
    time.sleep(0.01)
app.stop()
app.stop()
assert logging.getLogger().level == logging.WARNING
logging.getLogger("detent").setLevel("INFO")
app.start()
time.sleep(0)
app.stop()
"""
    world.write("shop.py", APP, EVERY_SECOND, check)
    said = world.run("python", "shop.py")
    assert (said.returncode, said.stderr) == (0, ""), said


def test_an_absent_store_is_reported_once_and_awaited(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis")
    server.end()
    world = World(tmp_path, server.url)
    world.write("shop.py", APP, EVERY_SECOND, "\nimport logging\nlogging.basicConfig()\napp.start()", WAIT)
    with world.running("python", "shop.py"):
        wait_for(lambda: "store-unavailable" in world.log(), what="the event")
        server.start()
        world.wait_ticks(2)
    assert world.log().count("store-unavailable") == 1
    server.end()


# Messages.

TASKS = """

@app.task(queue="mail", keep_result=True, max_retries=1, backoff=0)
def send(fire: detent.Fire, to: str) -> list[object]:
    note(f"{to} {fire.attempt}")
    if to == "flaky" and fire.attempt == 1:
        raise ValueError("not yet")
    return [to, os.getpid()]


@app.task(queue="mail", keep_result=True)
async def wait(to: str) -> str:
    return to


@app.task(queue="mail", keep_result=True, single=True)
def alone(to: str) -> str:
    return to


@app.task(queue="reports")
def report() -> None:
    note("report")


app.allow("odd", command=True)
"""
SERVES_MAIL = WSGI.replace("app.start()", 'app.start(queues=["mail", "default"])')


def import_shop(world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The app in a sender."""
    monkeypatch.setenv("STORE", world.store)
    monkeypatch.setenv("TICKS", world.env["TICKS"])
    monkeypatch.setattr(module_app, "is_reading_apps", True)
    spec = importlib.util.spec_from_file_location("shop", world.folder / "shop.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shop", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("any_world", ["postgresql"], indirect=True)
def test_messages_of_the_queues_that_start_names_are_served_in_the_processes_of_gunicorn(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = any_world
    world.write(
        "shop.py", APP.replace('"shop"', f'"{(name := f"shop-{secrets.token_hex(4)}")}"'), TASKS, SERVES_MAIL
    )
    shop, store = import_shop(world, monkeypatch), open_store(world.store)
    unserved = shop.report.push()
    handles = [shop.send.push(str(n)) for n in range(20)] + [shop.send.push("flaky")]
    with world.running(*gunicorn("-w", "2")):
        wait_for(lambda: len(live_nodes(store, name)) == 2, 2 * PATIENCE_S, "two nodes")
        handles += [shop.send.push(str(n)) for n in range(20, 40)]
        results = [handle.get(PATIENCE_S) for handle in handles]
        assert {pid for _, pid in results} <= {node.pid for node in live_nodes(store, name)}
        others = [task.push("x") for task in (shop.wait, shop.alone)]
        assert [handle.get(PATIENCE_S) for handle in others] == ["x"] * 2
    whats = sorted(tick.what for tick in world.ticks())
    assert whats == sorted([*(f"{n} 1" for n in range(40)), "flaky 1", "flaky 2"]), "each once"
    assert unserved.state() == "pending", "its queue was not named"
    store.close()


def test_a_lifespan_serves_the_queues_that_it_is_given(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with_mail = "import functools\nserving = functools.partial(app.lifespan, queues=['mail'])\n"
    asgi = "from starlette.applications import Starlette\nasgi = Starlette(lifespan=serving)\n"
    world.write("shop.py", APP, TASKS, with_mail, asgi)
    shop = import_shop(world, monkeypatch)
    with world.running("uvicorn", "shop:asgi", "--port", str(free_port())):
        assert shop.send.push("a").get(PATIENCE_S)[0] == "a"


def test_start_without_queues_serves_no_messages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = '\n@app.task()\ndef plain() -> None:\n    note("plain")\n'
    world.write("shop.py", APP, EVERY_SECOND, plain, WSGI)
    shop = import_shop(world, monkeypatch)
    handle = shop.plain.push()
    with world.running(*gunicorn("-w", "1")):
        world.wait_ticks(2)
    assert handle.state() in ("pending", "delayed"), "it may have been claimed once, and given back"


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("mial", 'no task and no job of "shop" uses queue "mial"; did you mean "mail"?'),
        ("odd", 'queue "odd": app.allow lets its messages run commands, and app.start(queues=…) runs'),
        (
            "heavy",
            'task "heavy" needs a process of its own (isolation="process"), and app.start(queues=…)',
        ),
    ],
)
def test_queues_that_cannot_be_served_there_are_refused(world: World, queue: str, said: str) -> None:
    heavy = '\n@app.task(queue="heavy", isolation="process")\ndef heavy() -> None: ...\n'
    world.write("shop.py", APP, TASKS, heavy, f"app.start(queues=[{queue!r}])")
    assert said in world.run("python", "shop.py").stderr
