"""Calls in a Django project: sets up Django before the import, and closes stale connections.

1. `DJANGO_SETTINGS_MODULE` names the project, as for `manage.py`.
2. Connections that are unusable or older than `CONN_MAX_AGE` are closed before and after each call, as
   Django does around each request.  Otherwise a warm process would keep a connection that a restart of the
   database has cut. Django has connections by thread: those of an async call are in the thread that
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
    """Call `django.setup()` once, if there is a project and Django is installed."""
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
    _close_old()
    try:
        return function(*args, **named)
    finally:
        _close_old()


async def await_call(value: Awaitable[Any]) -> Any:
    await _close_old_of_async()
    try:
        return await value
    finally:
        await _close_old_of_async()


def _close_old() -> None:
    if _has_connections():
        with suppress(Exception):  # a connection that cannot be closed is unusable too: the call reports it
            sys.modules["django.db"].close_old_connections()


async def _close_old_of_async() -> None:
    if _has_connections():
        from asgiref.sync import sync_to_async

        await sync_to_async(_close_old, thread_sensitive=True)()
