"""Makes OpenTelemetry spans: one for a fire, from when it was due to its end, with one child for each
attempt that ran.

- `otlp` sends them to a collector, and `file:PATH` appends them to a file, one JSON object a line.
- The span of a message is a child of the span that pushed it, and linked to it.
- Spans are made when the store has recorded an end; their ids are known before (`messages.trace_context`).
- A node sends them in the background.  A trigger sends them before it exits: it forks, and has no threads.
- A node in a web process adds them to those of its process.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from detent import __version__, clock
from detent.errors import UsageError
from detent.messages import trace_context
from detent.model import Claim, Fire, Outcome, Report, Verdict
from detent.observe.otel import Unsent, make_exporter, need, resource_of, shut_down, timeout_of
from detent.rules.planning import rfc3339
from detent.rules.rates import without_priority
from detent.text import quote

OTLP, FILE = "otlp", "file:"
GOOD = frozenset(("succeeded", "skipped", "replaced", "cancelled"))
NS = 1_000_000_000
API = "opentelemetry.trace"


class Traces:
    def __init__(self, sampler: Any, resource: Any, processor: Any, env: Mapping[str, str]) -> None:
        """`processor` gets the spans.  The fires belong to the trace that `env` names, if it does."""
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._sampler, self._resource, self._processor = sampler, resource, processor
        self._scope = InstrumentationScope("detent", __version__)
        self._given = trace_context.parse_trace(env.get(trace_context.VARIABLE, ""))
        self._state = {"TRACESTATE": env["TRACESTATE"]} if self._given and env.get("TRACESTATE") else {}

    def of(self, claim: Claim) -> str:
        """Return the `traceparent` of this attempt."""
        return str(trace_context.attempt_context(claim, self._context(claim)))

    def variables(self, claim: Claim) -> dict[str, str]:
        return {trace_context.VARIABLE: self.of(claim), **self._state}

    def ended(self, reports: Sequence[Report], verdicts: Sequence[Verdict | None]) -> None:
        """Make the spans of these ends."""
        for report, verdict in zip(reports, verdicts, strict=True):
            claim, end = report.claim, verdict or report.verdict
            context = self._context(claim)
            if claim.disposition is None and end.counts:
                self._add_attempt(report, end.outcome, context)
            if verdict and verdict.again_in_s is None:
                self._add_fire(report, verdict.outcome, context)

    def close(self) -> None:
        """Send the spans that were not sent."""
        shut_down(self._processor.shutdown)

    # Contexts.

    def _parent(self, claim: Claim) -> trace_context.TraceContext | None:
        if claim.fire.origin == "hook":
            return trace_context.caller_context(claim.fire, self._given)
        return trace_context.parse_trace(trace_context.carried_trace(claim)) or self._given

    def _context(self, claim: Claim) -> trace_context.TraceContext:
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        parent = self._parent(claim)
        context = trace_context.fire_context(claim.fire, parent)
        within = set_span_in_context(NonRecordingSpan(_span_context(parent))) if parent else None
        decided: Any = self._sampler.should_sample(within, int(context.trace_id, 16), _name(claim.fire))
        return context._replace(flags="01" if decided.decision.is_sampled() else "00")

    # Spans.

    def _add_attempt(self, report: Report, outcome: Outcome, fire: trace_context.TraceContext) -> None:
        claim = report.claim
        about = {"attempt": claim.attempt, "node": claim.node, "fence": claim.fence, "status": report.status}
        self._add(
            f"attempt {claim.attempt}",
            trace_context.attempt_context(claim, fire),
            parent=_span_context(fire),
            outcome=outcome,
            attributes=_attributes(claim.fire, about | _about(outcome)),
            took_s=report.took_s,
        )

    def _add_fire(self, report: Report, outcome: Outcome, context: trace_context.TraceContext) -> None:
        from opentelemetry.trace import Link, SpanKind

        claim, fire, parent = report.claim, report.claim.fire, self._parent(report.claim)
        is_message = fire.origin == "push"
        about = {"attempts": claim.attempt, "last_status": report.status, "due": rfc3339(fire.due_at)}
        linked = _span_context(parent) if parent else None
        self._add(
            _name(fire),
            context,
            parent=linked,
            outcome=outcome,
            attributes=_attributes(fire, about | _about(outcome)) | (_messaging(fire) if is_message else {}),
            took_s=max(clock.wall() - fire.due_at.timestamp(), report.took_s),
            links=[Link(linked)] if linked and is_message else [],
            kind=SpanKind.CONSUMER if is_message else SpanKind.INTERNAL,
        )

    def _add(
        self, name: str, context: trace_context.TraceContext, *, outcome: Outcome, took_s: float, **more: Any
    ) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Status, StatusCode

        end_time = int(clock.wall() * NS)
        span = ReadableSpan(
            name,
            _span_context(context),
            resource=self._resource,
            status=Status()
            if outcome.kind in GOOD
            else Status(StatusCode.ERROR, outcome.reason or outcome.kind),
            start_time=end_time - int(took_s * NS),
            end_time=end_time,
            instrumentation_scope=self._scope,
            **more,
        )
        if context.flags != "00":
            self._processor.on_end(span)


def exported_traces(target: str, env: Mapping[str, str], unsent: Unsent, *, is_brief: bool = False) -> Traces:
    """`is_brief`: for a trigger, whose fires belong to the trace of its environment."""
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = _otlp_exporter(env, unsent) if target == OTLP else _file_exporter(target, unsent)
    except ModuleNotFoundError:
        raise need("otel", "--otel", "OpenTelemetry") from None
    sampler = TracerProvider(shutdown_on_exit=False).sampler  # as OTEL_TRACES_SAMPLER says
    processor = _AtTheEnd(exporter) if is_brief else BatchSpanProcessor(exporter)
    return Traces(sampler, resource_of(env), processor, env if is_brief else {})


class _AtTheEnd:
    """A span processor without a thread."""

    def __init__(self, exporter: Any) -> None:
        self._exporter, self._spans = exporter, list[Any]()
        self.on_end = self._spans.append

    def shutdown(self) -> None:
        if self._spans:
            self._exporter.export(self._spans)
            self._exporter.shutdown()


class ProcessTraces:
    """Adds spans to those of the tracer provider that this process has set up: before the node or after it.
    The process owns the provider, and exports the spans."""

    def __init__(self, unsent: Unsent) -> None:
        self._unsent, self._has_failed = unsent, False

    def of(self, claim: Claim) -> str:
        traces = _traces_of_process()
        return traces.of(claim) if traces else trace_context.carried_trace(claim)

    def ended(self, reports: Sequence[Report], verdicts: Sequence[Verdict | None]) -> None:
        try:
            if traces := _traces_of_process():
                traces.ended(reports, verdicts)
        except Exception as error:  # a span processor of the user may raise anything
            if not self._has_failed:
                self._unsent(f"{type(error).__name__}: {error}")
            self._has_failed = True


def _traces_of_process() -> Traces | None:
    """Return None if the process has no tracer provider of OpenTelemetry's SDK."""
    otel: Any = sys.modules.get(API)
    return _traces_of(otel.get_tracer_provider()) if otel else None


@lru_cache(maxsize=1)
def _traces_of(provider: Any) -> Traces | None:
    tracer = provider.get_tracer("detent", __version__)
    if not hasattr(tracer, "span_processor"):
        return None
    return Traces(tracer.sampler, tracer.resource, tracer.span_processor, {})


def check_target(text: str) -> str:
    """Return the value of `--otel`, or raise."""
    if text != OTLP and not (text.startswith(FILE) and text != FILE):
        raise UsageError(
            f"bad value {quote(text)} of --otel: write file:PATH, or only --otel for the collector that the "
            "OTEL_… variables name; after --otel without a value, another option has to follow, or nothing"
        )
    return text


def _name(fire: Fire) -> str:
    if fire.origin == "push":
        return f"process {without_priority(fire.queue)}"
    return f"{'hook' if fire.origin == 'hook' else 'fire'} {fire.job}"


def _messaging(fire: Fire) -> dict[str, Any]:
    return {
        "messaging.system": "detent",
        "messaging.destination.name": without_priority(fire.queue),
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": fire.key,
    }


def _about(outcome: Outcome) -> dict[str, Any]:
    cause = None if outcome.kind == "succeeded" else outcome.cause
    return {"outcome": outcome.kind, "reason": outcome.reason or None, "cause": cause}


def _attributes(fire: Fire, about: Mapping[str, Any]) -> dict[str, Any]:
    app, _, job = fire.job.partition(".")
    everything = {"app": app, "job": job, "fire": fire.key, "run_id": fire.run_id, **about}
    return {f"detent.{name}": value for name, value in everything.items() if value is not None}


def _span_context(context: trace_context.TraceContext) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    ids = int(context.trace_id, 16), int(context.span_id, 16)
    return SpanContext(*ids, is_remote=True, trace_flags=TraceFlags(int(context.flags, 16)))


def _otlp_exporter(env: Mapping[str, str], unsent: Unsent) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return make_exporter(OTLPSpanExporter, unsent, **timeout_of(env, "TRACES"))


def _file_exporter(target: str, unsent: Unsent) -> Any:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    path = check_target(target).removeprefix(FILE)
    try:
        file = open(path, "a", encoding="utf-8")  # noqa: PTH123, SIM115 (until the process ends)
    except OSError as error:
        raise UsageError(f"--otel cannot write to {path}: {error.strerror}") from None
    return make_exporter(ConsoleSpanExporter, unsent, out=file, formatter=_json_line)


def _json_line(span: Any) -> str:
    return f"{span.to_json(indent=None)}\n"
