"""Decides what happens to a fire after an attempt: another attempt or the end, and which hooks to call.

| outcome of the attempt | another attempt, if any are left |
| --- | --- |
| failed, by exit code | if `on_exit_codes` names it, or names none |
| failed otherwise, timed-out | yes |
| rejected | if `on_status` names its status |
| lost | under `on_lost: rerun` |
| any other | no |
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from detent.model import DEAD, Cause, Claim, End, Fire, Outcome, Policy, Report, Retries, Verdict
from detent.rules.alerts import is_repeated
from detent.rules.lanes import LATE_S
from detent.rules.outcomes import is_contended
from detent.rules.pings import START_PING
from detent.rules.planning import hook_fire

if TYPE_CHECKING:
    from random import Random

RETURN_DELAY_S = 1.0  # a returned claim is due again after this time
TAIL_MAX = 4096  # bytes of output that a hook receives
_HOOKS = {"succeeded": "on_success", "skipped": "on_skip", **dict.fromkeys(DEAD, "on_failure")}


def admit(claim: Claim, rng: Random) -> Verdict | None:
    """Return the verdict for a claim that must not run, or None if its work may start."""
    disposition = claim.disposition
    if disposition is None:
        return None
    if disposition.kind == "lost" and not is_contended(disposition):
        return settle(End(disposition), claim, rng)
    return Verdict(disposition)


def settle(end: End, claim: Claim, rng: Random) -> Verdict:
    """Decide by the table above."""
    policy = claim.fire.policy
    if _is_worth_another(end, policy) and claim.attempt < _attempts_max(end, policy):
        return Verdict(end.outcome, again_in_s=_wait_s(end, claim.attempt, policy.retries, rng))
    return Verdict(end.outcome)


def return_claim(reason: str, cause: Cause) -> Verdict:
    """The claim goes back to the store because its work was not started; no attempt is counted."""
    return Verdict(Outcome("lost", reason, cause), again_in_s=RETURN_DELAY_S, counts=False)


def refuse(fault: str, detail: str) -> Verdict:
    """Reject a message that must not run."""
    return Verdict(Outcome("rejected", f"{fault}: {detail}", "refused"), counts=False)


def lane_busy(claim: Claim, reason: str) -> Verdict:
    """Decide about a claim whose lane is held on this host by processes that the store does not know.

    Nothing was started.  The fire waits if it would also wait for a full lane; otherwise it is skipped.
    """
    is_late = claim.fire.due_at + timedelta(seconds=LATE_S) < _granted_at(claim)
    if claim.fire.policy.concurrency != "Forbid" or claim.attempt > 1 or is_late:
        return return_claim(reason, "lane")
    return Verdict(Outcome("skipped", reason, "lane"), counts=False)


def report(claim: Claim, verdict: Verdict, end: End, now: datetime) -> Report:
    """Build the report for the store.  If the fire is over, it includes the hooks to call."""
    policy, follow = claim.fire.policy, () if verdict.again_in_s is not None else end.follow
    if policy.hooks and verdict.again_in_s is None:
        follow = _hook_fires(claim, verdict.outcome, end, now) + follow
    result = "" if policy.drop_result else end.result
    return Report(claim, verdict, end.status, end.took_s, end.tail, follow, result)


def backoff_s(attempt: int, retries: Retries, rng: Random) -> float:
    wait_s = min(retries.min_s * 2.0 ** min(attempt - 1, 60), retries.max_s)
    return wait_s * (1 + rng.uniform(-retries.jitter, retries.jitter)) if retries.jitter else wait_s


def _attempts_max(end: End, policy: Policy) -> int:
    """Under `on_lost: rerun`, a lost attempt is repeated once even without retries."""
    most = policy.retries.max_attempts
    return max(most, 2) if end.outcome.kind == "lost" and policy.on_lost == "rerun" else most


def _is_worth_another(end: End, policy: Policy) -> bool:
    match end.outcome.kind:
        case "failed":
            codes = policy.retries.on_exit_codes
            return not codes or end.status is None or end.status in codes
        case "timed-out":
            return True
        case "rejected":
            return end.status in policy.retries.on_status
        case "lost":
            return policy.on_lost == "rerun"
        case _:
            return False


def _wait_s(end: End, attempt: int, retries: Retries, rng: Random) -> float:
    wait_s = backoff_s(attempt, retries, rng)
    return wait_s if end.again_after_s is None else min(max(wait_s, end.again_after_s), retries.max_s)


def _hook_fires(claim: Claim, outcome: Outcome, end: End, now: datetime) -> tuple[Fire, ...]:
    fire, event = claim.fire, _HOOKS.get(outcome.kind, "")
    if fire.origin == "hook" or not event:
        return ()
    details: dict[str, object] = {
        "outcome": outcome.kind,
        "reason": outcome.reason,
        "cause": outcome.cause,
        "attempts": claim.attempt,
        "exit_code": end.status,
        "duration_ms": round(end.took_s * 1000),
        "output_tail": end.tail[-TAIL_MAX:].decode("utf-8", "replace"),
        "instants": fire.instants,
        "late_s": max(0, round((_granted_at(claim) - fire.due_at).total_seconds())),
    }
    names = [name for name in fire.policy.hooks if name.partition(".")[0] == event]
    if event == "on_success":  # the store drops them unless the job has failed before
        names += [name for name in fire.policy.hooks if is_repeated(name)]
    return tuple(hook_fire(fire, name, now, details) for name in names)


def start_hooks(claim: Claim, now: datetime) -> tuple[Fire, ...]:
    """Return the hooks to call when the first attempt of a fire starts."""
    fire = claim.fire
    if claim.attempt > 1 or fire.origin == "hook":
        return ()
    details = {"outcome": "", "reason": "", "cause": ""}
    return tuple(hook_fire(fire, name, now, details) for name in fire.policy.hooks if name == START_PING)


def _granted_at(claim: Claim) -> datetime:
    return claim.expires_at - timedelta(seconds=claim.ttl_s)


def keep_until(fire: Fire, outcome: Outcome, now: float) -> float:
    """Until when a finished message is not pruned for its number: a dead letter always, a result for its
    time, a key while it is unique."""
    if fire.origin != "push":
        return 0.0
    if outcome.kind != "succeeded":
        return float("inf")
    result_until = 0.0 if fire.policy.drop_result else now + fire.policy.result_s
    return max(fire.due_at.timestamp() + fire.policy.unique_s, result_until)
