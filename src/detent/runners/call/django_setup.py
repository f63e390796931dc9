"""Calls in a Django project: Django is set up before they are imported, and they find no stale connection.

1. `DJANGO_SETTINGS_MODULE` names the project, as it does for `manage.py`, which sets it for its children.
2. Before and after each call the connections that are unusable or older than `CONN_MAX_AGE` are closed, as
   Django does around each request.  Otherwise a warm process would keep one that a restart of the database
   has cut off.  Django keeps connections by thread: those of an async call are in the thread that
   `sync_to_async` uses.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

SETTINGS = "DJANGO_SETTINGS_MODULE"


def set_up() -> None:
    """Call `django.setup()` where there is a project, once.  Without Django there is nothing to set up."""
    if not os.environ.get(SETTINGS) or _is_ready():
        return
    try:
        import django
    except ImportError:
        return
    try:
        django.setup()
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise ImportError(f"Django cannot be set up ({SETTINGS}={os.environ[SETTINGS]}): {what}") from error


def _is_ready() -> bool:
    apps = sys.modules.get("django.apps")
    return apps is not None and bool(apps.apps.ready)


def _has_connections() -> bool:
    return "django.db" in sys.modules and bool(sys.modules["django.conf"].settings.configured)


def run_call(function: Callable[..., Any], args: list[Any], named: dict[str, Any]) -> Any:
    """Call it, in this thread."""
    _close_old()
    try:
        return function(*args, **named)
    finally:
        _close_old()


async def await_call(value: Awaitable[Any]) -> Any:
    """Await what an async function gave."""
    await _close_old_of_async()
    try:
        return await value
    finally:
        await _close_old_of_async()


def _close_old() -> None:
    if _has_connections():
        with suppress(Exception):  # one that cannot be closed is of no use either: the call says so
            sys.modules["django.db"].close_old_connections()


async def _close_old_of_async() -> None:
    if _has_connections():
        from asgiref.sync import sync_to_async

        await sync_to_async(_close_old, thread_sensitive=True)()
