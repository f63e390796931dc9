"""Exports events as OpenTelemetry spans: one for a fire, with one child for each attempt.

- The usual `OTEL_…` variables configure the exporter.
- The span of the fire is a child of the trace context in our environment.  The work gets the context of its
  attempt.
- The spans are sent at the end, within a few seconds.  If that fails, it is one warning in our log; the SDK's
  own log messages are suppressed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from detent.errors import UsageError

FLUSH_S = 5  # unless one of these variables is set
TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
STARTED, FAILED = "fire-started", "attempt-failed"
GOOD = frozenset(("success", "replaced", "cancelled", "lock-contended"))
ENDED = GOOD | {"app-rejected", "retries-exhausted", "timed-out", "lost"}
ATTRIBUTES = (
    "app job run_id fire node fence attempt attempts status last_status outcome reason cause due took_ms"
)


class Traces:
    def __init__(self, env: Mapping[str, str], exporter: Any = None) -> None:
        """`exporter`: for tests, instead of the one that the variables configure."""
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

            self._exporter = exporter or _exporter(env)
        except ModuleNotFoundError:
            raise UsageError("--otel needs OpenTelemetry: pip install 'detent[otel]'") from None
        named = {} if env.get("OTEL_SERVICE_NAME") else {"service.name": "detent"}
        provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        self._tracer, self._spans = provider.get_tracer("detent"), list[Any]()
        self._propagator = TraceContextTextMapPropagator()
        given = {name.lower(): env[name] for name in ("TRACEPARENT", "TRACESTATE") if env.get(name)}
        self._given = self._propagator.extract(given)
        self._fires: dict[str, Any] = {}
        self._attempts: dict[str, Any] = {}
        self._newest: Any = None  # the context of the running attempt

    def emit(self, event: str, **fields: Any) -> None:
        key = fields.get("fire", "")
        if event == STARTED:
            self._start(key, fields)
        elif event == FAILED:
            self._end(self._attempts.pop(key, None), event, fields)
        elif event in ENDED:
            self._end(self._attempts.pop(key, None), event, fields)
            self._end(self._fires.pop(key, None), event, fields)

    def variables(self) -> dict[str, str]:
        """The context of the running attempt as environment variables."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._newest if self._newest is not None else self._given)
        return {name.upper(): value for name, value in carrier.items()}

    def close(self) -> str:
        """Send all spans; returns an error text, or "".  The SDK's processors use threads, and we fork."""
        for span in (*self._attempts.values(), *self._fires.values()):
            self._finish(span)
        with _quiet() as messages:
            try:
                is_sent = self._exporter.export(self._spans).name == "SUCCESS"
                self._exporter.shutdown()
            except Exception as error:  # a listener cannot break a job
                return f"{type(error).__name__}: {error}"
        return "" if is_sent else (messages[-1] if messages else "the collector rejected them")

    def _finish(self, span: Any) -> None:
        span.end()
        self._spans.append(span)

    def _start(self, key: str, fields: Mapping[str, Any]) -> None:
        from opentelemetry.trace import set_span_in_context

        if key not in self._fires:
            name = f"fire {fields.get('app')}.{fields.get('job')}"
            self._fires[key] = self._tracer.start_span(name, self._given, attributes=_attributes(fields))
        within = set_span_in_context(self._fires[key])
        span = self._tracer.start_span(
            f"attempt {fields.get('attempt')}", within, attributes=_attributes(fields)
        )
        self._attempts[key], self._newest = span, set_span_in_context(span)

    def _end(self, span: Any, event: str, fields: Mapping[str, Any]) -> None:
        from opentelemetry.trace import StatusCode

        if span is None:
            return
        span.set_attributes(_attributes(fields))
        if event not in GOOD:
            span.set_status(StatusCode.ERROR, str(fields.get("reason", event)))
        self._finish(span)


@contextmanager
def _quiet() -> Iterator[list[str]]:
    """Collect the log messages of the SDK instead of printing them."""
    messages: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    kept, log = Kept(), logging.getLogger("opentelemetry")
    log.addHandler(kept)
    log.propagate = False
    try:
        yield messages
    finally:
        log.propagate = True
        log.removeHandler(kept)


def _exporter(env: Mapping[str, str]) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    has_timeout = any(name in env for name in TIMEOUTS)
    return OTLPSpanExporter() if has_timeout else OTLPSpanExporter(timeout=FLUSH_S)


def _attributes(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {f"detent.{name}": fields[name] for name in ATTRIBUTES.split() if fields.get(name) is not None}
