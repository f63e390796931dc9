"""Keeps series with OpenTelemetry: for a collector, or for the meter provider of this process."""

from collections.abc import Mapping
from typing import Any

from detent import __version__
from detent.observe.metrics.series import BY_NAME, NODE, Labels
from detent.observe.otel import Unsent, make_exporter, need, resource_of, shut_down, timeout_of


class OtelMeter:
    def __init__(self, provider: Any) -> None:
        self._provider, meter = provider, provider.get_meter("detent", __version__)
        self._made: dict[str, Any] = {}
        for one in NODE:
            more = {"unit": "s", "explicit_bucket_boundaries_advisory": one.bounds} if one.bounds else {}
            create = getattr(meter, f"create_{one.kind}")
            self._made[one.name] = create(one.name, description=one.help, **more)

    def add(self, name: str, labels: Labels, amount: float = 1.0) -> None:
        self._made[name].add(amount, _attributes(name, labels))

    def set(self, name: str, labels: Labels, value: float) -> None:
        self._made[name].set(value, _attributes(name, labels))

    def observe(self, name: str, labels: Labels, value: float, run_id: str = "") -> None:
        self._made[name].record(value, _attributes(name, labels))

    def close(self) -> None:
        shut_down(self._provider.shutdown)


def exporting_meter(env: Mapping[str, str], unsent: Unsent) -> OtelMeter:
    """It sends the series once a minute, or as OTEL_METRIC_EXPORT_INTERVAL says."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ModuleNotFoundError:
        raise need("otel", "--otel", "OpenTelemetry") from None
    exporter = make_exporter(OTLPMetricExporter, unsent, **timeout_of(env, "METRICS"))
    reader = PeriodicExportingMetricReader(exporter)
    return OtelMeter(MeterProvider([reader], resource_of(env), shutdown_on_exit=False))


def _attributes(name: str, labels: Labels) -> dict[str, str]:
    return dict(zip(BY_NAME[name].labels, labels, strict=True))
