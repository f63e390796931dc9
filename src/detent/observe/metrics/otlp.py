"""Keeps series with OpenTelemetry: for a collector, or for the meter provider of this process."""

from collections.abc import Callable, Mapping
from typing import Any

from detent import __version__
from detent.observe.metrics.series import BY_NAME, NODE, Labels
from detent.observe.otel import Unsent, make_exporter, need, resource_of, shut_down, timeout_of

VERBS = {"counter": "add", "gauge": "set", "histogram": "record"}


class OtelMeter:
    def __init__(self, provider: Any) -> None:
        self._provider, meter = provider, provider.get_meter("detent", __version__)
        self._records: dict[str, Callable[[float, dict[str, str]], None]] = {}
        for one in NODE:
            more = {"unit": "s", "explicit_bucket_boundaries_advisory": one.bounds} if one.bounds else {}
            create = getattr(meter, f"create_{one.kind}")
            made = create(one.name, description=one.help, **more)
            self._records[one.name] = getattr(made, VERBS[one.kind])

    def record(self, name: str, labels: Labels, value: float, run_id: str = "") -> None:
        self._records[name](value, dict(zip(BY_NAME[name].labels, labels, strict=True)))

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
