"""The trace context of a running call, and of a push: W3C `traceparent` texts.

OpenTelemetry is never imported here.  Where the user's code has imported it, spans of the call have the
right parent, and a push is a span of the user's own tracer provider.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

HEADER, VARIABLE = "traceparent", "TRACEPARENT"
OTEL, PROPAGATOR = "opentelemetry.trace", "opentelemetry.trace.propagation.tracecontext"
SYSTEM = "detent"

_running: ContextVar[str] = ContextVar("detent-traceparent", default="")


@contextmanager
def within(trace: str, *, exports: bool = False) -> Iterator[None]:
    """Run a call in this context.  `exports`: processes that it starts find it in their environment."""
    if not trace:
        yield
        return
    token, before = _running.set(trace), os.environ.get(VARIABLE)
    if exports:
        os.environ[VARIABLE] = trace
    context, attached = sys.modules.get("opentelemetry.context"), None
    if context and OTEL in sys.modules:
        attached = context.attach(_propagator().extract({HEADER: trace}))
    try:
        yield
    finally:
        if context and attached:
            context.detach(attached)
        if exports:
            os.environ.pop(VARIABLE, None)
            os.environ.update({VARIABLE: before} if before else {})
        _running.reset(token)


def current_trace() -> str:
    """Return the context in which this code runs, or "": that of the user's span, of the call, or of the
    process."""
    if OTEL in sys.modules:
        carrier: dict[str, str] = {}
        _propagator().inject(carrier)
        if carrier:
            return carrier[HEADER]
    return _running.get() or os.environ.get(VARIABLE, "")


@contextmanager
def pushing(queue: str, count: int) -> Iterator[None]:
    """Make the push of these messages a span, if the process uses OpenTelemetry."""
    otel: Any = sys.modules.get(OTEL)
    if otel is None:
        yield
        return
    about: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": queue,
        "messaging.operation.name": "push",
        "messaging.operation.type": "send",
    }
    if count > 1:
        about["messaging.batch.message_count"] = count
    tracer, kind = otel.get_tracer(SYSTEM), otel.SpanKind.PRODUCER
    with tracer.start_as_current_span(f"push {queue}", kind=kind, attributes=about):
        yield


def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
