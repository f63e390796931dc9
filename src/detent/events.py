"""The list of all events.  Code emits them, and `observe` writes them to the log."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from detent.model import Claim, Verdict

Level = Literal["DEBUG", "INFO", "WARN", "ERROR"]
Emit = Callable[..., None]  # emit(event, **fields)


class Event(NamedTuple):
    level: Level
    meaning: str


EVENTS: dict[str, Event] = {
    "started": Event("INFO", "the node has started and takes part in scheduling"),
    "stopped": Event("INFO", "the node has stopped; none of its work is still running"),
    "draining": Event("INFO", "the node was asked to stop: it takes no new work and waits for running work"),
    "reloaded": Event("INFO", "the manifest was read again; lists new, changed and removed jobs"),
    "reload-refused": Event("ERROR", "the changed manifest is invalid; the previous jobs stay in force"),
    "fire-started": Event("INFO", "an attempt of a fire starts"),
    "caught-up": Event("INFO", "a fire that was due during an outage runs now"),
    "success": Event("INFO", "the fire succeeded"),
    "attempt-failed": Event("WARN", "an attempt failed and will be retried"),
    "app-rejected": Event("ERROR", "the app rejected the request (4xx); it is not retried"),
    "retries-exhausted": Event("ERROR", "the last attempt failed"),
    "timed-out": Event("ERROR", "the last attempt exceeded its timeout"),
    "lock-contended": Event("INFO", "a retry or a trigger found its lane taken; names the holder"),
    "already-launched": Event(
        "INFO",
        "another trigger or a node already has the fire that a trigger was started for; names the holder",
    ),
    "nothing-due": Event(
        "INFO", "a trigger was started, but the newest instant of its job is already settled"
    ),
    "skipped": Event("INFO", "the fire did not run because its lane was full or its job is paused"),
    "replaced": Event("INFO", "a newer fire of the lane replaced this one"),
    "missed": Event("WARN", "the fire could not start in time"),
    "lost": Event("ERROR", "the node of the fire died or could not renew its claim; the work was stopped"),
    "cancelled": Event("INFO", "the fire was cancelled, or its job was removed"),
    "claim-lost": Event("WARN", "a claim could not be renewed; its work is being stopped"),
    "fenced": Event("WARN", "a report arrived too late: another claim has the fire"),
    "claim-returned": Event("DEBUG", "a claim was returned unused; no attempt is counted"),
    "task-unknown": Event(
        "WARN", "messages name a task that this node does not have; they wait for a node that has it"
    ),
    "hook-failed": Event("ERROR", "a hook failed; the fire that called it keeps its outcome"),
    "paused": Event("INFO", "a job was paused"),
    "resumed": Event("INFO", "a job is no longer paused"),
    "operated": Event(
        "INFO", "a user of the dashboard ran, paused, resumed, killed, retried or deleted something"
    ),
    "dashboard-started": Event("INFO", "the dashboard accepts connections; gives its address"),
    "deployed": Event(
        "INFO", "this node replaced older definitions of jobs, or removed jobs that no live node has"
    ),
    "superseded": Event(
        "WARN",
        "another node deployed different definitions of these jobs; this node no longer schedules them",
    ),
    "clock-stepped": Event("WARN", "the wall clock was changed, or the machine was suspended"),
    "warden-died": Event("ERROR", "the warden died; its work was stopped, and a new warden is started"),
    "child-replaced": Event("WARN", "a Python child process takes no more calls and exits; gives the reason"),
    "node-outdated": Event(
        "ERROR", "the package on disk was upgraded: restart the node; Python calls wait for that; logged once"
    ),
    "store-unavailable": Event("ERROR", "the store does not answer; logged once per outage"),
    "store-back": Event("INFO", "the store answers again"),
    "store-weak": Event("WARN", "the settings of the store are too weak for some guarantees"),
    "new-epoch": Event(
        "WARN", "the store failed over, restarted or was restored, and may have lost acknowledged data"
    ),
    "forgotten": Event(
        "WARN", "the store lost the record of this launch: the fire may run again, with a higher fence"
    ),
    "manifest-warning": Event("WARN", "a part of the manifest may not do what its author expects"),
    "secret-unresolved": Event("WARN", "a secret reference does not resolve; the next one is tried"),
    "traces-unsent": Event("WARN", "the trace collector did not accept spans; jobs are not affected"),
    "metrics-served": Event("INFO", "the node serves metrics; gives the address"),
    "metrics-unsent": Event("WARN", "the collector did not accept metrics; jobs are not affected"),
    "metrics-limited": Event(
        "WARN", "there are more job names than metrics distinguish; the others are counted as `other`"
    ),
    "listener-failed": Event(
        "WARN", "a function with `@app.on` raised, or is too slow and misses events; logged once for each"
    ),
    "log-dropped": Event("WARN", "log lines were dropped because the output was blocked; gives their number"),
    "internal-error": Event("ERROR", "a bug in detent: the fire fails, or the node exits with code 1"),
}

_OUTCOMES = {
    "succeeded": "success",
    "failed": "retries-exhausted",
    "rejected": "app-rejected",
}


def attempt_event(claim: Claim, verdict: Verdict, contended: bool) -> str:
    """Return the event for the end of an attempt, or "" if there is none."""
    kind = verdict.outcome.kind
    if claim.fire.origin == "hook":
        return "" if kind == "succeeded" else "hook-failed"
    if verdict.again_in_s is not None:
        if not verdict.counts:
            return "claim-returned"
        return "lost" if kind == "lost" else "attempt-failed"
    return "lock-contended" if contended else _OUTCOMES.get(kind, kind)
