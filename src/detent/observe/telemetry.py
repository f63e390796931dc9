"""What a node shows of itself beside its log: metrics over HTTP, and traces and metrics for OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.errors import UsageError
from detent.events import Emit
from detent.messages.trace_context import carried_trace
from detent.model import Claim
from detent.observe.watched_store import Watch
from detent.text import quote

if TYPE_CHECKING:
    from detent.observe.metrics.node import Meter, NodeMetrics

ADDRESS = "127.0.0.1:9464"  # of the metrics
OTLP_METRICS = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


class TelemetryOptions(NamedTuple):
    metrics: str = ""  # HOST:PORT to serve metrics on; "": none are served
    otel: str = ""  # `otlp` or `file:PATH`; "": no traces


class Telemetry(NamedTuple):
    """What is added to a node.  By default, messages only pass on the trace context that they contain."""

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
    """For a node that is a process of its own."""
    telemetry, meters = Telemetry(emit), list[Any]()
    if options.otel:
        from detent.observe.traces import exported_traces

        traces = exported_traces(options.otel, env, _warner(emit, "traces-unsent", app))
        telemetry = Telemetry(emit, (Watch(ended=traces.ended),), traces.of, closing=(traces.close,))
    if options.otel and env.get(OTLP_METRICS):
        from detent.observe.metrics.otlp import exporting_meter

        meters.append(exporting_meter(env, _warner(emit, "metrics-unsent", app)))
        telemetry = telemetry._replace(closing=(*telemetry.closing, meters[-1].close))
    if not options.metrics:
        return _measured(telemetry, app, meters)[0] if meters else telemetry
    from detent.observe.metrics.prometheus import PrometheusMeter
    from detent.observe.metrics.server import MetricsServer

    meter = PrometheusMeter()
    telemetry, node = _measured(telemetry, app, [*meters, meter])
    server = MetricsServer(split_address(options.metrics), meter, node)
    emit("metrics-served", app=app, address=server.address)
    return telemetry._replace(closing=(*telemetry.closing, server.close))


def process_telemetry(app: str, emit: Emit) -> Telemetry:
    """For a node within another program: its spans and series go where those of that program go."""
    from detent.observe.traces import ProcessTraces

    traces = ProcessTraces(_warner(emit, "traces-unsent", app))
    telemetry = Telemetry(emit, (Watch(ended=traces.ended),), traces.of)
    try:
        meter = _meter_of_process()
    except Exception as error:  # a version of its library that we do not know, or a series of the same name
        emit("metrics-unsent", app=app, error=f"{type(error).__name__}: {error}")
        return telemetry
    return _measured(telemetry, app, [meter])[0] if meter else telemetry


def _warner(emit: Emit, event: str, app: str) -> Callable[[str], object]:
    return lambda error: emit(event, app=app, error=error)


def _measured(telemetry: Telemetry, app: str, meters: Sequence[Meter]) -> tuple[Telemetry, NodeMetrics]:
    from detent.observe.metrics.node import NodeMetrics

    node = NodeMetrics(app, meters, telemetry.emit)

    def emit_and_count(event: str, **fields: Any) -> None:
        telemetry.emit(event, **fields)
        node.emit(event, **fields)

    watches = (*telemetry.watches, node.watch)
    return telemetry._replace(emit=emit_and_count, watches=watches, set_slots=node.set_slots), node


def _meter_of_process() -> Meter | None:
    """Return a meter for OpenTelemetry if the process has set up its SDK, else for prometheus_client if it
    has imported that.  With both, a program that exports one by the other would have each series twice."""
    otel, sdk = sys.modules.get("opentelemetry.metrics"), sys.modules.get("opentelemetry.sdk.metrics")
    if otel and sdk and isinstance(provider := otel.get_meter_provider(), sdk.MeterProvider):
        from detent.observe.metrics.otlp import OtelMeter

        return _only_meter(OtelMeter, provider)
    if (client := sys.modules.get("prometheus_client")) is None:
        return None
    from detent.observe.metrics.prometheus import PrometheusMeter

    return _only_meter(PrometheusMeter, client.REGISTRY)


@lru_cache  # a series can be made only once, and a node may start again
def _only_meter(make: Callable[[Any], Meter], target: Any) -> Meter:
    return make(target)
