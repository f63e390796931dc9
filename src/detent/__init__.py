"""A scheduler for jobs that must run once: not zero times, not twice, not on top of each other."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detent.app import Detent
    from detent.errors import BackendError, DetentError, StoreUnavailable, UsageError
    from detent.locks import LockLost, LockTimeout
    from detent.queueing.deliveries import ClaimLost
    from detent.queueing.handles import ResultTimeout, ResultUnknown, TaskFailed
    from detent.queueing.post import PushUnknown
    from detent.queueing.rates import RateLimited
    from detent.runners.call_fire import Fire

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

_PLACES = {
    "BackendError": "errors",
    "ClaimLost": "queueing.deliveries",
    "Detent": "app",
    "DetentError": "errors",
    "Fire": "runners.call_fire",
    "LockLost": "locks",
    "LockTimeout": "locks",
    "PushUnknown": "queueing.post",
    "RateLimited": "queueing.rates",
    "ResultTimeout": "queueing.handles",
    "ResultUnknown": "queueing.handles",
    "StoreUnavailable": "errors",
    "TaskFailed": "queueing.handles",
    "UsageError": "errors",
}


def __getattr__(name: str) -> object:
    """Late, as most of what imports this needs only the version."""
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(f"detent.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
