"""Turns the options of `@app.job` into the document of a manifest, and remembers the line of the decorator.

`manifest.check` checks the document.  This module checks only the function: whether other processes can
import it, and whether it takes its arguments.  Every message names the file and line of the decorator.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from detent.app import local_functions
from detent.errors import UsageError
from detent.manifest.fields import HOOKS
from detent.manifest.problems import ManifestError, Problem
from detent.manifest.rules import address_of
from detent.model import CatchUp, Concurrency, Isolation, OnLost
from detent.runners.call.function import GENERATOR, bind, is_async, is_generator
from detent.text import did_you_mean, quote

if TYPE_CHECKING:
    from detent.observe.listeners import Listener

MAIN = "__main__"
Moment = str | datetime
Hook = str | Mapping[str, Any] | Sequence[str | Sequence[str] | Mapping[str, Any]]


class RetryOptions(TypedDict, total=False):
    max_attempts: int
    min_seconds: int
    max_seconds: int
    jitter: float
    on_status: Sequence[int]
    on_exit_codes: Sequence[int]


class PolicyOptions(TypedDict, total=False):
    concurrency: Concurrency
    concurrency_scope: Literal["host", "global"]
    timeout_seconds: int
    max_running: int
    catch_up: CatchUp
    start_deadline_seconds: float
    on_lost: OnLost
    claim_seconds: float
    dst: Literal["vixie", "skip", "twice", "utc"]


class JobOptions(PolicyOptions, RetryOptions, total=False):
    """The options of a job besides its schedules: the fields of a manifest, including those of its policy and
    retries."""

    name: str  # default: the function's name, with hyphens
    at: Moment
    after: str | Sequence[str]  # jobs of this app: the success of each of them fires this one
    timezone: str
    starts_at: Moment
    ends_at: Moment
    args: Sequence[Any] | Mapping[str, Any]
    enqueue: bool | Mapping[str, Any]  # push a message of this task instead; its queue, priority, expiry
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
    remind_hours: float
    ping: str


class Location(NamedTuple):
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Declared(NamedTuple):
    document: dict[str, Any]
    where: Location
    options: frozenset[str]  # names of the given options


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
    document = {name: plain(value) for name, value in options.items()}
    retries = {name: document.pop(name) for name in RetryOptions.__annotations__ if name in document}
    policy = {name: document.pop(name) for name in PolicyOptions.__annotations__ if name in document}
    if retries:
        policy["retries"] = retries
    document["name"] = document.get("name") or name_of(function, where)
    if schedules:
        document |= {"schedule": schedules[0]} if len(schedules) == 1 else {"schedules": [*schedules]}
    if document.pop("enqueue", False):
        return _declare_message(function, document | {"policy": policy}, options["enqueue"], where)
    if policy:
        document["policy"] = policy
    document["call"] = checked_path(app, function, document, where)
    _check_arguments(function, document, where)
    return Declared(document, where, frozenset(options))


def _declare_message(
    function: Any, document: dict[str, Any], enqueue: bool | Mapping[str, Any], where: Location
) -> Declared:
    """Declare a job that pushes a message of this task.  Options of the task are the defaults of the job."""
    task = getattr(function, "task", None)
    if task is None:
        advice = "enqueue= is for tasks: put @app.task(…) below @app.job(…)"
        raise UsageError(f"{where}: {document['name']}: {advice}")
    args, retries = document.pop("args", []), task.policy.retries
    try:
        function.parameters.item_text(args)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    more = dict(enqueue) if isinstance(enqueue, Mapping) else {}
    document["enqueue"] = {"queue": task.queue, "task": task.name, "args": args, **more}
    usual = {"max_attempts": retries.max_attempts, "jitter": retries.jitter}
    usual |= {"min_seconds": max(1, round(retries.min_s)), "max_seconds": max(1, round(retries.max_s))}
    runs: dict[str, Any] = {"concurrency": "Queue" if task.lane else "Allow"}
    if task.policy.timeout_s:
        runs["timeout_seconds"] = max(1, round(task.policy.timeout_s))
    policy = document["policy"]
    document["policy"] = {**runs, **policy, "retries": {**usual, **policy.get("retries", {})}}
    return Declared(document, where, frozenset(document))


def checked_listener(function: Callable[..., Any], names: Sequence[str], where: Location) -> Listener:
    from detent.observe.listeners import NAMES, Listener  # late: few apps have listeners

    if not names:
        raise UsageError(f'{where}: name the events to listen to, as in @app.on("failed")')
    for name in names:
        if name not in NAMES:
            near = did_you_mean(name, NAMES) or "; docs/reference/events.md lists them"
            raise UsageError(f"{where}: there is no event or outcome {quote(str(name))}{near}")
    if is_async(function):
        raise UsageError(f"{where}: a listener is not async: it runs in a thread of its own")
    return Listener(frozenset(names), function)


def plain(value: Any) -> Any:
    """Convert a value to the types of a document."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, tuple | list) else value


# The function.


def name_of(function: Callable[..., Any], where: Location, noun: str = "job") -> str:
    name = getattr(function, "__name__", "").strip("_").lower().replace("_", "-")
    if not name or name == "<lambda>":
        raise UsageError(f"{where}: the function has no name: name the {noun} with name=")
    return name


def path_of(function: Callable[..., Any]) -> str:
    """The import path `package.module:function`; "" if other processes cannot import the function."""
    module, path = getattr(function, "__module__", "") or "", getattr(function, "__qualname__", "")
    if module == MAIN:
        module = main_module()
    is_there = module and path and "<" not in path and not inspect.ismethod(function)
    return f"{module}:{path}" if is_there else ""


def main_module() -> str:
    """The name by which other processes import the running program; "" if they cannot.  This process gets the
    same name for it, so that it is not imported twice."""
    main = sys.modules[MAIN]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    name = spec.name if spec else Path(file).stem if file else ""
    if not all(part.isidentifier() for part in name.split(".")):
        return ""
    sys.modules.setdefault(name, main)
    return str(name)


def _check_function(function: Callable[..., Any], name: str, where: Location) -> None:
    """Raise if a call of the function cannot work."""
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


def checked_path(
    app: str, function: Callable[..., Any], options: dict[str, Any], where: Location, prefix: str = ""
) -> str:
    """Return the path by which nodes call the function, or raise if a call cannot work.  A function that
    other processes cannot import gets a path in this process, and by default runs in a thread."""
    name, path = options["name"], path_of(function)
    _check_function(function, name, where)
    if not path:
        path = local_functions.register(app, f"{prefix}{name}", function)
        options.setdefault("isolation", "thread")
    isolation = options.get("isolation", "process")
    if isolation == "process" and path.startswith(local_functions.__name__):
        raise UsageError(
            f"{where}: {name}: another process cannot import this function; define it at module level, "
            'or choose isolation="thread"'
        )
    if isolation == "loop" and not is_async(function):
        raise UsageError(f'{where}: {name}: isolation="loop" is for async functions; choose "thread"')
    return path


def _check_arguments(function: Callable[..., Any], document: Mapping[str, Any], where: Location) -> None:
    args = document.get("args", [])
    if not isinstance(args, list | dict):
        return  # the manifest checker reports it
    try:
        given, named = bind(function, args, lambda: None)  # type: ignore[arg-type, return-value]
        inspect.signature(function).bind(*given, **named)
    except TypeError as error:
        why = f"{error}; args= has the arguments of a job's function"
        raise UsageError(f"{where}: {document['name']}: {why}") from None
    except ValueError:  # some built-in functions have no signature
        return


def with_locations(error: ManifestError, app: Location, jobs: Sequence[Declared]) -> ManifestError:
    """The error with the file and line of each declaration that is wrong."""
    where = [_location_of(problem, app, jobs) for problem in error.problems]
    placed = [one._replace(**at._asdict()) for one, at in zip(error.problems, where, strict=True)]
    return ManifestError(placed, where[0].file)


def _location_of(problem: Problem, app: Location, jobs: Sequence[Declared]) -> Location:
    parts = problem.path.split("/")
    is_job = parts[0] == "jobs" and len(parts) > 1 and parts[1].isdecimal()
    return jobs[int(parts[1])].where if is_job and int(parts[1]) < len(jobs) else app


def refuse_process_options(jobs: Sequence[Declared]) -> None:
    """Raise if a job has options that need a process of its own."""
    for one in jobs:
        wants = sorted(one.options & {"work_dir", "env", "user"})
        wants += ['isolation="process"'] if one.document.get("isolation") == "process" else []
        wants += [name for name in HOOKS if _has_command(one.document.get(name))]
        if wants:
            raise UsageError(
                f"{one.where}: {one.document['name']} needs a process of its own ({wants[0]}), and "
                "app.start() runs jobs within this one: remove that option, or use `detent run` or app.run()"
            )


def _has_command(hook: Any) -> bool:
    hooks = hook if isinstance(hook, list) else [] if hook is None else [hook]
    texts = [str(one) for one in hooks if not isinstance(one, dict) and not address_of(one)]
    return any(not text.startswith(("http://", "https://")) for text in texts)
