"""Apps in code, as the command line names them: `package.module:name`.

They are imported to be read: an app that starts itself when its module is imported does not do so here.
"""

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

is_reading_apps = (
    False  # this process only reads apps: an app that starts itself when imported does not start
)

_DOTTED = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"
_PLACE = re.compile(f"{_DOTTED}:{_DOTTED}")


def is_app(place: object) -> bool:
    return isinstance(place, str) and _PLACE.fullmatch(place) is not None and not Path(place).exists()


def load_app(place: str) -> Detent:
    """The app of this name; modules are found from the working directory."""
    global is_reading_apps
    from detent import Detent  # late, and by its public name: an app imports the loading of files

    is_reading_apps = True
    module, _, path = place.partition(":")
    found: Any = _import(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise UsageError(f"there is no {quote(path)} in {_file_of(module)}")
    if callable(found) and not isinstance(found, Detent):
        found = _made_by(found, place)
    if not isinstance(found, Detent):
        kind = type(found).__name__
        raise UsageError(f"{quote(place)} is of type {kind}: name an app, as in `app = Detent(…)`")
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
        what = " ".join(f"{type(error).__name__}: {error}".split())
        advice = "; name the module, without .py" if module.endswith(".py") else ""
        raise UsageError(f"cannot import {quote(module)}: {what}{_where(error)}{advice}") from error


def _where(error: Exception) -> str:
    """The line of the user's own code at which its import failed."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if one.filename not in (__file__, importlib.__file__)]
    theirs = [one for one in theirs if not one.filename.startswith("<")]
    return f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""


def _file_of(module: str) -> str:
    return getattr(sys.modules[module], "__file__", None) or module


def _made_by(factory: Any, place: str) -> Any:
    """What a function without arguments makes."""
    try:
        return factory()
    except DetentError:
        raise
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{quote(place)}, called without arguments, fails: {what}{_where(error)}") from error
