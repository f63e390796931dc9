"""What a node shows of itself beside its log: metrics over HTTP, and traces and metrics for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.events import Emit
from detent.messages.trace_context import carried_trace
from detent.model import Claim
from detent.observe.watched_store import Watch
from detent.text import quote

ADDRESS = "127.0.0.1:9464"  # of the metrics
OTLP_METRICS = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


class TelemetryOptions(NamedTuple):
    metrics: str = ""  # HOST:PORT to serve metrics on; "": none are served
    otel: str = ""  # `otlp` or `file:PATH`; "": no traces


class Telemetry(NamedTuple):
    """What a node is wrapped with.  By default, messages only pass on the trace context that they carry."""

    emit: Emit
    watches: tuple[Watch, ...] = ()  # of its store
    trace: Callable[[Claim], str] = carried_trace  # the `traceparent` of an attempt
    set_slots: Callable[[Sequence[str], int], object] = lambda queues, slots: None
    closing: tuple[Callable[[], object], ...] = ()

    def close(self) -> None:
        for close in self.closing:
            close()


def split_address(address: str) -> tuple[str, int]:
    """Return the host and the port of the value of `--metrics`, or raise."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise UsageError(
            f"bad address {quote(address)} of --metrics: write HOST:PORT, like {ADDRESS}; after --metrics "
            "without an address, another option has to follow, or nothing"
        )
    return host.strip("[]"), int(port)


def open_telemetry(options: TelemetryOptions, app: str, env: Mapping[str, str], emit: Emit) -> Telemetry:
    telemetry = Telemetry(emit)
    if options.otel:
        from detent.observe.traces import Traces

        traces = Traces(options.otel, env, lambda error: emit("traces-unsent", app=app, error=error))
        telemetry = telemetry._replace(
            watches=(Watch(ended=traces.ended),), trace=traces.of, closing=(traces.close,)
        )
    return _with_metrics(telemetry, options, app, env)


def _with_metrics(
    telemetry: Telemetry, options: TelemetryOptions, app: str, env: Mapping[str, str]
) -> Telemetry:
    emit, meters, closing = telemetry.emit, list[Any](), list[Callable[[], object]]()
    if options.otel and env.get(OTLP_METRICS):
        from detent.observe.metrics.otlp import OtlpMeter

        meters.append(OtlpMeter(env, lambda error: emit("metrics-unsent", app=app, error=error)))
        closing.append(meters[-1].close)
    if options.metrics:
        from detent.observe.metrics.prometheus import PrometheusMeter

        meters.append(PrometheusMeter())
    if not meters:
        return telemetry
    from detent.observe.metrics.node import NodeMetrics

    node = NodeMetrics(app, meters, emit)
    if options.metrics:
        from detent.observe.metrics.server import MetricsServer

        server = MetricsServer(split_address(options.metrics), meters[-1], node)
        closing.append(server.close)
        emit("metrics-served", app=app, address=server.address)

    def emit_and_count(event: str, **fields: Any) -> None:
        emit(event, **fields)
        node.emit(event, **fields)

    return Telemetry(
        emit=emit_and_count,
        watches=(*telemetry.watches, node.watch),
        trace=telemetry.trace,
        set_slots=node.set_slots,
        closing=(*telemetry.closing, *closing),
    )
