"""The trace context of a call: what it pushes and starts belongs to it, and its spans have their parent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from detent import Detent
from detent.messages.trace_context import carried_trace
from detent.model import Ask, Claim
from detent.runners.call.trace import current_trace, within

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARENT = int(TRACE.split("-")[2], 16)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans of a process that has set up OpenTelemetry.  The provider of a process is set only once."""
    kept, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(otel, "get_tracer", provider.get_tracer)
    return kept


def test_a_call_has_its_context_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    with within(TRACE, "m:f", exports=True):
        assert current_trace() == os.environ["TRACEPARENT"] == TRACE
    assert current_trace() == "" and "TRACEPARENT" not in os.environ


def test_the_variable_of_the_process_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", "before")
    with within(TRACE, "m:f", exports=True):
        assert os.environ["TRACEPARENT"] == TRACE
    assert os.environ["TRACEPARENT"] == "before" == current_trace()


def test_calls_at_the_same_time_have_their_own_contexts() -> None:
    async def call(context: str) -> str:
        with within(context, "m:f"):
            await asyncio.sleep(0)
            return current_trace()

    async def both() -> list[str]:
        return await asyncio.gather(call(TRACE), call(TRACE.replace("0a", "0b")))

    assert asyncio.run(both()) == [TRACE, TRACE.replace("0a", "0b")]


def test_a_call_is_a_span_of_the_users_provider_linked_to_its_parent(
    spans: InMemorySpanExporter,
) -> None:
    with within(TRACE, "m:f"), otel.get_tracer("user").start_as_current_span("inner"):
        inside = current_trace()
    inner, call = spans.get_finished_spans()
    assert (inner.name, call.name) == ("inner", "call m:f")
    assert call.parent and call.parent.span_id == PARENT
    assert [link.context.span_id for link in call.links] == [PARENT]
    assert inner.parent == call.context and call.context and inner.context
    assert inside.startswith(f"00-{call.context.trace_id:032x}-{inner.context.span_id:016x}-")


def test_a_call_that_raises_is_a_failed_span(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="no"), within("", "m:f"):
        raise ValueError("no")
    [call] = spans.get_finished_spans()
    assert call.status.status_code is otel.StatusCode.ERROR and call.parent is None


def pushed(app: Detent) -> list[Claim]:
    return [*app.open_store().claim(Ask("a", "n.1", 1, limit=9)).claims]


def test_a_push_is_a_producer_span_and_its_messages_carry_its_context(spans: InMemorySpanExporter) -> None:
    app = Detent("a", store="memory:")
    task = app.task(queue="default")(lambda_task)
    with otel.get_tracer("user").start_as_current_span("request"):
        task.push_many([(), ()])
    push, request = spans.get_finished_spans()
    assert push.context and push.parent == request.context and push.kind is otel.SpanKind.PRODUCER
    assert dict(push.attributes or {}) == {
        "messaging.system": "detent",
        "messaging.destination.name": "default",
        "messaging.operation.name": "push",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 2,
    }
    ids, flags = push.context, push.context.trace_flags
    carried = f"00-{ids.trace_id:032x}-{ids.span_id:016x}-{flags:02x}"
    assert [carried_trace(claim) for claim in pushed(app)] == [carried, carried]


def lambda_task() -> None:
    """A task."""


def test_without_a_trace_a_message_carries_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", "not a context")
    app = Detent("a", store="memory:")
    app.task(queue="default")(lambda_task).push()
    assert ['"trace"' in claim.fire.payload for claim in pushed(app)] == [False]


def test_a_push_does_not_import_opentelemetry() -> None:
    code = (
        "import sys, detent\n"
        "app = detent.Detent('a', store='memory:')\n"
        "@app.task\n"
        "def f() -> None: ...\n"
        "f.push()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"
