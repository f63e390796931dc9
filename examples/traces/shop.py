"""A web app that pushes a message for each invoice; the message runs a command.  `show.py` runs it all."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from detent import Detent

app = Detent("shop", store=os.environ.get("STORE", "sqlite:///shop.db"))
app.allow("invoices", command=True)
PRINT = 'echo "printed with TRACEPARENT=$TRACEPARENT"'


def web(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """A WSGI app.  A push within a span of OpenTelemetry belongs to its trace."""
    from opentelemetry import trace

    tracer = trace.get_tracer("shop")
    with tracer.start_as_current_span("GET /invoice", kind=trace.SpanKind.SERVER):
        handle = app.queue("invoices").push_command(PRINT)
    start_response("202 Accepted", [("Content-Type", "text/plain")])
    return [handle.key.encode()]


def trace_to(file: Path) -> None:
    """Set up OpenTelemetry as a web app does, with a file in the place of a collector."""
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    exporter = ConsoleSpanExporter(
        out=file.open("a"), formatter=lambda span: span.to_json(indent=None) + "\n"
    )
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
