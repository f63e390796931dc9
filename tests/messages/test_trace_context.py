"""Trace contexts: what a message carries, and the ids of the spans of a fire."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.manifest.secret_refs import Secret
from detent.messages.envelope import MessageBody, MessageRules, Refusal, open_envelope, seal
from detent.messages.trace_context import (
    TraceContext,
    attempt_context,
    caller_context,
    carried_trace,
    fire_context,
    parse_trace,
    traced_request,
)
from detent.model import Claim, Fire, Job, Request
from detent.rules.planning import hook_fire, manual_fire

AT = datetime(2026, 3, 1, 2, tzinfo=UTC)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"
PARENT = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "01")
KEY = Secret("a secret of thirty-two characters")
FIRE = Fire(key="a.b#1", job="a.b", due_at=AT, run_id="r1", origin="push")
VALUES = st.recursive(
    st.sampled_from([f',"trace":"{OTHER}","args":', '"trace"', ',"args":', OTHER]) | st.text(),
    lambda inner: st.dictionaries(st.sampled_from(["trace", "args"]) | st.text(), inner, max_size=3),
)


def claim(fire: Fire, attempt: int = 1, fence: int = 7) -> Claim:
    return Claim(fire, "n.1", fence, attempt, ttl_s=30, expires_at=AT)


def sealed(trace: str, key: str = "a.b#1", args: Any = ()) -> Fire:
    fire = FIRE._replace(key=key)
    return fire._replace(payload=seal(fire, MessageBody("b", json.dumps(args), 1.0, trace=trace), (KEY,)))


@pytest.mark.parametrize(
    "text",
    ["", "00", TRACE.upper(), TRACE + "-00", "01" + TRACE[2:], f"00-{32 * '0'}-b7ad6b7169203331-01"],
)
def test_a_text_that_is_no_traceparent_of_version_00_is_not_one(text: str) -> None:
    assert parse_trace(text) is None


def test_a_traceparent_is_read_and_written() -> None:
    assert parse_trace(TRACE) == PARENT and str(PARENT) == TRACE


@given(
    key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | VALUES.map(str), args=st.lists(VALUES)
)
def test_what_a_message_carries_is_found_whatever_its_key_and_arguments_contain(key: str, args: Any) -> None:
    assert carried_trace(claim(sealed(TRACE, key, args))) == TRACE
    assert carried_trace(claim(sealed("", key, args))) == ""


def test_only_a_message_carries_a_context() -> None:
    assert carried_trace(claim(sealed(TRACE)._replace(origin="manual"))) == ""


def test_the_context_is_signed() -> None:
    fire, rules = sealed(TRACE), MessageRules((KEY,), {"b": None})
    opened = open_envelope(fire, rules)
    assert isinstance(opened, MessageBody) and opened.trace == TRACE
    forged = open_envelope(fire._replace(payload=fire.payload.replace(TRACE, OTHER)), rules)
    assert isinstance(forged, Refusal) and forged.fault == "forged"


def test_every_node_computes_the_same_ids_and_each_span_has_its_own() -> None:
    fire = fire_context(FIRE, None)
    assert fire == fire_context(FIRE._replace(queue="q"), None)
    spans = [fire, *(attempt_context(claim(FIRE, *one), fire) for one in ((1, 7), (2, 8), (1, 9)))]
    assert len({span.span_id for span in spans}) == 4 and {span.trace_id for span in spans} == {fire.trace_id}
    assert all(parse_trace(str(span)) == span for span in spans)
    assert fire_context(FIRE, PARENT).trace_id == PARENT.trace_id
    assert fire_context(FIRE, PARENT._replace(flags="00")).flags == "00"


def test_a_hook_finds_the_context_of_its_fire() -> None:
    fire = manual_fire(Job("a.b", schedule=None, work=None), AT, "x")  # type: ignore[arg-type]
    hook = hook_fire(fire, "on_failure", AT, {})
    assert caller_context(hook, None) == fire_context(fire, None) != fire_context(hook, None)


def test_a_request_gets_the_context_unless_it_has_its_own() -> None:
    request = Request("http://a/")
    assert traced_request(request, TRACE, "a=b").headers == (("traceparent", TRACE), ("tracestate", "a=b"))
    assert traced_request(request, "") == request
    own = request._replace(headers=(("Traceparent", OTHER),))
    assert traced_request(own, TRACE) == own
