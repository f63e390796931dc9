"""Tasks in a Django project use its models and its database, however they are run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.app.django_world import DjangoWorld
from tests.equipment.postgres_server import Server, new_server
from tests.equipment.redis_server import free_port

from detent import Detent

TASKS = ("plain", "alone", "waiting", "in-thread", "on-loop")
RESTARTS = 1
_names = map(str, count())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of this file, because its tests restart it."""
    server = new_server()
    server.make()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def project(tmp_path: Path, server: Server) -> DjangoWorld:
    return DjangoWorld(tmp_path, server)


def push(app: Detent, task: str) -> None:
    """Push a task from outside the project; it succeeds in its first attempt."""

    def asked(name: str) -> Any: ...

    name = next(_names)
    asker = app.tasks().get(task) and app.task_named(task)
    asker = asker or app.task(name=task, keep_result=True)(asked)
    assert asker.push(name).get(60) == name


RUNS = {
    "a management command": ("python", "manage.py", "work"),
    "a worker": ("detent", "worker", "shop.tasks:app"),
    "gunicorn": ("gunicorn", "--no-control-socket", "-w", "2", "-b", "127.0.0.1:PORT", "project.wsgi"),
    "uvicorn": ("uvicorn", "project.asgi:application", "--lifespan", "off", "--port", "PORT"),
}


@pytest.mark.parametrize(
    ("run", "connections"),
    [(run, "persistent" if run == "gunicorn" else "as by default") for run in RUNS],
)
def test_tasks_find_the_models_and_survive_a_restart_of_the_database_when_run_by(
    project: DjangoWorld, run: str, connections: str
) -> None:
    words = [word.replace("PORT", str(free_port())) for word in RUNS[run]]
    if run == "a worker":
        project.env["DJANGO_SETTINGS_MODULE"] = "project.settings"
    if connections == "persistent":
        project.env["PERSISTENT"] = "1"
    app = Detent("shop", store=project.store)
    with project.running(*words):
        for restart in range(RESTARTS + 1):
            if restart:
                project.restart()
            for task in (*TASKS, *TASKS):
                push(app, task)
    (visits,) = project.server.sql("SELECT count(*) FROM shop_visit")[0]
    assert visits == 2 * len(TASKS) * (RESTARTS + 1)


def test_a_project_that_cannot_be_set_up_is_an_error_with_the_name_of_its_settings(
    project: DjangoWorld,
) -> None:
    project.env["DJANGO_SETTINGS_MODULE"] = "project.nothing"
    said = project.run("detent", "worker", "shop.tasks:app")
    assert said.returncode == 1
    assert (
        "Django cannot be set up (DJANGO_SETTINGS_MODULE=project.nothing): ModuleNotFoundError" in said.stderr
    )
