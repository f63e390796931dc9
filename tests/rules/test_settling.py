"""What happens to a fire after an attempt, and which hooks are called."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.model import Claim, Concurrency, End, Fire, Kind, Outcome, Policy, Retries, Verdict
from detent.rules.outcomes import contended, node_lost
from detent.rules.settling import (
    RETURN_DELAY_S,
    TAIL_MAX,
    admit,
    backoff_s,
    lane_busy,
    report,
    return_claim,
    settle,
)

NOW = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
THRICE = Retries(max_attempts=3)
HOOKS = ("on_success", "on_failure", "on_failure.1", "on_skip", "on_late")


def claim(policy: Policy, attempt: int = 1, disposition: Outcome | None = None) -> Claim:
    fire = Fire("a.b@1", "a.b", NOW, queue="db", policy=policy, revision="r1")
    return Claim(fire, "n1", 7, attempt, 30.0, NOW, disposition)


def again_in_s(end: End, one: Claim) -> float | None:
    verdict = settle(end, one, Random(1))
    assert verdict.outcome == end.outcome
    assert verdict.counts
    return verdict.again_in_s


class Case(NamedTuple):
    name: str
    kind: Kind
    again: bool
    status: int | None = None
    retries: Retries = THRICE
    rerun: bool = False
    attempt: int = 1


CASES = [
    Case("a failed exit code", "failed", True, 1),
    Case("a failure without a status", "failed", True),
    Case("an exit code that is named", "failed", True, 75, THRICE._replace(on_exit_codes=(75,))),
    Case("an exit code that is not named", "failed", False, 1, THRICE._replace(on_exit_codes=(75,))),
    Case("no exit code where codes are named", "failed", True, None, THRICE._replace(on_exit_codes=(75,))),
    Case("a time-out", "timed-out", True),
    Case("a rejection", "rejected", False, 404),
    Case("a rejection whose status is named", "rejected", True, 429, THRICE._replace(on_status=(429,))),
    Case("a rejection whose status is not named", "rejected", False, 404, THRICE._replace(on_status=(429,))),
    Case("a loss", "lost", False),
    Case("a loss that is to be rerun", "lost", True, rerun=True),
    Case("a success", "succeeded", False, 0),
    Case("a skip", "skipped", False),
    Case("a replacement", "replaced", False),
    Case("a miss", "missed", False),
    Case("a cancellation", "cancelled", False),
    Case("the second of three attempts", "failed", True, 1, attempt=2),
    Case("the last of three attempts", "failed", False, 1, attempt=3),
    Case("a failure where one attempt is all", "failed", False, 1, Retries(max_attempts=1)),
    Case("a loss to be rerun where one attempt is all", "lost", True, None, Retries(max_attempts=1), True),
    Case("the second such loss", "lost", False, None, Retries(max_attempts=1), True, attempt=2),
    Case("a failure of such a rerun", "failed", False, 1, Retries(max_attempts=1), True, attempt=2),
    Case("the third loss of three attempts", "lost", False, None, THRICE, True, attempt=3),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_whether_another_attempt_follows(case: Case) -> None:
    policy = Policy(retries=case.retries, on_lost="rerun" if case.rerun else "skip")
    end = End(Outcome(case.kind, "why"), case.status)
    assert (again_in_s(end, claim(policy, case.attempt)) is not None) == case.again


@pytest.mark.parametrize(
    ("attempt", "wait_s"), [(1, 1.5), (2, 3.0), (3, 6.0), (4, 10.0), (5, 10.0), (5000, 10.0)]
)
def test_the_backoff_doubles_up_to_its_limit(attempt: int, wait_s: float) -> None:
    assert backoff_s(attempt, Retries(min_s=1.5, max_s=10.0), Random(1)) == wait_s


@given(st.integers(1, 100), st.floats(0, 1), st.integers(0, 1000))
def test_jitter_stays_within_its_fraction(attempt: int, jitter: float, seed: int) -> None:
    retries = Retries(min_s=1.0, max_s=64.0, jitter=jitter)
    plain = backoff_s(attempt, retries._replace(jitter=0.0), Random(seed))
    wait_s = backoff_s(attempt, retries, Random(seed))
    assert plain * (1 - jitter) - 1e-9 <= wait_s <= plain * (1 + jitter) + 1e-9


def test_jitter_spreads() -> None:
    retries = Retries(min_s=10.0, jitter=0.5)
    assert len({backoff_s(1, retries, Random(seed)) for seed in range(20)}) == 20


@pytest.mark.parametrize(
    ("asked_s", "wait_s"), [(None, 2.0), (0.0, 2.0), (1.0, 2.0), (7.0, 7.0), (20.0, 20.0), (9999.0, 20.0)]
)
def test_retry_after_is_honoured_within_bounds(asked_s: float | None, wait_s: float) -> None:
    policy = Policy(retries=Retries(max_attempts=2, min_s=2.0, max_s=20.0))
    assert again_in_s(End(Outcome("failed"), 503, again_after_s=asked_s), claim(policy)) == wait_s


def test_a_claim_without_a_disposition_runs() -> None:
    assert admit(claim(Policy()), Random(1)) is None


@pytest.mark.parametrize("kind", ["skipped", "missed", "replaced", "cancelled"])
def test_a_disposition_is_final(kind: Kind) -> None:
    policy, disposition = Policy(retries=THRICE, on_lost="rerun"), Outcome(kind, "why")
    assert admit(claim(policy, 1, disposition), Random(1)) == Verdict(disposition)


def test_a_lost_attempt_is_settled_by_policy() -> None:
    disposition = node_lost("n0")
    assert admit(claim(Policy(), 1, disposition), Random(1)) == Verdict(disposition)
    rerun = admit(claim(Policy(on_lost="rerun"), 1, disposition), Random(1))
    assert rerun == Verdict(disposition, again_in_s=1.0)


@pytest.mark.parametrize("kind", ["lost", "failed", "timed-out"])
def test_a_contended_retry_is_over(kind: Kind) -> None:
    disposition, policy = contended(kind, "a.b@2"), Policy(retries=THRICE, on_lost="rerun")
    assert admit(claim(policy, 1, disposition), Random(1)) == Verdict(disposition)


def test_a_returned_claim_counts_no_attempt_and_is_due_soon() -> None:
    verdict = return_claim("its node stops", "shutdown")
    assert verdict == Verdict(Outcome("lost", "its node stops", "shutdown"), RETURN_DELAY_S, counts=False)


def follow(kind: Kind, policy: Policy, **fields: object) -> list[Fire]:
    one = claim(policy, attempt=2)
    end = End(Outcome(kind, "exit 3"), 3, took_s=1.2345, tail=b"x" * 9999 + b"\xff end")
    fire = one.fire._replace(**fields)  # type: ignore[arg-type]
    return list(report(one._replace(fire=fire), Verdict(end.outcome), end, NOW).follow)


@pytest.mark.parametrize(
    ("kind", "hooks"),
    [
        ("succeeded", ["on_success"]),
        ("failed", ["on_failure", "on_failure.1"]),
        ("rejected", ["on_failure", "on_failure.1"]),
        ("timed-out", ["on_failure", "on_failure.1"]),
        ("lost", ["on_failure", "on_failure.1"]),
        ("missed", ["on_failure", "on_failure.1"]),
        ("skipped", ["on_skip"]),
        ("replaced", []),
        ("cancelled", []),
    ],
)
def test_which_hooks_follow_from_an_outcome(kind: Kind, hooks: list[str]) -> None:
    fires = follow(kind, Policy(hooks=HOOKS))
    assert [fire.key for fire in fires] == [f"a.b@1/{hook}" for hook in hooks]
    assert all((fire.origin, fire.due_at, fire.queue) == ("hook", NOW, "db") for fire in fires)


def test_an_outcome_without_a_matching_hook_calls_none() -> None:
    assert follow("failed", Policy(hooks=("on_success", "on_skip"))) == []


def test_nothing_follows_from_a_hook() -> None:
    assert follow("failed", Policy(hooks=HOOKS), origin="hook") == []


def test_hooks_are_not_called_before_the_last_attempt() -> None:
    one, end = claim(Policy(hooks=HOOKS)), End(Outcome("failed"), 1)
    reported = report(one, Verdict(end.outcome, again_in_s=5.0), end, NOW)
    assert reported.follow == ()


def test_a_report_contains_the_result_of_the_attempt() -> None:
    one, end = claim(Policy()), End(Outcome("failed"), 3, took_s=1.5, tail=b"oops")
    reported = report(one, Verdict(end.outcome), end, NOW)
    assert (reported.claim, reported.verdict) == (one, Verdict(end.outcome))
    assert (reported.status, reported.took_s, reported.tail) == (3, 1.5, b"oops")


def test_a_hook_receives_the_outcome_of_its_fire() -> None:
    reported = json.loads(follow("failed", Policy(hooks=("on_failure",)), instants=4)[0].payload)
    tail = reported.pop("output_tail")
    assert reported == {
        "hook": "on_failure",
        "fire": "a.b@1",
        "due": "2026-03-01T02:00:00Z",
        "outcome": "failed",
        "reason": "exit 3",
        "cause": "work",
        "attempts": 2,
        "exit_code": 3,
        "duration_ms": 1234,
        "instants": 4,
        "late_s": 0,
    }
    assert tail.endswith("x\ufffd end")
    assert len(tail) == TAIL_MAX


@pytest.mark.parametrize(
    ("concurrency", "attempt", "late_s", "waits"),
    [
        ("Forbid", 1, 0, False),
        ("Forbid", 1, 61, True),
        ("Forbid", 2, 0, True),
        ("Queue", 1, 0, True),
        ("Replace", 1, 0, True),
    ],
)
def test_a_lane_held_on_this_host_makes_a_fire_wait_or_skip_as_its_policy_says(
    concurrency: Concurrency, attempt: int, late_s: float, waits: bool
) -> None:
    one = claim(Policy(concurrency), attempt)
    granted_at = one.fire.due_at + timedelta(seconds=late_s)
    verdict = lane_busy(one._replace(expires_at=granted_at + timedelta(seconds=one.ttl_s)), "held")
    skipped = Verdict(Outcome("skipped", "held", "lane"), counts=False)
    expected = return_claim("held", "lane") if waits else skipped
    assert verdict == expected
