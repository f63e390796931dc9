"""Finds the function `package.module:function`, binds its arguments, and judges how the call of it ended.

1. A function that cannot be found is reported as such, and not as a function that failed.
2. The return value is kept as JSON.  A message whose task has `keep_result` fails if its value cannot be
   kept; it is not retried, as its work is done.  A job succeeds, with a note in its output.
3. The reason of a failure is one line.  Its traceback begins at the user's own code.
4. Every child imports this module before it is ready: slow imports happen when they are needed.
"""

from __future__ import annotations

import importlib
import json
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from detent.runners.call.django_setup import set_up
from detent.text import TOO_DEEP, is_too_deep

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable
    from typing import Any

    from detent.runners.call.fire import Fire

RESULT_MAX = 65_536  # characters of JSON
BACKEND_DOWN = 69  # the status of a call that raised BackendError: EX_UNAVAILABLE
RESULT_NOT_KEPT = 65  # the status of a call whose result cannot be kept: EX_DATAERR
REASON_MAX = 500  # characters of an exception
ADVICE = "return less or plain values; for a task, keep_result=False drops the result"
MACHINERY = ("__main__", "asyncio", "importlib", "contextvars", "threading")  # the first: the child's program
FIRE = "detent.runners.call.fire"
ERRORS, TASKS = "detent.errors", "detent.app.queue.tasks"
CO_GENERATOR, CO_ASYNC_GENERATOR = 0x20, 0x200  # as in `inspect`
GENERATOR = (
    "is a generator function: a call of it runs none of its code; return a list instead of using yield, or "
    "loop over the generator in another function"
)
# An annotation as text may name a class that is imported for types only.
_FIRE_NAMES = ("Fire", "detent.Fire")


class CannotCall(Exception):
    """There is no such function; the text says why."""


class CallEnd(NamedTuple):
    status: int = 0
    error: str = ""
    result: str = ""  # as JSON
    output: str = ""  # to be added to the output of the call


def find(function: str, importing: Callable[[bool], object] | None = None) -> Callable[..., Any]:
    """Return the function of this name.  `importing` is called with True before its module is imported, and
    with False after that."""
    module_name, _, path = function.partition(":")
    is_known = module_name in sys.modules
    if not is_known:
        importlib.invalidate_caches()  # the file may be new
        if importing:
            importing(True)
    try:
        if not is_known:
            set_up()
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        why = str(error) if isinstance(error, ImportError) else reason_of(error)
        raise CannotCall(f"cannot import {module_name}: {why}") from error
    if importing and not is_known:
        importing(False)
    try:
        for name in path.split("."):
            found = getattr(found, name)
    except AttributeError:
        raise CannotCall(f'{module_name} has no function "{path}"') from None
    if not callable(found):
        raise CannotCall(f"{function} is not a function: it is of type {type(found).__name__}")
    if is_generator(found):
        raise CannotCall(f"{function} {GENERATOR}")
    return found  # type: ignore[no-any-return]


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether a call of it only makes a generator, and runs none of its code."""
    function = getattr(function, "func", function)  # of functools.partial
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR))


def is_async(function: Callable[..., Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(getattr(function, "task_function", function))


# Its arguments.


def bind(
    function: Callable[..., Any], args: list[Any] | dict[str, Any], fire: Callable[[], Fire]
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and named arguments.  They include the fire if the function has a parameter that is
    annotated so, or one with the name `fire` that the arguments leave open."""
    if args and TASKS in sys.modules:  # a task converts its arguments by the annotations of its function
        task = sys.modules[TASKS].declared.get(id(getattr(function, "task_function", function)))
        args = task.parameters.received(args) if task else args
    given, named = ([*args], {}) if isinstance(args, list) else ([], dict(args))
    found = fire_parameter(function)
    if found is None or found[0].name in named:
        return given, named
    parameter, position = found
    if is_fire(parameter.annotation) and position <= len(given):
        given.insert(position, fire())
    elif parameter.kind != parameter.POSITIONAL_ONLY and position >= len(given):
        named[parameter.name] = fire()
    return given, named


@lru_cache(maxsize=1024)
def fire_parameter(function: Callable[..., Any]) -> tuple[inspect.Parameter, int] | None:
    """Return the parameter for the fire and its position; a keyword-only one comes after all positions."""
    if not _may_take_fire(function):
        return None
    import inspect

    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # some built-in functions have no signature
        return None
    annotated = [one for one in parameters if is_fire(one.annotation)]
    found = next(iter([*annotated, *(one for one in parameters if one.name == "fire")]), None)
    if found is None or found.kind in (found.VAR_POSITIONAL, found.VAR_KEYWORD):
        return None
    return found, sys.maxsize if found.kind == found.KEYWORD_ONLY else parameters.index(found)


def _may_take_fire(function: Callable[..., Any]) -> bool:
    """Most functions take no fire: this finds out without `inspect`, which is slow to import."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        return True
    return "fire" in code.co_varnames or any(map(is_fire, function.__annotations__.values()))


def is_fire(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation in _FIRE_NAMES
    return FIRE in sys.modules and annotation is sys.modules[FIRE].Fire


# Its end.


def returned(value: object) -> tuple[str, str]:
    """Return the value as JSON ("" for None), and why it cannot be kept ("" if it can)."""
    if value is None:
        return "", ""
    try:
        text = json.dumps(value, allow_nan=False, default=_encode_with_msgspec)
    except (TypeError, ValueError, RecursionError) as error:
        return "", _unkept(value, " ".join(str(error).split()))
    if is_too_deep(text):
        return "", _unkept(value, TOO_DEEP)
    if len(text) > RESULT_MAX:
        return "", _unkept(value, f"it has {len(text):,} characters, at most {RESULT_MAX:,} are allowed")
    return text, ""


def _unkept(value: object, why: str) -> str:
    return f"the result, of type {type(value).__name__}, cannot be kept as JSON: {why}; {ADVICE}"


def _encode_with_msgspec(value: object) -> Any:
    """Convert a value that JSON does not have, if the extra `queue` is installed."""
    try:
        import msgspec
    except ImportError:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable") from None
    from detent.runners.call.values import encoded

    return msgspec.to_builtins(value, str_keys=True, enc_hook=encoded)


def reason_of(error: BaseException) -> str:
    """Return `ValueError: no such customer`, on one line, and masked: the error of a driver may contain a
    password."""
    if isinstance(error, CannotCall):
        return str(error)[:REASON_MAX]
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception whose own __str__ fails
        text = ""
    line = f"{type(error).__qualname__}: {text}".removesuffix(": ")
    from detent.messages.masking import Mask  # late: most calls succeed

    return Mask().text(line[:REASON_MAX])[:REASON_MAX]


def failure_of(error: BaseException) -> tuple[int, str]:
    """Return the exit status and the reason of a call that raised this."""
    is_of_backend = ERRORS in sys.modules and isinstance(error, sys.modules[ERRORS].BackendError)
    return BACKEND_DOWN if is_of_backend else 1, reason_of(error)


def traceback_of(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the frames that called the function."""
    if isinstance(error, CannotCall):
        return traceback_of(error.__cause__) if error.__cause__ else ""
    import traceback

    frames = error.__traceback__
    while frames is not None and _is_machinery(str(frames.tb_frame.f_globals.get("__name__", ""))):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _is_machinery(module: str) -> bool:
    ours = ("detent.runners.call.", "detent.app.queue.")  # the second, if the function is a task
    return module.startswith(ours) or module.partition(".")[0] in MACHINERY


def exit_status(error: SystemExit) -> tuple[int, str]:
    """Return the status of a `sys.exit`, and what Python would write to stderr."""
    if error.code is None:
        return 0, ""
    return (error.code & 0xFF, "") if isinstance(error.code, int) else (1, str(error.code))


def end_of_return(value: object, *, keeps: bool) -> CallEnd:
    """Return how a call ended that returned this; `keeps`: it fails if the value cannot be kept."""
    text, why_not = returned(value)
    if not why_not:
        return CallEnd(result=text)
    return CallEnd(RESULT_NOT_KEPT if keeps else 0, why_not if keeps else "", output=f"detent: {why_not}\n")


def end_of_raise(error: BaseException) -> CallEnd:
    """Return how a call ended that raised this."""
    if isinstance(error, SystemExit):
        status, text = exit_status(error)
        return CallEnd(status, output=f"{text}\n" if text else "")
    status, reason = failure_of(error)
    return CallEnd(status, reason, output=traceback_of(error) or f"detent: {reason}\n")
