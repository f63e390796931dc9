"""Keeps series for Prometheus, in its text format or in OpenMetrics, which has exemplars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.observe.metrics.series import BY_NAME, NODE, Labels, Series
from detent.observe.otel import need

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


SUMMED = ("detent_running", "detent_slots")  # gauges that add up over the processes of a web server


class PrometheusMeter:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """None: a registry of its own."""
        client = import_client("--metrics")
        if registry is None:
            client.disable_created_metrics()  # otherwise each counter has a second series
        self.registry: CollectorRegistry = registry or client.CollectorRegistry()
        kinds = {"counter": client.Counter, "gauge": client.Gauge, "histogram": client.Histogram}
        self._made: dict[str, Any] = {
            one.name: kinds[one.kind](one.name, one.help, one.labels, registry=self.registry, **_more_of(one))
            for one in NODE
        }

    def record(self, name: str, labels: Labels, value: float, run_id: str = "") -> None:
        made = self._made[name].labels(*labels) if labels else self._made[name]
        match BY_NAME[name].kind:
            case "counter":
                made.inc(value)
            case "gauge":
                made.set(value)
            case "histogram":
                made.observe(value, {"run_id": run_id} if run_id else None)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the series, and their content type."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


def _more_of(series: Series) -> dict[str, Any]:
    if series.kind == "gauge":
        return {"multiprocess_mode": "livesum" if series.name in SUMMED else "livemax"}
    return {"buckets": series.bounds} if series.bounds else {}


def import_client(option: str) -> Any:
    try:
        import prometheus_client
    except ModuleNotFoundError:
        raise need("prometheus", option, "prometheus_client") from None
    return prometheus_client
