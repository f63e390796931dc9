"""A scheduler for jobs that must run once: not zero times, not twice, not on top of each other."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detent.app.app import Detent
    from detent.app.locks import LockLost, LockTimeout
    from detent.app.queue.deliveries import ClaimLost
    from detent.app.queue.handles import ResultTimeout, ResultUnknown, TaskFailed
    from detent.app.queue.limits import RateLimited
    from detent.app.queue.sending import PushUnknown
    from detent.errors import BackendError, DetentError, StoreUnavailable, UsageError
    from detent.runners.call.fire import Fire

__all__ = [
    "BackendError",
    "ClaimLost",
    "Detent",
    "DetentError",
    "Fire",
    "LockLost",
    "LockTimeout",
    "PushUnknown",
    "RateLimited",
    "ResultTimeout",
    "ResultUnknown",
    "StoreUnavailable",
    "TaskFailed",
    "UsageError",
    "__version__",
]
__version__ = "0.1.0"

_MODULES = {
    "BackendError": "errors",
    "ClaimLost": "app.queue.deliveries",
    "Detent": "app.app",
    "DetentError": "errors",
    "Fire": "runners.call.fire",
    "LockLost": "app.locks",
    "LockTimeout": "app.locks",
    "PushUnknown": "app.queue.sending",
    "RateLimited": "app.queue.limits",
    "ResultTimeout": "app.queue.handles",
    "ResultUnknown": "app.queue.handles",
    "StoreUnavailable": "errors",
    "TaskFailed": "app.queue.handles",
    "UsageError": "errors",
}


def __getattr__(name: str) -> object:
    """Import public names on first use: most importers need only the version."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"detent.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
