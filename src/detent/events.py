"""The closed list of events.  Code emits them; `observe` words them; a listener cannot break a job."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from detent.model import Claim, Outcome, Verdict

Level = Literal["DEBUG", "INFO", "WARN", "ERROR"]
Emit = Callable[..., None]  # emit(event, **fields)


class Event(NamedTuple):
    level: Level
    meaning: str


EVENTS: dict[str, Event] = {
    "started": Event("INFO", "the node takes part from now on"),
    "stopped": Event("INFO", "the node has ended, with nothing of it left running"),
    "draining": Event("INFO", "the node was told to stop: it takes no more work, and waits for what runs"),
    "reloaded": Event("INFO", "the manifest was read again; says which jobs are new, changed and gone"),
    "reload-refused": Event("ERROR", "the changed manifest is wrong; the jobs stay as they were"),
    "fire-started": Event("INFO", "an attempt of a fire begins"),
    "caught-up": Event("INFO", "an instant of an outage is made good now"),
    "success": Event("INFO", "the fire succeeded"),
    "attempt-failed": Event("WARN", "an attempt failed; another follows"),
    "app-rejected": Event("ERROR", "the app refused the request (4xx); there is no retry"),
    "retries-exhausted": Event("ERROR", "the last attempt failed too"),
    "timed-out": Event("ERROR", "the last attempt took longer than it may"),
    "lock-contended": Event(
        "INFO", "a retry, or what a trigger rang for, found its lane taken; names the holder"
    ),
    "already-launched": Event(
        "INFO", "a trigger rang for a fire that another one has, or that a node planned; names the holder"
    ),
    "nothing-due": Event("INFO", "a trigger rang, and the newest instant is settled"),
    "skipped": Event("INFO", "the fire did not run: its lane was full, or its job is paused"),
    "replaced": Event("INFO", "a newer fire of the lane took its place"),
    "missed": Event("WARN", "the fire could not start in time"),
    "lost": Event("ERROR", "its node is gone, or could not renew its claim; the work was ended"),
    "cancelled": Event("INFO", "somebody ended the fire, or its job was removed"),
    "claim-lost": Event("WARN", "a claim could not be kept; its work is being ended"),
    "fenced": Event("WARN", "a report came too late: another claim has the fire"),
    "claim-returned": Event("DEBUG", "a claim was returned unused; no attempt is counted"),
    "task-unknown": Event(
        "WARN", "messages ask for a task that this node does not have; they wait for a node that has it"
    ),
    "hook-failed": Event("ERROR", "a hook did not succeed; the fire that called it is not touched"),
    "paused": Event("INFO", "a job is paused"),
    "resumed": Event("INFO", "a job is no longer paused"),
    "deployed": Event(
        "INFO", "this node replaced older definitions of jobs, or removed jobs that no living node holds"
    ),
    "superseded": Event(
        "WARN", "another node deployed other definitions of these jobs; this node no longer runs them"
    ),
    "clock-stepped": Event("WARN", "the wall clock was set, or the machine slept"),
    "warden-died": Event("ERROR", "the warden is gone; what it ran was ended, and another one is started"),
    "child-replaced": Event("WARN", "a Python process carries out no other call, and ends; says why"),
    "store-unavailable": Event("ERROR", "the store does not answer; said once"),
    "store-back": Event("INFO", "the store answers again"),
    "store-weak": Event("WARN", "the store's settings do not carry the whole promise"),
    "new-era": Event(
        "WARN", "the store failed over, restarted or was restored: it may have forgotten what it acknowledged"
    ),
    "forgotten": Event("WARN", "the store forgot this launch: it may be made again, with a higher fence"),
    "manifest-warning": Event("WARN", "something in the manifest that may not do what it seems to"),
    "secret-unresolved": Event("WARN", "a secret reference leads nowhere; the next one is tried"),
    "traces-unsent": Event("WARN", "the collector of traces did not take them; nothing else is touched"),
    "log-dropped": Event("WARN", "nobody read the log for a while; says how many lines are missing here"),
    "internal-error": Event(
        "ERROR", "a bug of ours; a fire ends as failed, and a node whose loop broke ends with exit code 1"
    ),
}

_ENDINGS = {
    "succeeded": "success",
    "failed": "retries-exhausted",
    "rejected": "app-rejected",
}


def attempt_event(claim: Claim, stands: Verdict, contended: bool) -> str:
    """How the end of a fire, or of one of its attempts, is told.  Empty: not at all."""
    if claim.fire.origin == "hook":
        return "" if stands.outcome.kind == "succeeded" else "hook-failed"
    if stands.again_in_s is not None:
        if not stands.counts:
            return "claim-returned"
        return "lost" if stands.outcome.kind == "lost" else "attempt-failed"
    return "lock-contended" if contended else ending(stands.outcome)


def ending(outcome: Outcome) -> str:
    return _ENDINGS.get(outcome.kind, outcome.kind)
