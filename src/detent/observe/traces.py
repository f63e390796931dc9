"""Events as spans of OpenTelemetry: one for a fire, and in it one for each attempt.

- It is a listener like the log.  Where spans go is told by the usual `OTEL_…` variables.
- The fire's span is a child of the context that we were started with, if there is one; the work is started
  with the context of its attempt.
- At the end they are sent, for a few seconds at most: a collector that is away delays nothing else, and is
  one warning, in our words: what the SDK logs on its way there is kept for that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from detent.errors import UsageError

FLUSH_S = 5  # unless one of these says otherwise
TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT")
STARTED, FAILED = "fire-started", "attempt-failed"
GOOD = frozenset(("success", "replaced", "cancelled", "lock-contended"))
ENDED = GOOD | {"app-rejected", "retries-exhausted", "timed-out", "lost"}
ATTRIBUTES = (
    "app job run_id fire node fence attempt attempts status last_status outcome reason cause due took_ms"
)


class Traces:
    def __init__(self, env: Mapping[str, str], exporter: Any = None) -> None:
        """`exporter` stands in for the one that the variables name."""
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
        self._newest: Any = None  # the context of the attempt under way

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
        """The context of the attempt under way, as a process is told it."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._newest if self._newest is not None else self._given)
        return {name.upper(): value for name, value in carrier.items()}

    def close(self) -> str:
        """Send what there is, all at once: a processor of the SDK would have a thread, and we fork.  Why they
        could not be sent; empty: they were."""
        for span in (*self._attempts.values(), *self._fires.values()):
            self._finish(span)
        with _quiet() as said:
            try:
                is_sent = self._exporter.export(self._spans).name == "SUCCESS"
                self._exporter.shutdown()
            except Exception as error:  # a listener cannot break a job
                return f"{type(error).__name__}: {error}"
        return "" if is_sent else (said[-1] if said else "the collector refused them")

    def _finish(self, span: Any) -> None:
        span.end()
        self._spans.append(span)

    def _start(self, key: str, fields: Mapping[str, Any]) -> None:
        from opentelemetry.trace import set_span_in_context

        if key not in self._fires:
            name = f"fire {fields.get('app')}.{fields.get('job')}"
            self._fires[key] = self._tracer.start_span(name, self._given, attributes=_told(fields))
        within = set_span_in_context(self._fires[key])
        span = self._tracer.start_span(f"attempt {fields.get('attempt')}", within, attributes=_told(fields))
        self._attempts[key], self._newest = span, set_span_in_context(span)

    def _end(self, span: Any, event: str, fields: Mapping[str, Any]) -> None:
        from opentelemetry.trace import StatusCode

        if span is None:
            return
        span.set_attributes(_told(fields))
        if event not in GOOD:
            span.set_status(StatusCode.ERROR, str(fields.get("reason", event)))
        self._finish(span)


@contextmanager
def _quiet() -> Iterator[list[str]]:
    """What the SDK logs meanwhile, and nobody sees."""
    said: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    kept, log = Kept(), logging.getLogger("opentelemetry")
    log.addHandler(kept)
    log.propagate = False
    try:
        yield said
    finally:
        log.propagate = True
        log.removeHandler(kept)


def _exporter(env: Mapping[str, str]) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    is_said = any(name in env for name in TIMEOUTS)
    return OTLPSpanExporter() if is_said else OTLPSpanExporter(timeout=FLUSH_S)


def _told(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {f"detent.{name}": fields[name] for name in ATTRIBUTES.split() if fields.get(name) is not None}
