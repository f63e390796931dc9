"""The receiver as Django views, under WSGI and ASGI.

The views are exempt from CSRF checks, because no browser sends fires, and from ATOMIC_REQUESTS, because a
fire is recorded after its work.  A job that needs a transaction opens its own.
"""

import re
from collections.abc import Awaitable
from typing import Any

from detent.receive.asgi import target_of
from detent.receive.exchange import awaited
from detent.receive.receiver import MANIFEST_PATH, Receiver
from detent.receive.wsgi import incoming_of


def urlpatterns(receiver: Receiver) -> list[Any]:
    from django.db.transaction import non_atomic_requests
    from django.http import HttpResponse
    from django.urls import re_path
    from django.views.decorators.csrf import csrf_exempt

    def view(request: Any, below: str) -> Any:
        incoming = incoming_of(request.META, f"/{below}", _read(request, receiver.body_max))
        if hasattr(request, "scope"):  # ASGI: META lacks the raw path
            incoming = incoming._replace(target=target_of(request.scope))
        reply = receiver.receive(incoming, _run_async)
        return HttpResponse(reply.body, status=reply.status, headers=dict(reply.all_headers()))

    ours = rf"{re.escape(MANIFEST_PATH[1:])}|{re.escape(receiver.prefix[1:])}/.*"
    return [re_path(rf"^(?P<below>{ours})$", csrf_exempt(non_atomic_requests(view)))]


def _read(request: Any, most: int) -> bytes | None:
    from django.core.exceptions import RequestDataTooBig

    try:
        body: bytes = request.body
    except RequestDataTooBig:
        return None
    return body if len(body) <= most else None


def _run_async(awaitable: Awaitable[Any]) -> Any:
    from asgiref.sync import async_to_sync

    return async_to_sync(awaited)(awaitable)
