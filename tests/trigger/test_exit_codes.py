"""From the outcome of a fire to the exit code of its trigger."""

import pytest

from detent.model import Outcome
from detent.rules.outcomes import NEWER_INSTANT, contended, lane_taken, no_secret, paused, replaced_by
from detent.trigger.exit_codes import CONTENDED, EXHAUSTED, INTERNAL, OK, REJECTED, exit_code_of


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome("succeeded"), OK),
        (paused("for the move"), OK),
        (NEWER_INSTANT, OK),
        (Outcome("rejected", "HTTP 404"), REJECTED),
        (Outcome("failed", "exit 1"), EXHAUSTED),
        (Outcome("cancelled", "killed by ana@host", "stopped"), EXHAUSTED),
        (no_secret("env:KEY"), INTERNAL),
        (lane_taken("a.b@1"), CONTENDED),
        (contended("failed", "a.b@1"), CONTENDED),
        (replaced_by("a.b@2"), CONTENDED),
    ],
)
def test_the_cause_and_the_kind_choose_the_exit_code(outcome: Outcome, code: int) -> None:
    assert exit_code_of(outcome) == code


@pytest.mark.parametrize("reason", ["contended by a.b@1", "no secret resolves: x", "paused: x"])
def test_the_text_of_a_reason_changes_no_exit_code(reason: str) -> None:
    assert exit_code_of(Outcome("failed", reason)) == EXHAUSTED
