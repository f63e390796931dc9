"""Loads apps in code by their name on the command line: `package.module:name`."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.errors import DetentError, UsageError
from detent.text import quote

if TYPE_CHECKING:
    from detent import Detent

is_reading_apps = False  # set while apps are only read: an app must not start itself when imported

_DOTTED = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"
_PLACE = re.compile(f"{_DOTTED}:{_DOTTED}")


def is_app(place: object) -> bool:
    return isinstance(place, str) and _PLACE.fullmatch(place) is not None and not Path(place).exists()


def load_app(place: str) -> Detent:
    """Return the app of this name.  Modules are searched from the working directory."""
    global is_reading_apps
    from detent import Detent  # late: detent.app imports this package

    is_reading_apps = True
    module, _, path = place.partition(":")
    found: Any = _import(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    if found is None:
        file = getattr(sys.modules[module], "__file__", None) or module
        raise UsageError(f"there is no {quote(path)} in {file}")
    if callable(found) and not isinstance(found, Detent):
        found = _made_by(found, place)
    if not isinstance(found, Detent):
        kind = type(found).__name__
        raise UsageError(f"{quote(place)} is of type {kind}, not an app such as `app = Detent(…)`")
    return found


def _import(module: str) -> Any:
    here = str(Path.cwd())
    if sys.path[0] != here:
        sys.path.insert(0, here)
    try:
        from detent.runners.call.django_setup import set_up  # late: most verbs import no app

        set_up()
        return importlib.import_module(module)
    except DetentError:
        raise
    except Exception as error:
        advice = "; name the module without .py" if module.endswith(".py") else ""
        raise UsageError(f"cannot import {quote(module)}: {_failure(error)}{advice}") from error


def _failure(error: Exception) -> str:
    """Describe an exception of the user's code, with the line at which it was raised."""
    import traceback

    what = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if one.filename not in (__file__, importlib.__file__)]
    theirs = [one for one in theirs if not one.filename.startswith("<")]
    return f"{what} ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else what


def _made_by(factory: Any, place: str) -> Any:
    try:
        return factory()
    except DetentError:
        raise
    except Exception as error:
        message = f"{quote(place)}, called without arguments, fails: {_failure(error)}"
        raise UsageError(message) from error
