"""The examples do what they say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.app.app_world import World
from tests.equipment.fleet import wait_for

EXAMPLES = Path(__file__).parents[3] / "examples" / "tasks"


@pytest.fixture
def shop(tmp_path: Path) -> World:
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, tmp_path)
    world = World(tmp_path, "")
    del world.env["STORE"]
    return world


def test_the_tests_of_the_example_pass(shop: World) -> None:
    said = shop.run("pytest", "-q", "-p", "no:cacheprovider", "test_shop_tasks.py")
    assert said.returncode == 0 and "2 passed" in said.stdout, said.stdout


def test_a_pushed_message_is_run_by_the_worker_and_audited(shop: World) -> None:
    with shop.running("detent", "worker", "shop:app", "--concurrency", "2"):
        said = shop.run("python", "push.py")
        assert "is new\nreturned 10\n" in said.stdout, said.stderr
        assert "was there already\nreturned 10\n" in shop.run("python", "push.py").stdout
        wait_for(lambda: '"pending": 0' in shop.run("detent", "queue", "shop:app", "ls", "-o", "json").stdout)
