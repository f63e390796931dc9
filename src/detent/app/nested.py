"""Functions of jobs that no module names: those defined within another function, lambdas, partials.

They are called as `detent.app.nested:app.job` and so only in the process that declared them.  A name has no
underscores and a path has no hyphens: one is written for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

_APPS: dict[str, SimpleNamespace] = {}


def keep(app: str, job: str, function: Callable[..., Any]) -> str:
    """How the function is called from now on; the last one of a name counts."""
    app, job = app.replace("-", "_"), job.replace("-", "_")
    setattr(_APPS.setdefault(app, SimpleNamespace()), job, function)
    return f"{__name__}:{app}.{job}"


def __getattr__(name: str) -> SimpleNamespace:
    try:
        return _APPS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
