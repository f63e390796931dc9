"""From `package.module:function` to a call: finding it, giving it its arguments, judging what it did.

1. A function that cannot be found is an error for people, told apart from one that fails.
2. The return value is kept as JSON.  A message whose task says `keep_result` fails if its value cannot be
   kept; it is not retried, as its work is done.  For a job the output says so, and the job has succeeded.
3. An exception is told in one line; its traceback begins where the user's own code does.
4. Every child imports this before it can be of use: what is slow to import is imported when it is needed.
"""

from __future__ import annotations

import importlib
import json
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from detent.runners.call.django_setup import set_up
from detent.text import TOO_DEEP, is_too_deep

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from detent.runners.call.fire import Fire

RESULT_MAX = 65_536  # characters of JSON
BACKEND_DOWN = 69  # the status of a call that raised BackendError; as EX_UNAVAILABLE
RESULT_NOT_KEPT = 65  # the status of a call that did its work, and whose result cannot be kept; as EX_DATAERR
REASON_MAX = 500  # characters of an exception
ADVICE = "return less or plain values; for a task, keep_result=False drops the result"
MACHINERY = ("__main__", "asyncio", "importlib", "contextvars", "threading")  # `__main__` starts the child
FIRE = "detent.runners.call.fire"
ERRORS, TASKS = "detent.errors", "detent.app.queue.tasks"
CO_GENERATOR, CO_ASYNC_GENERATOR = 0x20, 0x200  # as `inspect` has them
GENERATOR = (
    "is a generator function: a call of it runs none of its code; return a list instead of using yield, or "
    "loop over the generator in another function"
)
_ASKS = ("Fire", "detent.Fire")  # an annotation that is text may name what is only imported for types


class CannotCall(Exception):
    """There is no such function: why, in words for people."""


def find(function: str, importing: Callable[[bool], object] | None = None) -> Callable[..., Any]:
    """The function of this name; its module is imported.  Who wants to know is told that it takes a while,
    and when it is done."""
    module_name, path = _parts(function)
    is_known = module_name in sys.modules
    if not is_known:
        importlib.invalidate_caches()  # a file may have come since the last look
        if importing:
            importing(True)
    try:
        if not is_known:
            set_up()
        found: Any = _imported(module_name) or importlib.import_module(module_name)
    except Exception as error:
        why = str(error) if isinstance(error, ImportError) else reason_of(error)
        raise CannotCall(f"cannot import {module_name}: {why}") from error
    if importing and not is_known:
        importing(False)
    try:
        for name in path:
            found = getattr(found, name)
    except AttributeError:
        raise CannotCall(f'{module_name} has no function "{".".join(path)}"') from None
    if not callable(found):
        raise CannotCall(f"{function} is not a function: it is of type {type(found).__name__}")
    if is_generator(found):
        raise CannotCall(f"{function} {GENERATOR}")
    return found  # type: ignore[no-any-return]


def is_generator(function: Callable[..., Any]) -> bool:
    """Does a call of it only make a generator, and run nothing?"""
    function = getattr(function, "func", function)  # of functools.partial
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR))


@lru_cache(maxsize=1024)
def _parts(function: str) -> tuple[str, list[str]]:
    module_name, _, path = function.partition(":")
    return module_name, path.split(".")


def _imported(name: str) -> Any:
    """The module, if it is there whole: calls come in thousands, and their modules once."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module if spec is not None and not getattr(spec, "_initializing", False) else None


def is_async(function: Callable[..., Any]) -> bool:
    """Also where it is a task, which calls its function."""
    import inspect

    return inspect.iscoroutinefunction(getattr(function, "task_function", function))


# Its arguments.


def bind(
    function: Callable[..., Any], args: list[Any] | dict[str, Any], fire: Callable[[], Fire]
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments, with the fire among them where the function asks for it: by a
    parameter that is annotated so, or by one that is named `fire` and that the arguments leave open."""
    if args and TASKS in sys.modules:
        args = _as_sent(function, args)
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


def _as_sent(function: Callable[..., Any], args: Any) -> Any:
    """A task knows what the annotations of its function say; of others, nobody looks at them."""
    task = sys.modules[TASKS].declared.get(id(getattr(function, "task_function", function)))
    return task.parameters.received(args) if task else args


@lru_cache(maxsize=1024)
def fire_parameter(function: Callable[..., Any]) -> tuple[inspect.Parameter, int] | None:
    """The parameter that asks for the fire, and its position; one that is given by name has none."""
    if not _may_ask(function):
        return None
    import inspect

    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # some built-in functions have none
        return None
    those = [one for one in parameters if is_fire(one.annotation)]
    those += [one for one in parameters if one.name == "fire"]
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if not those or those[0].kind in many:
        return None
    by_name = those[0].kind == inspect.Parameter.KEYWORD_ONLY
    return those[0], sys.maxsize if by_name else parameters.index(those[0])


def _may_ask(function: Callable[..., Any]) -> bool:
    """Most functions do not ask, and need not be inspected to see it."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        return True
    return "fire" in code.co_varnames or any(map(is_fire, function.__annotations__.values()))


def is_fire(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation in _ASKS
    return FIRE in sys.modules and annotation is sys.modules[FIRE].Fire


# Its end.


def returned(value: object) -> tuple[str, str]:
    """Convert the return value to JSON.  Returns the text ("" for None), and why it cannot be kept, or ""."""
    if value is None:
        return "", ""
    try:
        text = json.dumps(value, allow_nan=False, default=_told_by_msgspec)
    except (TypeError, ValueError, RecursionError) as error:
        return "", _unkept(value, " ".join(str(error).split()))
    if is_too_deep(text):
        return "", _unkept(value, TOO_DEEP)
    if len(text) > RESULT_MAX:
        return "", _unkept(value, f"it has {len(text):,} characters, at most {RESULT_MAX:,} are allowed")
    return text, ""


def _unkept(value: object, why: str) -> str:
    return f"the result, of type {type(value).__name__}, cannot be kept as JSON: {why}; {ADVICE}"


def _told_by_msgspec(value: object) -> Any:
    """What JSON has no word for, where the extra `queue` is there to know one."""
    try:
        import msgspec
    except ImportError:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable") from None
    from detent.runners.call.values import encoded

    return msgspec.to_builtins(value, str_keys=True, enc_hook=encoded)


def reason_of(error: BaseException) -> str:
    """`ValueError: no such customer`, on one line; a driver's error may tell the password that it used."""
    if isinstance(error, CannotCall):
        return str(error)[:REASON_MAX]
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception whose own __str__ fails
        text = ""
    told = f"{type(error).__qualname__}: {text}".removesuffix(": ")
    from detent.messages.masking import Mask  # late: few calls fail

    return Mask().text(told[:REASON_MAX])[:REASON_MAX]


def failure_of(error: BaseException) -> tuple[int, str]:
    """The exit status and the reason of a call that raised this."""
    is_of_backend = ERRORS in sys.modules and isinstance(error, sys.modules[ERRORS].BackendError)
    return BACKEND_DOWN if is_of_backend else 1, reason_of(error)


def traceback_of(error: BaseException) -> str:
    """As Python prints it, less the frames that called the function."""
    if isinstance(error, CannotCall):
        return traceback_of(error.__cause__) if error.__cause__ else ""
    import traceback

    theirs = _outermost_of_theirs(error.__traceback__)
    return "".join(traceback.format_exception(type(error), error, theirs))


def _outermost_of_theirs(frames: TracebackType | None) -> TracebackType | None:
    """Past our own frames and those of the machinery between us and the function."""
    while frames is not None and _is_machinery(str(frames.tb_frame.f_globals.get("__name__", ""))):
        frames = frames.tb_next
    return frames


def _is_machinery(module: str) -> bool:
    ours = ("detent.runners.call.", "detent.app.queue.")  # the latter's, where the function is a task
    return module.startswith(ours) or module.partition(".")[0] in MACHINERY


def exit_status(error: SystemExit) -> tuple[int, str]:
    """The status that `sys.exit` asked for, and what Python would say on stderr."""
    if error.code is None:
        return 0, ""
    return (error.code & 0xFF, "") if isinstance(error.code, int) else (1, str(error.code))
