"""The outcomes of fires that did not run to their end: each text and its cause, defined once.  Pure."""

from __future__ import annotations

from datetime import datetime

from detent.model import Kind, Outcome

NEWER_INSTANT = Outcome("missed", "a newer instant is due", "newer-instant")
JOB_REMOVED = Outcome("cancelled", "its job was removed", "removed")
HOOK_REMOVED = Outcome("cancelled", "its job has no such hook any more", "removed")
CLAIM_GONE = Outcome("lost", "its claim is no longer valid", "claim-lost")
CLAIM_EXPIRED = Outcome("lost", "its claim could not be renewed in time", "claim-lost")
WARDEN_DIED = Outcome("lost", "the warden died", "node-lost")
NODE_STOPPED = Outcome("lost", "the node was stopped", "shutdown")
NOT_SENT = Outcome("lost", "its claim had ended before the request was sent", "claim-lost")


def lane_taken(holder: str) -> Outcome:
    """`Forbid`: another fire runs."""
    return Outcome("skipped", f"{holder} is still running", "lane", holder)


def lane_awaited(first: str) -> Outcome:
    """`Queue`: another fire waits for the lane already."""
    return Outcome("skipped", f"{first} already waits for the lane", "lane", first)


def contended(kind: Kind, holder: str) -> Outcome:
    """`Forbid`: a retry or a message found another fire running.  A retry keeps its last kind."""
    return Outcome(kind, f"contended: {holder} is still running", "lane", holder)


def replaced_by(heir: str) -> Outcome:
    """`Replace`: a newer fire took the lane."""
    return Outcome("replaced", f"replaced by {heir}", "lane", heir)


def node_lost(node: str) -> Outcome:
    return Outcome("lost", f"node {node} stopped while running it", "node-lost", node)


def paused(why: str) -> Outcome:
    return Outcome("skipped", f"paused: {why}" if why else "paused", "paused")


def missed(start_by: datetime) -> Outcome:
    return Outcome("missed", f"not started by {start_by:%Y-%m-%dT%H:%M:%SZ}", "deadline")


def timed_out(timeout_s: float, doing: str = "") -> Outcome:
    return Outcome("timed-out", f"after {timeout_s:g} s{', while ' + doing if doing else ''}")


def no_secret(refs: str) -> Outcome:
    """Another attempt would not find one either."""
    return Outcome("failed", f"no secret resolves: {refs}", "no-secret")


def is_contended(outcome: Outcome) -> bool:
    """Did a retry or a message end because another fire has its lane?"""
    return outcome.cause == "lane" and outcome.kind not in ("skipped", "replaced", "cancelled")
