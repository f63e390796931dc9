"""Trace contexts as W3C `traceparent` texts: which one a message carries, and which one an attempt gets.

The ids of a fire's spans are computed from the fire, alike on every node.  So the attempts of a fire belong
to one trace, whichever node makes them, and no node has to remember a span that is not over.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import NamedTuple

from detent.model import Claim, Fire, Request
from detent.rules.planning import run_id

HEADER, VARIABLE = "traceparent", "TRACEPARENT"
SAMPLED = "01"
_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_CARRIED = re.compile(r',"trace":"([0-9a-f-]{55})"\Z')


class TraceContext(NamedTuple):
    trace_id: str  # 32 hex digits
    span_id: str  # 16 hex digits
    flags: str = SAMPLED

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def parse_trace(text: str) -> TraceContext | None:
    """Return the context, or None if the text is not a valid `traceparent` of version 00."""
    found = _TRACEPARENT.fullmatch(text)
    return TraceContext(*found.groups()) if found else None


def carried_trace(claim: Claim) -> str:
    """Return the `traceparent` of the span that pushed this message, or "".  The message must be verified.

    The envelope has it right before the arguments, whose content is anything (`envelope.Sealer`)."""
    fire = claim.fire
    if fire.origin != "push" or '"trace"' not in fire.payload:
        return ""
    found = _CARRIED.search(fire.payload.partition(',"args":')[0])
    return found[1] if found and parse_trace(found[1]) else ""


def fire_context(fire: Fire, parent: TraceContext | None) -> TraceContext:
    trace_id = parent.trace_id if parent else _hex_id(f"trace {fire.run_id}", 32)
    return TraceContext(
        trace_id, _hex_id(f"fire {fire.run_id} {fire.key}", 16), parent.flags if parent else SAMPLED
    )


def caller_context(hook: Fire, parent: TraceContext | None) -> TraceContext:
    """Return the context of the fire that called this hook."""
    key, due_at = json.loads(hook.payload)["fire"], hook.first_at or hook.due_at
    return fire_context(hook._replace(key=key, run_id=run_id(due_at, key)), parent)


def attempt_context(claim: Claim, fire: TraceContext) -> TraceContext:
    """Return the context of the span of this attempt."""
    one = f"attempt {claim.fire.run_id} {claim.fire.key} {claim.attempt} {claim.fence}"
    return fire._replace(span_id=_hex_id(one, 16))


def _hex_id(text: str, digits: int) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def traced_request(request: Request, trace: str, state: str = "") -> Request:
    """Add the context to the headers, unless the request has its own."""
    if not trace or any(name.lower() == HEADER for name, _ in request.headers):
        return request
    added = ((HEADER, trace), *([("tracestate", state)] if state else []))
    return request._replace(headers=request.headers + added)
