"""`detent init`: a starter manifest that is valid, runs at once, and overwrites nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.cli.cli_world import Detent, command, environment, until


def test_the_starter_validates_strictly_with_one_job_off(detent: Detent) -> None:
    said = detent("init", "shop")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "wrote shop/detent.yaml with three example jobs of the app shop; try:",
        "  detent next -f shop/detent.yaml",
        "  detent run -f shop/detent.yaml",
        "  detent history -f shop/detent.yaml",
    ]
    result = detent("validate", "--strict", "-f", "shop/detent.yaml")
    assert result == (0, "ok: shop/detent.yaml: app shop, 3 jobs (1 disabled)\n", "")


def test_the_next_commands_work_as_they_are_printed(detent: Detent, folder: Path) -> None:
    lines = detent("init").out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["detent", "next"],
        ["detent", "run"],
        ["detent", "history"],
    ]
    assert detent("next", "-n", "3").code == 0


def test_the_starter_runs_at_once(detent: Detent, folder: Path) -> None:
    detent("init")
    text = (folder / "detent.yaml").read_text()
    assert text.count("@every 10s") == 1
    (folder / "detent.yaml").write_text(text.replace("@every 10s", "@every 1s"))
    log = folder / "run.log"
    with log.open("wb") as stream:
        node = subprocess.Popen(command("run"), cwd=folder, env=environment(folder), stderr=stream)
    until("a fire has succeeded", lambda: '"event": "success"' in log.read_text())
    node.terminate()
    assert node.wait(30) == 0
    events = {json.loads(line)["event"] for line in log.read_text().splitlines()}
    assert events <= {"started", "fire-started", "success", "draining", "stopped"}


@pytest.mark.parametrize("there", ["detent.yaml", "detent.toml"])
def test_nothing_is_overwritten_or_put_beside_another_manifest(
    detent: Detent, folder: Path, there: str
) -> None:
    (folder / there).write_text("mine")
    said = detent("init")
    assert (said.code, said.out) == (1, "")
    assert said.err == (f'detent: "{there}" already exists; name another file or directory\n')
    assert (folder / there).read_text() == "mine"
    assert [path.name for path in folder.iterdir()] == [there]


def test_a_file_of_another_name_is_kept_too(detent: Detent, folder: Path) -> None:
    assert detent("init", "jobs.yaml").code == 0
    (folder / "jobs.yaml").write_text("mine")
    assert "already exists" in detent("init", "jobs.yaml").err
    assert (folder / "jobs.yaml").read_text() == "mine"


def test_another_format_is_refused_with_what_there_is(detent: Detent, folder: Path) -> None:
    assert "name a .yaml file" in detent("init", "jobs.toml").err
    assert [*folder.iterdir()] == []


def test_programs_get_the_file_and_the_app(detent: Detent) -> None:
    assert detent("init", "-o", "json", "shop").json == {"file": "shop/detent.yaml", "app": "shop"}


@pytest.mark.parametrize(
    ("directory", "app"),
    [
        ("shop", "shop"),
        ("My Shop_2", "my-shop-2"),
        ("2nd", "my-app"),
        ("42", "my-app"),
        ("Übung", "bung"),
        ("a" * 80, "a" * 63),
    ],
)
def test_the_app_is_called_after_its_directory(detent: Detent, directory: str, app: str) -> None:
    assert detent("init", "-o", "json", directory).json["app"] == app
