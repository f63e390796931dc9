"""The trace context of a running call, and of a push: W3C `traceparent` texts.

OpenTelemetry is never imported here.  Where the user's code has imported it, a call and a push are spans of
the user's own tracer provider, if there is one.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

HEADER, VARIABLE = "traceparent", "TRACEPARENT"  # as in `messages.trace_context`: a child starts fast
OTEL = "opentelemetry.trace"
SYSTEM = "detent"

_running: ContextVar[str] = ContextVar("detent-traceparent", default="")


@contextmanager
def within(trace: str, function: str, *, exports: bool = False) -> Iterator[None]:
    """Run a call of this function in this context.  `exports`: processes that it starts find the context in
    their environment."""
    if not trace and OTEL not in sys.modules:
        yield
        return
    with ExitStack() as left:
        if trace:
            left.callback(_running.reset, _running.set(trace))
        if trace and exports:
            left.callback(_set_variable, os.environ.get(VARIABLE))
            _set_variable(trace)
        if OTEL in sys.modules:
            left.enter_context(_span_of_call(trace, function))
        yield


def _set_variable(value: str | None) -> None:
    os.environ.pop(VARIABLE, None)
    if value is not None:
        os.environ[VARIABLE] = value


def _span_of_call(trace: str, function: str) -> Any:
    otel: Any = sys.modules[OTEL]
    parent = _propagator().extract({HEADER: trace}) if trace else None
    links = [otel.Link(otel.get_current_span(parent).get_span_context())] if trace else []
    about = {"code.function.name": function.replace(":", ".")}
    tracer = otel.get_tracer(SYSTEM)
    return tracer.start_as_current_span(f"call {function}", parent, attributes=about, links=links)


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
