"""Functions that cannot be imported by name: local functions, lambdas, partials.

Their path is `detent.app.local_functions:app.job`, which only the process that declared them can resolve.
Hyphens of names become underscores in it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

_APPS: dict[str, SimpleNamespace] = {}


def register(app: str, job: str, function: Callable[..., Any]) -> str:
    """Return the path of the function from now on.  A newer function of the same name replaces it."""
    app, job = app.replace("-", "_"), job.replace("-", "_")
    setattr(_APPS.setdefault(app, SimpleNamespace()), job, function)
    return f"{__name__}:{app}.{job}"


def __getattr__(name: str) -> SimpleNamespace:
    try:
        return _APPS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
