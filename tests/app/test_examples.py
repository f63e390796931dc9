"""The example app runs, also within each of its web apps, and its own tests pass."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.app.app_world import World
from tests.equipment.fleet import wait_for
from tests.equipment.redis_server import free_port

from detent.model import Query
from detent.stores.registry import open_store

EXAMPLES = Path(__file__).parents[2] / "examples" / "app"
STARTS = {
    "shop": ["python", str(EXAMPLES / "shop.py")],
    "fastapi_web": ["uvicorn", "--workers", "2", "--port", "PORT", "fastapi_web:web"],
    "flask_web": ["gunicorn", "--no-control-socket", "-w", "2", "-b", "127.0.0.1:PORT", "flask_web:web"],
}


@pytest.mark.parametrize("name", STARTS)
def test_an_example_fires_its_jobs(name: str, world: World) -> None:
    port, store = free_port(), open_store(world.store)
    world.env["PYTHONPATH"] += f":{EXAMPLES}"
    with world.running(*(word.replace("PORT", str(port)) for word in STARTS[name])):
        found = wait_for(lambda: store.find(Query(job="shop.poll-bank", state="over")), what=world.log())
        assert found[0].outcome and found[0].outcome.kind == "succeeded", found[0]
        if name != "shop":
            with urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                assert b"a web app like any other" in answer.read()
    assert store.find(Query(app="shop", state="claimed")) == []  # no process exited before its work was over
    store.close()


def test_the_tests_of_the_example_pass(world: World) -> None:
    said = world.run(
        "pytest", "--import-mode=prepend", "-p", "no:cacheprovider", "--rootdir", str(EXAMPLES), str(EXAMPLES)
    )
    assert said.returncode == 0 and "2 passed" in said.stdout, said
