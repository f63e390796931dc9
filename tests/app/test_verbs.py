"""An app in code in place of a manifest: `detent VERB module:app`."""

from __future__ import annotations

import json
import signal

import pytest
from tests.app.app_world import APP, EVERY_SECOND, World
from tests.equipment.fleet import wait_for

HOURLY = """

@app.job("0 * * * *", timezone="Europe/Berlin", description="by the hour")
async def report() -> str:
    return "done"
"""


@pytest.fixture
def shop(world: World) -> World:
    world.write("shop.py", APP, EVERY_SECOND, HOURLY)
    return world


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["validate", "-f", "shop:app"], "ok: shop:app: app shop, 2 jobs"),
        (["list", "--file", "shop:app"], "0 * * * * Europe/Berlin"),
        (["next", "--file", "shop:app", "report"], "report"),
        (["show", "-f", "shop:app"], "call"),
        (["show", "report", "--file", "shop:app"], "shop:report"),
        (["why", "report", "now", "--file", "shop:app"], "shop.report"),
        (["doctor", "--file", "shop:app"], "a store outage of 15 s stops no work"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_verb_takes_an_app(shop: World, words: list[str], message: str) -> None:
    said = shop.run("detent", *words)
    assert message in said.stdout, said
    assert said.returncode in (0, 1) and "Traceback" not in said.stderr


def test_a_node_runs_an_app_in_processes_of_its_own(shop: World) -> None:
    with shop.running("detent", "run", "-f", "shop:app") as node:
        ticks = shop.wait_ticks(2)
        assert {tick.pid for tick in ticks} != {node.pid}
        node.send_signal(signal.SIGHUP)
        wait_for(lambda: "reload-refused" in shop.log(), what="the refusal")
        assert "the jobs of shop:app come from code, which is read once: restart the node" in shop.log()
        said = shop.run("detent", "fire", "report", "--wait", "--file", "shop:app")
        assert 'returned "done"' in said.stderr + said.stdout, said
    assert node.returncode == 0


def test_a_program_runs_its_own_app(world: World) -> None:
    """Its children can import it from any working directory."""
    (world.folder / "src").mkdir()
    main = '\n\nif __name__ == "__main__":\n    app.run()\n'
    inside = '\n\n@app.job("* * * * * *", isolation="thread")\ndef near() -> None:\n    note("near")\n'
    world.write("src/main.py", APP, EVERY_SECOND, inside, main)
    with world.running("python", "src/main.py") as node:
        wait_for(lambda: {tick.pid == node.pid for tick in world.ticks()} == {True, False}, what="both")
        assert {tick.what for tick in world.ticks() if tick.pid == node.pid} == {"near"}
    assert node.returncode == 0
    assert '"event": "stopped"' in world.log()


def test_a_program_whose_app_is_wrong_ends_without_a_traceback(world: World) -> None:
    wrong = '\n\n@app.job("61 * * * *")\ndef tick() -> None: ...\n\n\napp.run()\n'
    world.write("main.py", APP, wrong)
    said = world.run("python", "main.py")
    assert said.returncode == 1
    assert said.stderr.endswith("at jobs[0].schedule (main.py:16)\n")
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere:app", "cannot import \"nowhere\": ModuleNotFoundError: No module named 'nowhere'"),
        ("shop.py:app", "name the module without .py"),
        ("shop:nothing", 'there is no "nothing" in '),
        ("shop:note", '"shop:note", called without arguments, fails: TypeError'),
        ("shop:os", "not an app such as `app = Detent(…)`"),
        ("broken:app", "ZeroDivisionError: division by zero"),
        ("broken:app", "broken.py:2)"),
    ],
)
def test_a_name_that_is_not_an_app_is_reported_without_a_traceback(
    shop: World, place: str, message: str
) -> None:
    shop.write("broken.py", "import os", "1 / 0")
    said = shop.run("detent", "validate", "-f", place)
    assert said.returncode in (1, 2) and message in said.stderr
    assert "Traceback" not in said.stderr


def test_problems_as_json_have_file_and_line(shop: World) -> None:
    shop.write(
        "bad.py", "import detent", 'app = detent.Detent("bad")', '@app.job("61 * * * *")', "def a(): ..."
    )
    said = shop.run("detent", "validate", "-f", "bad:app", "--output", "json")
    (record,) = json.loads(said.stdout)
    assert (record["file"], record["line"], record["path"]) == ("bad.py", 3, "jobs/0/schedule")


def test_an_app_may_be_made_by_a_function(world: World) -> None:
    made = "\n\ndef make():\n    made = detent.Detent('made')\n    made.job('@hourly', name='x')(note)\n"
    world.write("shop.py", APP, made.replace("(note)", "(lambda: note('x'))"), "    return made")
    assert "ok: shop:make: app made, 1 job" in world.run("detent", "validate", "-f", "shop:make").stdout


def test_an_app_that_starts_itself_does_not_start_when_it_is_only_read(world: World) -> None:
    """It does not start in the processes of its calls either, which import it too."""
    world.write("web.py", APP, EVERY_SECOND, "\napp.start()")
    with world.running("detent", "run", "-f", "web:app") as node:
        ticks = world.wait_ticks(4)  # a node of theirs would be alive by then
        said = world.run("detent", "nodes", "--file", "web:app", "--output", "json")
        assert [one["pid"] for one in json.loads(said.stdout)] == [node.pid]
    assert {tick.pid for tick in ticks}.isdisjoint({node.pid})
