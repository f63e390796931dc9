"""The outcomes that detent itself gives to a fire: each reason and its cause is defined here once."""

from __future__ import annotations

from datetime import datetime

from detent.model import Kind, Outcome

NEWER_INSTANT = Outcome("missed", "a newer instant is due", "newer-instant")
JOB_REMOVED = Outcome("cancelled", "its job was removed", "removed")
HOOK_REMOVED = Outcome("cancelled", "its job no longer has this hook", "removed")
CLAIM_GONE = Outcome("lost", "its claim is no longer valid", "claim-lost")
CLAIM_EXPIRED = Outcome("lost", "its claim could not be renewed in time", "claim-lost")
WARDEN_DIED = Outcome("lost", "the warden died", "node-lost")
NODE_STOPPED = Outcome("lost", "the node was stopped", "shutdown")
NOT_SENT = Outcome("lost", "its claim had ended before the request was sent", "claim-lost")


def lane_taken(holder: str) -> Outcome:
    """`Forbid`: another fire runs."""
    return Outcome("skipped", f"{holder} is still running", "lane", holder)


def lane_awaited(first: str) -> Outcome:
    """`Queue`: another fire already waits."""
    return Outcome("skipped", f"{first} already waits for the lane", "lane", first)


def contended(kind: Kind, holder: str) -> Outcome:
    """`Forbid`: a retry or a message found another fire running.  A retry keeps its last kind."""
    return Outcome(kind, f"contended: {holder} is still running", "lane", holder)


def is_contended(outcome: Outcome) -> bool:
    return outcome.cause == "lane" and outcome.kind not in ("skipped", "replaced", "cancelled")


def replaced_by(newer: str) -> Outcome:
    return Outcome("replaced", f"replaced by {newer}", "lane", newer)


def node_lost(node: str) -> Outcome:
    return Outcome("lost", f"node {node} stopped while running it", "node-lost", node)


def paused(why: str) -> Outcome:
    return Outcome("skipped", f"paused: {why}" if why else "paused", "paused")


def missed(start_by: datetime) -> Outcome:
    return Outcome("missed", f"not started by {start_by:%Y-%m-%dT%H:%M:%SZ}", "deadline")


def timed_out(timeout_s: float, doing: str = "") -> Outcome:
    return Outcome("timed-out", f"after {timeout_s:g} s{', while ' + doing if doing else ''}")


def no_secret(refs: str) -> Outcome:
    return Outcome("failed", f"no secret resolves: {refs}", "no-secret")
