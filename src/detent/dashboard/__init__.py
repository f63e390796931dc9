"""The dashboard: a web page for operators, as a server of its own or mounted in a web app.

`api.mount("/ops", detent.dashboard.asgi(app, who=current_user))`
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from detent.dashboard.auth import Role, User, Who
from detent.errors import UsageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from detent.app.app import Detent
    from detent.dashboard.source import Source

__all__ = ["Role", "User", "asgi"]

LISTEN = "127.0.0.1:8732"
INSTALL = "the dashboard needs Starlette and uvicorn: pip install 'detent[web]'"


def asgi(app: Detent, *, who: Who, hosts: Sequence[str] = (), hide_arguments: bool = False) -> ASGIApp:
    """Return an ASGI app to mount in FastAPI, Starlette or Django.

    `who(request)` returns the `User` of a request, or None to refuse it; it may be async.  `hosts` are the
    allowed values of the header `Host`; without them, the app around it has to check them."""
    try:
        from detent.dashboard.site import site
    except ImportError as error:
        raise UsageError(f"{INSTALL} ({error})") from None
    sites: dict[int, ASGIApp] = {}

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        """The first request of a process opens the store: by then all jobs are declared, and forks done."""
        pid = os.getpid()
        if pid not in sites:
            sites[pid] = site(_source(app, hide_arguments), who, [host.lower() for host in hosts])
        await sites[pid](scope, receive, send)

    return mounted


def _source(app: Detent, hides_arguments: bool) -> Source:
    from detent.dashboard.source import Source

    store, url = app.new_store()
    return Source(
        store=store,
        url=url,
        mask=app.mask,
        manifests={app.name: app.manifest()},
        apps={app.name: app},
        emit=_log,
        hides_arguments=hides_arguments,
    )


def _log(event: str, **fields: Any) -> None:
    """Log an event of a mounted dashboard like the other records of the web app."""
    from detent.events import EVENTS
    from detent.observe.logs import format_event

    level = {"WARN": logging.WARNING, "ERROR": logging.ERROR}.get(EVENTS[event].level, logging.INFO)
    logging.getLogger("detent").log(level, format_event(event, "json", **fields))
