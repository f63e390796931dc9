"""Outcomes as texts, and what Lua and SQL must not know or must know alike."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent import model
from detent.model import CAUSES, Outcome
from detent.rules.trust import STEP_S
from detent.runners import lifeline as runners_base
from detent.runners.call import child_batch
from detent.stores import base, encoding
from detent.stores.engine.driver import VIEW_S
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


@given(OUTCOMES)
def test_an_outcome_of_python_is_read_as_it_was_written(outcome: Outcome) -> None:
    assert encoding.read_outcome(encoding.outcome_text(outcome)) == outcome


def test_no_lua_or_sql_names_a_policy() -> None:
    policies = re.compile(r"\b(Forbid|Replace|Queue|Allow|catch_up|paused|missed|breakers?|retr(y|ies))\b")
    for path in (*STORES.rglob("*.lua"), *STORES.rglob("*.sql")):
        assert not policies.search(path.read_text()), path


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
        ("header.lua", r"ORPHANS_TTL_S = (\S+)", base.ORPHANS_TTL_S),
        ("header.lua", r"local STEP_S = (\S+)", STEP_S),
        ("header.lua", r"SINCE_2020_S, FENCE_STEP = ([^,]+),", base.SINCE_2020_S),
        ("header.lua", r"SINCE_2020_S, FENCE_STEP = [^,]+, (\S+)", 1 << base.FENCE_SHIFT),
        ("commit.lua", r"VIEW_S = (\S+)", VIEW_S),
    ],
)
def test_a_limit_in_lua_or_sql_is_the_one_in_python(file: str, pattern: str, value: float) -> None:
    found = re.findall(pattern, next(STORES.rglob(file)).read_text())
    assert found and {float(one) for one in found} == {value}


def test_the_programs_of_one_attempt_keep_the_same_amount_of_output_and_error() -> None:
    assert runners_base.TAIL_MAX == output.TAIL_MAX == child_batch.TAIL_MAX
    assert batch_message.ERROR_MAX == warm_children.ERROR_MAX
