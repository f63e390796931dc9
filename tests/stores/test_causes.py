"""Outcomes as texts: what Python writes, and what Lua and SQL write without a cause."""

import ast
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent import model
from detent.model import CAUSES, Outcome, Policy, Rate
from detent.rules.breakers import PROBING_S
from detent.rules.lanes import LATE_S
from detent.rules.outcomes import (
    CLAIM_GONE,
    JOB_REMOVED,
    NEWER_INSTANT,
    contended,
    lane_awaited,
    lane_taken,
    missed,
    node_lost,
    paused,
    replaced_by,
)
from detent.rules.rates import MARGIN_S, START_S
from detent.rules.trust import STEP_S
from detent.runners import lifeline as runners_base
from detent.runners.call import child_batch
from detent.stores import base, encoding
from detent.stores.causes import outcome_decided_by_store
from detent.stores.redis import values
from detent.warden.program import output, warm_children
from detent.worker import batch_message

KINDS = ("succeeded", "failed", "rejected", "timed-out", "skipped", "replaced", "lost", "missed", "cancelled")
STORES = Path(base.__file__).parent
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
OUTCOMES = st.builds(
    Outcome,
    st.sampled_from(KINDS),
    TEXTS,
    st.sampled_from([*CAUSES]),
    st.just("a.b@1") | st.just(""),
)
START_BY = datetime(2026, 3, 1, 2, tzinfo=UTC)
DECIDED = {  # as Lua and SQL write it
    "lost with n1": node_lost("n1"),
    "lost no longer ours": CLAIM_GONE,
    "cancelled its job was removed": JOB_REMOVED,
    "skipped paused": paused(""),
    "skipped paused: by ana: lane": paused("by ana: lane"),
    "missed not started by 2026-03-01T02:00:00Z": missed(START_BY),
    "missed a newer instant is due": NEWER_INSTANT,
    "skipped by a.b@1": lane_taken("a.b@1"),
    "skipped a.b@1 waits already": lane_awaited("a.b@1"),
    "failed contended by a.b@1": contended("failed", "a.b@1"),
    "lost contended by a.b@1": contended("lost", "a.b@1"),
    "replaced by a.b@1": replaced_by("a.b@1"),
}


@given(OUTCOMES)
def test_an_outcome_of_python_is_read_as_it_was_written(outcome: Outcome) -> None:
    assert encoding.read_outcome(encoding.outcome_text(outcome)) == outcome


@pytest.mark.parametrize("text", DECIDED)
def test_an_outcome_that_lua_or_sql_decided_is_translated(text: str) -> None:
    assert encoding.read_outcome(text) == DECIDED[text]


@pytest.mark.parametrize("language", ["lua", "sql"])
def test_every_outcome_in_lua_and_sql_has_its_translation(language: str) -> None:
    """A new text there would get the cause "work"."""
    kinds = "|".join(KINDS)
    found = set[str]()
    for path in STORES.rglob(f"*.{language}"):
        found |= set(re.findall(f"[\"'](?:{kinds}) ([a-z][^\"'%\\n]*)[\"']", path.read_text()))
    written = {text.strip() for text in found} - {"backend:", "and"}
    assert written and all(any(text in known for known in DECIDED) for text in written), written


def test_an_unknown_text_gets_the_cause_work() -> None:
    assert outcome_decided_by_store("failed", "exit 1") == Outcome("failed", "exit 1", "work")


@pytest.mark.parametrize("file", ["gates.lua", "gates.sql"])
def test_lua_and_sql_know_a_backend_error_by_what_python_writes(file: str) -> None:
    known = re.findall("[\"'](failed backend: )[\"']", next(STORES.rglob(file)).read_text())
    assert known and set(known) == {"failed backend: "}
    assert encoding.outcome_text(Outcome("failed", "refused", "backend")).startswith(known[0])
    assert not encoding.outcome_text(Outcome("failed", "backend: refused")).startswith(known[0])


def test_every_cause_has_its_meaning() -> None:
    assigned = {
        node.targets[0].id: node.value
        for node in ast.parse(Path(model.__file__).read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    literal = assigned["Cause"]
    assert isinstance(literal, ast.Subscript)
    assert list(ast.literal_eval(literal.slice)) == list(model.CAUSES)


# Limits that Lua, SQL and the warden's program cannot import.


@pytest.mark.parametrize(
    ("file", "pattern", "value"),
    [
        ("lanes.lua", r"LATE_S = (\S+)", LATE_S),
        ("plan.lua", r"RETURN_S = (\S+)", base.RETURN_S),
        ("header.lua", r"ORPHANS_TTL_S = (\S+)", base.ORPHANS_TTL_S),
        ("header.lua", r"local STEP_S = (\S+)", STEP_S),
        ("header.lua", r"FIRST_TEXT = (\S+)", values.FIRST_TEXT),
        ("gates.lua", r"START_S, MARGIN_S, PROBING_S, BACKEND = ([^,]+),", START_S),
        ("gates.lua", r"START_S, MARGIN_S, PROBING_S, BACKEND = [^,]+, ([^,]+),", MARGIN_S),
        ("gates.lua", r"START_S, MARGIN_S, PROBING_S, BACKEND = [^,]+, [^,]+, ([^,]+),", PROBING_S),
        ("claim.sql", r"due \+ (\d+) >= here.wall", LATE_S),
        ("claim.sql", r"due < here.wall - (\d+)", LATE_S),
        ("grant.sql", r"here.wall - (\d+)", LATE_S),
        ("lanes.sql", r"due \+ (\d+) < now", LATE_S),
        ("gates.sql", r"'window_s'\)::float8, (\d+)\)", Rate(1).window_s),
        ("gates.sql", r"'breaker_cooldown_s'\)::float8, (\d+)\)", Policy().breaker_cooldown_s),
    ],
)
def test_a_limit_in_lua_or_sql_is_the_one_in_python(file: str, pattern: str, value: float) -> None:
    found = re.findall(pattern, next(STORES.rglob(file)).read_text())
    assert found and {float(one) for one in found} == {value}


def test_the_programs_of_one_attempt_keep_the_same_amount_of_output_and_error() -> None:
    assert runners_base.TAIL_MAX == output.TAIL_MAX == child_batch.TAIL_MAX
    assert batch_message.ERROR_MAX == warm_children.ERROR_MAX
