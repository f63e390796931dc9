"""A job in code: what its decorator says, as the document of a manifest, and where it says so.

- Nothing of a manifest is checked here: `manifest.check` has the rules and the words.  Only what is true of
  the function itself is: can it be found, and does it take its arguments?
- Every message names the file and the line of the decorator.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple, TypedDict

from detent.app import local_functions
from detent.errors import UsageError
from detent.manifest.problems import ManifestError, Problem
from detent.model import CatchUp, Concurrency, Isolation, OnLost
from detent.runners.call.function import GENERATOR, bind, is_async, is_generator

MAIN = "__main__"
RETRIES = ("max_attempts", "min_seconds", "max_seconds", "jitter", "on_status", "on_exit_codes")
POLICY = (
    "concurrency", "concurrency_scope", "timeout_seconds", "max_running", "catch_up",
    "start_deadline_seconds", "on_lost", "claim_seconds", "dst",
)  # fmt: skip
Moment = str | datetime
Hook = str | Mapping[str, Any] | Sequence[str | Sequence[str] | Mapping[str, Any]]


class JobOptions(TypedDict, total=False):
    """What can be said of a job, besides its schedules: the fields of a manifest, with the policy's and the
    retries' among them."""

    name: str  # by default the function's, with hyphens
    at: Moment
    after: str | Sequence[str]  # jobs of this app, by name: the success of each puts a fire of this one
    timezone: str
    starts_at: Moment
    ends_at: Moment
    args: Sequence[Any] | Mapping[str, Any]
    enqueue: bool | Mapping[str, Any]  # a message of this task instead of a call; its queue, priority, expiry
    isolation: Isolation
    work_dir: str
    env: Mapping[str, str]
    user: str
    kill_after_seconds: float
    enabled: bool
    description: str
    tags: Sequence[str]
    queue: str
    run_on: Literal["one", "every"]
    on_success: Hook
    on_failure: Hook
    on_skip: Hook
    on_late: Hook
    late_after_seconds: float
    concurrency: Concurrency
    concurrency_scope: Literal["host", "global"]
    timeout_seconds: int
    max_running: int
    catch_up: CatchUp
    start_deadline_seconds: float
    on_lost: OnLost
    claim_seconds: float
    dst: Literal["vixie", "skip", "twice", "utc"]
    max_attempts: int
    min_seconds: int
    max_seconds: int
    jitter: float
    on_status: Sequence[int]
    on_exit_codes: Sequence[int]


class Location(NamedTuple):
    """A line of somebody's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Declared(NamedTuple):
    """A job of an app, as its decorator has it."""

    document: dict[str, Any]
    where: Location
    options: frozenset[str]  # those that were said


def location_of(frame: FrameType) -> Location:
    file = Path(frame.f_code.co_filename)
    here = Path.cwd()
    return Location(str(file.relative_to(here) if file.is_relative_to(here) else file), frame.f_lineno)


def declare(
    app: str,
    function: Callable[..., Any],
    schedules: Sequence[str],
    options: Mapping[str, Any],
    where: Location,
) -> Declared:
    """The job that a decorator makes of a function."""
    document = {name: _plain(value) for name, value in options.items()}
    retries = {name: document.pop(name) for name in RETRIES if name in document}
    policy = {name: document.pop(name) for name in POLICY if name in document}
    if retries:
        policy["retries"] = retries
    document["name"] = document.get("name") or name_of(function, where)
    if schedules:
        document |= {"schedule": schedules[0]} if len(schedules) == 1 else {"schedules": [*schedules]}
    if document.pop("enqueue", False):
        return _declare_message(function, document | {"policy": policy}, options["enqueue"], where)
    if policy:
        document["policy"] = policy
    document["call"] = path = path_of(function)
    if not path:
        document["call"] = local_functions.register(app, str(document["name"]), function)
        document.setdefault("isolation", "thread")
    _check(function, document, where)
    return Declared(document, where, frozenset(options))


def _declare_message(
    function: Any, document: dict[str, Any], said: bool | Mapping[str, Any], where: Location
) -> Declared:
    """The job whose work is a message of the task that the function is.  What the task says of its runs holds
    where the job does not."""
    task = getattr(function, "task", None)
    if task is None:
        raise UsageError(
            f"{where}: {document['name']}: enqueue= is for tasks: put @app.task(…) below @app.job(…)"
        )
    args, retries = document.pop("args", []), task.policy.retries
    try:
        function.parameters.item_text(args)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    more = dict(said) if isinstance(said, Mapping) else {}
    document["enqueue"] = {"queue": task.queue, "task": task.name, "args": args, **more}
    usual = {"max_attempts": retries.max_attempts, "jitter": retries.jitter}
    usual |= {"min_seconds": max(1, round(retries.min_s)), "max_seconds": max(1, round(retries.max_s))}
    runs: dict[str, Any] = {"concurrency": "Queue" if task.lane else "Allow"}
    if task.policy.timeout_s:
        runs["timeout_seconds"] = max(1, round(task.policy.timeout_s))
    policy = document["policy"]
    document["policy"] = {**runs, **policy, "retries": {**usual, **policy.get("retries", {})}}
    return Declared(document, where, frozenset(document))


def _plain(value: Any) -> Any:
    """As a document would hold it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value


# The function.


def name_of(function: Callable[..., Any], where: Location, noun: str = "job") -> str:
    name = getattr(function, "__name__", "").strip("_").lower().replace("_", "-")
    if not name or name == "<lambda>":
        raise UsageError(f"{where}: the function has no name of its own: give the {noun} one with name=")
    return name


def path_of(function: Callable[..., Any]) -> str:
    """`package.module:function`, by which any process finds it; "": there is none."""
    module, path = getattr(function, "__module__", "") or "", getattr(function, "__qualname__", "")
    if module == MAIN:
        module = main_module()
    is_there = module and path and "<" not in path and not inspect.ismethod(function)
    return f"{module}:{path}" if is_there else ""


def main_module() -> str:
    """How others import the program that runs; "": they cannot.  We import it so, too: one module, once."""
    main = sys.modules[MAIN]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    name = spec.name if spec else Path(file).stem if file else ""
    if not all(part.isidentifier() for part in name.split(".")):
        return ""
    sys.modules.setdefault(name, main)
    return str(name)


def check_function(function: Callable[..., Any], name: str, where: Location) -> None:
    """Raise where a call of it could not do its work."""
    if is_generator(function):
        raise UsageError(f"{where}: {name}: the function {GENERATOR}")
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    first = next(iter(_parameters(function)), "")
    if inspect.isfunction(function) and owner and not owner.endswith("<locals>") and first in ("self", "cls"):
        raise UsageError(
            f"{where}: {name}: the function is a method of {owner}, and nothing would give it {first}: use a "
            "function at the top of the module, or a @staticmethod"
        )


def _parameters(function: Callable[..., Any]) -> Sequence[str]:
    try:
        return [*inspect.signature(function).parameters]
    except (TypeError, ValueError):  # some built-in functions have no signature
        return []


def check_isolation(function: Callable[..., Any], call: tuple[str, str, str], where: Location) -> None:
    """`call`: its name, where it is found, and where it is to run."""
    name, path, isolation = call
    if isolation == "process" and path.startswith(local_functions.__name__):
        raise UsageError(
            f"{where}: {name}: another process cannot import this function; define it at module level, "
            'or choose isolation="thread"'
        )
    if isolation == "loop" and not is_async(function):
        raise UsageError(f'{where}: {name}: isolation="loop" is for async functions; choose "thread"')


def _check(function: Callable[..., Any], document: Mapping[str, Any], where: Location) -> None:
    name, isolation = document["name"], document.get("isolation", "process")
    check_function(function, name, where)
    check_isolation(function, (name, document["call"], isolation), where)
    args = document.get("args", [])
    if not isinstance(args, list | dict):
        return  # the manifest's rules say so
    try:
        given, named = bind(function, args, lambda: None)  # type: ignore[arg-type, return-value]
        inspect.signature(function).bind(*given, **named)
    except TypeError as error:
        raise UsageError(f"{where}: {name}: {error}; a job gives its function what args= has") from None
    except ValueError:  # some built-in functions have no signature
        return


# Where something is wrong.


def with_locations(error: ManifestError, app: Location, jobs: Sequence[Declared]) -> ManifestError:
    """The error with the files and lines of who declared what is wrong."""
    locations = [_location_of(problem, app, jobs) for problem in error.problems]
    placed = [
        problem._replace(file=where.file, line=where.line)
        for problem, where in zip(error.problems, locations, strict=True)
    ]
    return ManifestError(placed, locations[0].file)


def _location_of(problem: Problem, app: Location, jobs: Sequence[Declared]) -> Location:
    parts = problem.path.split("/")
    is_job = parts[0] == "jobs" and len(parts) > 1 and parts[1].isdecimal()
    return jobs[int(parts[1])].where if is_job and int(parts[1]) < len(jobs) else app


def refuse_process_options(jobs: Sequence[Declared]) -> None:
    """Raise where a job of these cannot run within a process that is not ours."""
    for one in jobs:
        wants = sorted(one.options & {"work_dir", "env", "user"})
        wants += ['isolation="process"'] if one.document.get("isolation") == "process" else []
        wants += [name for name in _HOOKS if _has_command(one.document.get(name))]
        if wants:
            raise UsageError(
                f"{one.where}: {one.document['name']} asks for a process of its own ({wants[0]}), and "
                "app.start() runs jobs within this one: leave it out, or use `detent run` or app.run()"
            )


_HOOKS = ("on_success", "on_failure", "on_skip", "on_late")


def _has_command(hook: Any) -> bool:
    hooks = hook if isinstance(hook, list) else [] if hook is None else [hook]
    texts = [str(one) for one in hooks if not isinstance(one, dict)]
    return any(not text.startswith(("http://", "https://")) for text in texts)
