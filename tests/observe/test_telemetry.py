"""What a node within another program adds to the telemetry of that program."""

from __future__ import annotations

from typing import Any

import prometheus_client
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from tests.observe.test_node_metrics import claim

from detent.model import Outcome, Report, Verdict
from detent.observe.telemetry import Telemetry, process_telemetry


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def telemetry(events: list[str]) -> Telemetry:
    return process_telemetry("shop", lambda event, **fields: events.append(event))


def test_a_node_that_starts_again_in_its_process_goes_on_with_its_series(
    telemetry: Telemetry, events: list[str]
) -> None:
    telemetry.set_slots(["default"], 3)
    process_telemetry("shop", lambda event, **fields: None).set_slots(["default"], 5)
    labels = {"app": "shop", "queue": "default"}
    assert prometheus_client.REGISTRY.get_sample_value("detent_slots", labels) == 5


def test_a_registry_that_does_not_take_the_series_is_one_warning(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Gauge("detent_slots", "a series of the app", registry=registry)
    monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
    process_telemetry("shop", lambda event, **fields: events.append(event))
    assert events == ["metrics-unsent"]


def test_a_span_processor_of_the_user_that_raises_is_one_warning(
    telemetry: Telemetry, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(SpanProcessor):
        def on_end(self, span: Any) -> None:
            raise ValueError("no")

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    for _ in range(2):
        telemetry.watches[0].ended([Report(claim(), Verdict(Outcome("succeeded")))], [None])
    assert events == ["traces-unsent"]
