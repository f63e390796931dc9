"""The tasks of apps in code: which of them a job or a queue can run with arguments of the user."""

import json
from typing import Any, cast

from detent.app.app import Detent
from detent.app.queue.arguments import ArgumentsError, read_arguments
from detent.app.queue.options import PushOptions
from detent.app.queue.tasks import Push as Pushing
from detent.app.queue.tasks import TaskFunction
from detent.dashboard.gate import Refusal
from detent.dashboard.source import Source
from detent.model import Call, Job, Push
from detent.stores.base import app_of
from detent.text import quote

Task = TaskFunction[..., Any, Any]
TASKS_MAX = 200


class BadArguments(Refusal):
    """Arguments that do not fit; the error may repeat a part of them."""


def app_in_code(source: Source, name: str) -> Detent:
    """The app of this name.  Only an app in code has the secrets of its messages."""
    if name not in source.apps:
        raise Refusal(
            409,
            "only the app in code can sign a message: start the dashboard with it, as"
            " `detent dashboard module:app`",
        )
    return source.apps[name]


def find_task(source: Source, name: str) -> Task | None:
    """The task of this name, or the one that the job of this name pushes or calls."""
    app, job = source.apps.get(app_of(name)), _job(source, name)
    if app is None or job is None:
        return _task(source, name)
    if isinstance(job.work, Push):
        return app.task_functions.get(job.work.task)
    path = job.work.function if isinstance(job.work, Call) else ""
    return next((task for task in app.task_functions.values() if task.task.call.function == path), None)


def _task(source: Source, name: str) -> Task | None:
    app = source.apps.get(app_of(name))
    return app.task_functions.get(name.partition(".")[2]) if app else None


def _job(source: Source, name: str) -> Job | None:
    manifest = source.manifests.get(app_of(name))
    return next((job for job in manifest.jobs if job.name == name), None) if manifest else None


def push_with(source: Source, name: str, text: str) -> tuple[str, str]:
    """Push a message with these arguments; return its key, and the arguments for the audit record."""
    app_in_code(source, app_of(name))
    task = find_task(source, name)
    if task is None:
        raise Refusal(
            409,
            f"{quote(name[:80])} runs with the arguments of its definition only; others are for tasks,"
            " and for jobs whose function is a task (@app.job above @app.task)",
        )
    try:
        arguments = read_arguments(text or "[]")
        key = _pushing(task, _job(source, name)).push_many([arguments])[0].key
    except ArgumentsError as error:
        raise BadArguments(400, str(error)) from None
    shown = json.dumps(masked_arguments(source, f"{app_of(name)}.{task.name}", arguments), ensure_ascii=False)
    return key, "" if source.hides_arguments else shown


def _pushing(task: Task, job: Job | None) -> Pushing[..., Any]:
    """With the queue, the priority and the expiry of the job."""
    if job is None or not isinstance(job.work, Push):
        return task
    work = job.work
    given = {"queue": work.queue, "priority": work.priority, "expires": work.expires_s}
    return task.options(**cast(PushOptions, {name: value for name, value in given.items() if value}))


def masked_arguments(source: Source, name: str, arguments: Any) -> Any:
    """Mask arguments by value and by name; a task that is known names the positions."""
    task = _task(source, name)
    if task is None or not isinstance(arguments, list):
        return source.mask.fields({"arguments": arguments})["arguments"]
    named = dict(zip(task.parameters.names_of(arguments), arguments, strict=True))
    return [*source.mask.fields({"arguments": named})["arguments"].values()]


def task_entries(source: Source, app: str) -> list[dict[str, Any]]:
    """The tasks of an app in code, in the order of their names."""
    tasks = sorted(source.apps[app].task_functions.items())[:TASKS_MAX] if app in source.apps else []
    return [
        {"name": f"{app}.{name}", "queue": task.task.queue, "takes": task.parameters.names}
        for name, task in tasks
    ]
