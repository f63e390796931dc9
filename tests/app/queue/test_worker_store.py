"""Pushes and locks of a task use the store of its worker, however that store was named."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from tests.app.app_world import World
from tests.equipment.fleet import wait_for
from tests.equipment.postgres_server import shared_server

from detent import Detent
from detent.model import Query

SHOP = """
import subprocess

import detent

app = detent.Detent(NAME, **STORE)
other = detent.Detent(f"{NAME}-other")


@app.task()
def leaf() -> None: ...


@other.task()
def other_leaf() -> None: ...


def nest() -> list[str]:
    key = leaf.push().key
    try:
        with app.lock("door", timeout=0):
            return [key, "the lock is free"]
    except detent.LockTimeout:
        return [key, "the lock is held"]


@app.task(keep_result=True)
def plain() -> list[str]:
    return nest()


@app.task(keep_result=True, single=True)
def single() -> list[str]:
    return nest()


@app.task(keep_result=True, isolation="thread")
def in_thread() -> list[str]:
    return nest()


@app.task(keep_result=True)
async def waiting() -> list[str]:
    return nest()


@app.task(keep_result=True)
def look_around() -> str:
    return subprocess.run(["env"], capture_output=True, text=True).stdout


@app.task(keep_result=True)
def elsewhere() -> str:
    return other_leaf.push().key


@app.job("0 0 1 1 *", work_dir="/")
def job() -> list[str]:
    return nest()

"""
NESTING = ("plain", "single", "in-thread", "waiting")
PASSWORD = "not-for-everybody"


class Shop:
    """An app whose store is named in one of several ways, and the same app in a sender."""

    def __init__(self, folder: Path, url: str, origin: str) -> None:
        self.url, self.name = url, f"shop-{secrets.token_hex(4)}"
        self.world, self.words, declared = World(folder, ""), list[str](), {}
        self.world.env = {n: v for n, v in self.world.env.items() if not n.startswith("DETENT_")}
        match origin:
            case "the environment":
                self.world.env["DETENT_STORE"] = url
            case "the option":
                self.words = ["--store", url]
            case "the app":
                declared = {"store": url}
            case "the operator's file":
                (folder / "machine.yaml").write_text(json.dumps({"store": {"url": url}}))
                self.world.env["DETENT_CONFIG"] = "machine.yaml"
        self.world.env["PYTHONPATH"] += f":{folder}"  # a job with a `work_dir` imports the module too
        self.world.write("shop.py", f"NAME, STORE = {self.name!r}, {declared!r}", SHOP)
        self.app = Detent(self.name, store=url)

    def push(self, task: str, **options: object) -> object:
        """Push a task to the store of the worker, and return its result."""

        def asked() -> None: ...

        return self.app.task(name=task, keep_result=True, **options)(asked).push().get(60)  # type: ignore[call-overload]


def postgres_url() -> str:
    return shared_server().url.replace("postgres@", f"postgres:{PASSWORD}@", 1)


ORIGINS = ("the environment", "the option", "the app", "the operator's file")


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_task_pushes_and_locks_in_the_store_of_its_worker_named_by(tmp_path: Path, origin: str) -> None:
    shop = Shop(tmp_path, postgres_url(), origin)
    with shop.world.running("detent", "worker", "shop:app", *shop.words), shop.app.lock("door"):
        for task in NESTING:
            key, lock = shop.push(task)  # type: ignore[misc]
            assert lock == "the lock is held", task
            wait_for(lambda key=key: [r for r in shop.app.open_store().find(Query(key=key)) if r.outcome])
        seen = str(shop.push("look-around"))
        assert "DETENT_RUN_ID" in seen
        assert PASSWORD not in seen and "DETENT_STORE" not in seen and "DETENT_CONFIG" not in seen
    assert not [*tmp_path.rglob("detent.db")], "nothing is kept in a store of this host"


def test_another_app_in_the_same_process_finds_the_store_of_the_environment(tmp_path: Path) -> None:
    shop = Shop(tmp_path, postgres_url(), "the environment")
    with shop.world.running("detent", "worker", "shop:app"):
        (row,) = shop.app.open_store().find(Query(key=str(shop.push("elsewhere"))))
    assert row.fire.job == f"{shop.name}-other.other-leaf"


@pytest.mark.parametrize("verb", ["run", "trigger"])
def test_a_job_with_a_directory_of_its_own_finds_a_file_that_is_named_from_the_nodes(
    tmp_path: Path, verb: str
) -> None:
    shop = Shop(tmp_path, "sqlite:///shop.db", "the option")
    whole = Detent(shop.name, store=f"sqlite:///{tmp_path / 'shop.db'}")
    if verb == "run":
        with shop.world.running("detent", "run", "-f", "shop:app", *shop.words):
            wait_for(lambda: (tmp_path / "shop.db").exists())
            fired = shop.world.run("detent", "fire", "job", "--wait", "--file", "shop:app", *shop.words)
        assert fired.returncode == 0, fired.stderr
    else:
        words = ["-f", "shop:app", "--due", "2026-01-01T00:00Z", *shop.words]
        fired = shop.world.run("detent", "trigger", f"{shop.name}.job", *words)
        assert fired.returncode == 0, fired.stderr
    (row,) = whole.open_store().find(Query(app=shop.name, job=f"{shop.name}.leaf"))
    assert row.fire.origin == "push"
