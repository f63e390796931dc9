"""Values ↔ what travels to and from the scripts of the Redis store.

A fire is JSON: what Python needs to have it back, and under `rules` what the rules of lanes need.
Instants are seconds since the epoch; numbers come back as texts, because cjson would round them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from detent.clock import instant
from detent.model import Attempt, Claim, Fire, Mark, Note, Report, Row, Verdict
from detent.stores.base import is_planned
from detent.stores.texts import outcome_of, outcome_text, policy_of, policy_text, read_outcome

FIRST_TEXT = 4  # where the texts stand among a script's arguments, counted from 1
_SURROGATE = re.compile("[\ud800-\udfff]")


def to_json(value: Any) -> bytes:
    """A name of a file may be no Unicode: such a byte is written out."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text).encode()


def of_json(text: bytes) -> Any:
    return json.loads(text.decode("utf-8", "backslashreplace"))


# Fires.


def fire_text(fire: Fire) -> bytes:
    values: dict[str, Any] = {
        "key": fire.key,
        "job": fire.job,
        "due": fire.due_at.timestamp(),
        "run_id": fire.run_id,
        "queue": fire.queue,
        "start_by": _seconds(fire.start_by),
        "policy": policy_text(fire.policy),
        "origin": fire.origin,
        "revision": fire.revision,
        "payload": fire.payload,
        "first": _seconds(fire.first_at),
        "instants": fire.instants if fire.instants != 1 else None,
        "rules": _rules(fire),
    }
    return to_json(_given(values))


def fire_of(text: bytes) -> Fire:
    found = of_json(text)
    return Fire(
        key=found["key"],
        job=found["job"],
        due_at=instant(found["due"]),
        run_id=found["run_id"],
        queue=found["queue"],
        lane=found["rules"].get("lane", ""),
        start_by=_instant(found.get("start_by")),
        policy=policy_of(found["policy"]),
        origin=found["origin"],
        revision=found["revision"],
        payload=found["payload"],
        first_at=_instant(found.get("first")),
        instants=found.get("instants", 1),
    )


def _rules(fire: Fire) -> dict[str, Any]:
    policy = fire.policy
    return _given(
        {
            "lane": fire.lane or None,
            "concurrency": policy.concurrency,
            "width": policy.max_running,
            "catch_up": policy.catch_up,
            "claim_s": policy.claim_s,
            "grace_s": policy.grace_s,
            "late": [hook for hook in policy.hooks if hook.startswith("on_late")] or None,
            "planned": is_planned(fire) or None,
            "start_text": f"{fire.start_by:%Y-%m-%dT%H:%M:%SZ}" if fire.start_by else None,
        }
    )


# What is asked and answered.


def report_values(report: Report, texts: list[bytes]) -> dict[str, Any]:
    """The report; its output and what follows from it are added to the texts, and named by their place."""
    verdict = report.verdict
    values = {
        "key": report.claim.fire.key,
        "fence": report.claim.fence,
        "outcome": outcome_text(verdict.outcome),
        "again_in_s": verdict.again_in_s,
        "counts": verdict.counts,
        "status": report.status,
        "took_s": report.took_s,
        "result": report.result or None,
        "tail": add_text(texts, report.tail) if report.tail else None,
        "follow": [add_text(texts, fire_text(fire)) for fire in report.follow],
    }
    return _given(values)


def add_text(texts: list[bytes], text: bytes) -> int:
    texts.append(text)
    return FIRST_TEXT + len(texts) - 1


def claim_of(found: Mapping[str, Any], text: bytes, node: str) -> Claim:
    return Claim(
        fire=fire_of(text),
        node=node,
        fence=int(found["fence"]),
        attempt=found["attempt"],
        ttl_s=float(found["ttl_s"]),
        expires_at=instant(float(found["expires_at"])),
        sentence=outcome_of(found.get("sentence")),
        previous_success_at=_instant(found.get("success")),
    )


def verdict_of(found: Mapping[str, Any] | None) -> Verdict | None:
    if not found:
        return None
    again_in_s = found.get("again_in_s")
    outcome = read_outcome(found["outcome"])
    return Verdict(outcome, None if again_in_s is None else float(again_in_s), found["counts"])


def marks_of(found: Any) -> dict[str, Mark]:
    return {job: Mark(instant(float(at)), revision) for job, at, revision in found or ()}


def row_of(found: Mapping[str, Any], text: bytes, tails: list[bytes]) -> Row:
    return Row(
        fire=fire_of(text),
        state=found["state"],
        attempt=found["attempt"],
        node=found.get("node", ""),
        fence=int(found["fence"]),
        run_at=_instant(found.get("run_at")),
        claimed_at=_instant(found.get("claimed_at")),
        over_at=_instant(found.get("over_at")),
        outcome=outcome_of(found.get("outcome")),
        stop=outcome_of(found.get("stop")),
        attempts=tuple(
            _attempt_of(one, tails[place] if tails else b"")
            for place, one in enumerate(found["attempts"] or ())
        ),
    )


def _attempt_of(found: Mapping[str, Any], tail: bytes) -> Attempt:
    return Attempt(
        number=found["number"],
        node=found["node"],
        fence=int(found["fence"]),
        started_at=instant(float(found["started"])),
        ended_at=instant(float(found["ended"])),
        outcome=read_outcome(found["outcome"]),
        status=found.get("status"),
        took_s=float(found["took"]),
        tail=tail,
        result=found.get("result", ""),
    )


def note_of(found: Mapping[str, Any]) -> Note:
    written = instant(float(found["written"]))
    return Note(found["name"], found["text"], written, _instant(found.get("ends")))


# Parts.


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Without what is not there: Lua would get a null that is not nil."""
    return {name: value for name, value in values.items() if value is not None}


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _instant(seconds: float | str | None) -> datetime | None:
    return None if seconds is None else instant(float(seconds))
