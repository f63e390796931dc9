"""The body of a webhook: JSON stays JSON whatever happened."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.manifest.webhooks import NAMES, NUMBERS, body_fault, hook_request
from detent.model import Fire, Request
from detent.rules.planning import hook_fire

DUE = datetime(2026, 3, 1, 1, tzinfo=UTC)
FIRE = Fire(key="shop.settle@2026-03-01T01:00:00Z", job="shop.settle", due_at=DUE, run_id="r")
FACTS = {"outcome": "failed", "reason": "exit 3", "attempts": 2, "exit_code": 3, "duration_ms": 7}


def body_of(body: str, **facts: Any) -> str:
    fire = hook_fire(FIRE, "on_failure", DUE, {**FACTS, "output_tail": "", "instants": 1, **facts})
    return hook_request(Request("http://h/", body=body), fire).body


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ("{{app}} {{job}}", "shop settle"),
        ("{{ fire }}", "shop.settle@2026-03-01T01:00:00Z"),
        ("{{hook}} {{due}}", "on_failure 2026-03-01T01:00:00Z"),
        ("{{outcome}}: {{reason}} after {{attempts}}", "failed: exit 3 after 2"),
        ("{{exit_code}} {{duration_ms}} {{instants}}", "3 7 1"),
        ("no placeholder", "no placeholder"),
    ],
)
def test_a_placeholder_is_replaced_by_what_happened(body: str, sent: str) -> None:
    assert body_of(body) == sent


def test_a_number_that_is_not_there_is_null() -> None:
    assert body_of('{"code": {{exit_code}}}', exit_code=None) == '{"code": null}'


@given(st.text(), st.text())
def test_any_reason_and_any_output_leave_the_body_json(reason: str, tail: str) -> None:
    sent = body_of('{"a": "{{reason}}", "b": ["{{output_tail}}"]}', reason=reason, output_tail=tail)
    assert json.loads(sent) == {"a": reason, "b": [tail]}


def test_a_placeholder_in_a_value_is_text() -> None:
    assert body_of("{{reason}}", reason="{{fire}}") == "{{fire}}"


def test_without_a_body_the_fire_is_sent_and_a_type_of_its_own_is_kept() -> None:
    fire = hook_fire(FIRE, "on_failure", DUE, FACTS)
    plain = hook_request(Request("http://h/"), fire)
    assert (plain.body, plain.headers) == (fire.payload, (("Content-Type", "application/json"),))
    own = (("content-type", "text/plain"),)
    assert hook_request(Request("http://h/", headers=own, body="x"), fire).headers == own


@pytest.mark.parametrize("name", NAMES)
def test_every_placeholder_is_accepted_in_quotes_and_a_number_without(name: str) -> None:
    assert body_fault(f'{{"a": "{{{{{name}}}}}"}}', {}) == ("", "")
    if name in NUMBERS:
        assert body_fault(f'{{"a": {{{{{name}}}}}}}', {}) == ("", "")


def test_a_body_that_is_no_json_needs_a_type() -> None:
    assert body_fault("{{fire}} failed", {})[0] == "the body is not JSON"
    assert body_fault("{{fire}} failed", {"Content-Type": "text/plain"}) == ("", "")
