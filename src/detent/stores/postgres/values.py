"""Converts values to the JSON documents of the PostgreSQL functions and back.

The functions store the policy as a text, and read only the fields beside it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from detent.clock import instant
from detent.model import (
    Ask,
    Attempt,
    Claim,
    Fire,
    Grants,
    Note,
    Outcome,
    Plan,
    Policy,
    Query,
    Report,
    Row,
    Verdict,
    Watermark,
    Watermarks,
)
from detent.stores import encoding
from detent.stores.base import LOOK_MAX
from detent.stores.encoding import instant_of, outcome_of, policy_of, policy_text, read_outcome, seconds_of

Json = dict[str, Any]

# Into the store.


def fire_json(fire: Fire, place: int) -> Json:
    """Leaves out common values, because there may be very many fires."""
    said: Json = {
        "place": place,
        "key": fire.key,
        "job": fire.job,
        "due": fire.due_at.timestamp(),
        "run_id": fire.run_id,
        "queue": fire.queue,
        "origin": fire.origin,
        **_policy_json(fire.policy),
    }
    if fire.payload:
        said["payload"] = plain(fire.payload)
    if fire.lane:
        said["lane"] = fire.lane
    if fire.revision:
        said["revision"] = fire.revision
    if fire.start_by:
        said["start_by"] = fire.start_by.timestamp()
    if fire.first_at or fire.instants != 1:
        said |= {"first": seconds_of(fire.first_at), "instants": fire.instants}
    if late := [f"{fire.key}/{hook}" for hook in fire.policy.hooks if hook.startswith("on_late")]:
        said["late_hooks"] = late
    return said


@lru_cache(maxsize=1024)  # most fires share a few policies
def _policy_json(policy: Policy) -> Json:
    said = {"policy": policy_text(policy), "concurrency": policy.concurrency, "claim_s": policy.claim_s}
    usual = Policy()
    rest = {
        "width": (policy.max_running, usual.max_running),
        "grace_s": (policy.grace_s, usual.grace_s),
        "catch_up": (policy.catch_up, usual.catch_up),
        "breaker": (policy.breaker, usual.breaker),
        "unique_s": (policy.unique_s, usual.unique_s),
    }
    return said | {name: given for name, (given, default) in rest.items() if given != default}


def fires_json(fires: Iterable[Fire]) -> list[Json]:
    return [fire_json(fire, place) for place, fire in enumerate(fires)]


def put_json(fires: Sequence[Fire], delay_s: float) -> Json:
    """Messages of one push share most fields, which are then written once."""
    if fires and _are_alike(fires):
        same = fire_json(fires[0], 0)
        for name in ("place", "key", "run_id", "payload"):
            same.pop(name, None)
        alike = {
            "same": same,
            "keys": [fire.key for fire in fires],
            "run_ids": [fire.run_id for fire in fires],
            "payloads": [plain(fire.payload) for fire in fires],
        }
        return {"alike": alike, "delay": delay_s}
    return {"fires": fires_json(fires), "delay": delay_s}


def _are_alike(fires: Sequence[Fire]) -> bool:
    """Whether they differ only in key, run id and payload, and need no other check."""
    first = fires[0]
    if first.lane or first.policy.unique_s or any(hook.startswith("on_late") for hook in first.policy.hooks):
        return False
    shared = _shared(first)
    return all(_shared(fire) == shared for fire in fires)


_shared = itemgetter(*(n for n, name in enumerate(Fire._fields) if name not in ("key", "run_id", "payload")))


def plan_json(plan: Plan, place: int) -> Json:
    spans = [fire.first_at.timestamp() for fire in plan.fires if fire.instants > 1 and fire.first_at]
    return {
        "place": place,
        "job": plan.job,
        "revision": plan.revision,
        "since": plan.since.timestamp(),
        "until": plan.until.timestamp(),
        "spans_from": min(spans, default=None),
    }


def ask_json(ask: Ask) -> Json:
    return {
        "app": ask.app,
        "node": ask.node,
        "number": ask.number,
        "limit": ask.limit,
        "queues": ask.queues,
        "ttl": ask.ttl_s,
        "dead": ask.dead,
        "without": ask.without,
        "hooks": ask.hooks,
    }


def claim_json(claim: Claim, place: int) -> Json:
    return {"place": place, "key": claim.fire.key, "fence": claim.fence, "ttl": claim.ttl_s}


def report_json(report: Report) -> Json:
    """Leaves out common values."""
    verdict = report.verdict
    said: Json = {
        "key": report.claim.fire.key,
        "fence": report.claim.fence,
        "outcome": outcome_text(verdict.outcome),
        "took": report.took_s,
    }
    if verdict.again_in_s is not None:
        said["again"] = verdict.again_in_s
    if not verdict.counts:
        said["counts"] = False
    if report.status is not None:
        said["status"] = report.status
    if report.tail:
        said["tail"] = b64encode(report.tail).decode()
    if report.result:
        said["result"] = plain(report.result)
    if report.follow:
        said["follow"] = fires_json(report.follow)
    return said


def query_json(query: Query) -> Json:
    before = [query.before[0].timestamp(), query.before[1]] if query.before else None
    span = {"since": seconds_of(query.since), "until": seconds_of(query.until), "before": before}
    return query._asdict() | span | {"most": LOOK_MAX}


def plain(text: str) -> str:
    """Text that PostgreSQL accepts: without NUL, and without bytes of a file name that are not Unicode."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def outcome_text(outcome: Outcome) -> str:
    return plain(encoding.outcome_text(outcome))


# Out of the store.


def first_of(_: object) -> Callable[[Sequence[Any]], Json]:
    """A row factory that parses the only value of a row, whatever the row factory of the connection is."""
    return lambda values: json.loads(values[0])


def fresh_of(said: Mapping[str, Any] | None, fires: Sequence[Fire]) -> list[bool]:
    """Which fires were new; of two with the same key, the first."""
    if not said:
        return [False] * len(fires)
    if "all" in said:
        return [True] * len(fires)
    if "keys" in said:
        left, fresh = set(said["keys"]), list[bool]()
        for fire in fires:
            fresh.append(fire.key in left)
            left.discard(fire.key)
        return fresh
    places = set(said["fresh"])
    return [place in places for place in range(len(fires))]


def watermarks_of(said: Mapping[str, Any]) -> Watermarks:
    by_job = {job: Watermark(instant(at), revision) for job, (at, revision) in said["watermarks"].items()}
    quarantine = instant_of(said["quarantined_until"])
    return Watermarks(instant(said["now"]), said["epoch"], said["generation"], by_job, quarantine)


def grants_of(said: Mapping[str, Any], node: str) -> Grants:
    claims = tuple(_claim_of(one, node) for one in said["claims"])
    next_in_s = float("inf") if said["next_in"] is None else said["next_in"]
    return Grants(claims, instant(said["now"]), next_in_s, said["epoch"])


def _claim_of(said: Mapping[str, Any], node: str) -> Claim:
    return Claim(
        fire=_fire_of(said),
        node=node,
        fence=said["fence"],
        attempt=said["attempt"],
        ttl_s=float(said["ttl"]),
        expires_at=instant(said["expires"]),
        disposition=outcome_of(said["sentence"]),
        previous_success_at=instant_of(said["succeeded"]),
    )


def _fire_of(said: Mapping[str, Any]) -> Fire:
    return Fire(
        key=said["key"],
        job=said["job"],
        due_at=instant(said["due"]),
        run_id=said["run_id"],
        queue=said["queue"],
        lane=said["lane"],
        start_by=instant_of(said["start_by"]),
        policy=policy_of(said["policy"]),
        origin=said["origin"],
        revision=said["revision"],
        payload=said["payload"],
        first_at=instant_of(said["first"]),
        instants=said["instants"],
    )


def row_of(said: Mapping[str, Any]) -> Row:
    return Row(
        fire=_fire_of(said),
        state=said["state"],
        attempt=said["attempt"],
        node=said["node"],
        fence=said["fence"],
        run_at=instant(said["run_at"]),
        claimed_at=instant_of(said["ran_at"] or None),
        over_at=instant_of(said["over_at"] or None),
        outcome=outcome_of(said["outcome"]),
        stop=outcome_of(said["stop"]),
        attempts=tuple(map(_attempt_of, said["attempts"])),
    )


def _attempt_of(said: list[Any]) -> Attempt:
    number, node, fence, started, ended, outcome, status, took_s, tail, result = said
    return Attempt(
        number, node, fence, instant(started), instant(ended), read_outcome(outcome), status, float(took_s),
        b64decode(tail), result,
    )  # fmt: skip


def verdict_of(said: list[Any] | None) -> Verdict | None:
    if said is None:
        return None
    text, again_in_s, counts = said
    outcome = outcome_of(text)
    return Verdict(outcome, None if again_in_s is None else float(again_in_s), counts) if outcome else None


def note_of(said: list[Any]) -> Note:
    name, text, written, ends = said
    return Note(name, text, instant(written), instant_of(ends))
