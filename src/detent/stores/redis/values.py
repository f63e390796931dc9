"""Converts values to the arguments of the Lua scripts, and their replies to values.

A fire is a JSON text; `rules` holds the fields that the scripts read.  Instants are Unix seconds.  Replies
have numbers as texts, because cjson rounds them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from detent.clock import instant
from detent.model import (
    Ask,
    Attempt,
    Claim,
    Fire,
    Note,
    Outcome,
    Plan,
    Policy,
    Query,
    Report,
    Row,
    Verdict,
    Watermark,
)
from detent.stores.base import is_planned
from detent.stores.encoding import (
    instant_of,
    outcome_of,
    outcome_text,
    policy_of,
    policy_text,
    read_outcome,
    seconds_of,
)

REPORT_WORDS = 5
_COMMON = b',"job":'  # in the text of a message, its own fields come before, shared ones after
_NOBODY, _OWN = b'{"key":"","due":0,"run_id":"","payload":""', 4
FIRST_TEXT = 9  # the index of the first text among a script's arguments, from 1
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_json(value: Any) -> bytes:
    """JSON as UTF-8.  A file name may hold bytes that are not Unicode; they are escaped."""
    return to_text(_encode(value))


def to_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", lambda found: f"\\\\u{ord(found[0]):04x}", text).encode()


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
        "start_by": seconds_of(fire.start_by),
        "policy": policy_text(fire.policy),
        "origin": fire.origin,
        "revision": fire.revision,
        "payload": fire.payload,
        "first": seconds_of(fire.first_at),
        "instants": fire.instants if fire.instants != 1 else None,
        "rules": _light_rules(fire) if _is_light(fire) else _rules(fire),
    }
    return to_json(_given(values))


def fire_of(text: bytes) -> Fire:
    found = of_json(text)
    rules, get = found.get("rules"), found.get
    return Fire(
        found["key"],
        found["job"],
        instant(found["due"]),
        found["run_id"],
        found["queue"],
        rules.get("lane", "") if rules else "",
        instant_of(get("start_by")),
        policy_of(found["policy"]),
        found["origin"],
        found["revision"],
        found["payload"],
        instant_of(get("first")),
        get("instants", 1),
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
            "start_text": _start_text(fire),
            "unique_s": policy.unique_s or None,
            **_gates(policy),
        }
    )


def _gates(policy: Policy) -> dict[str, Any]:
    values: dict[str, Any] = {"rate_key": policy.rate_key} if policy.rate_key else {}
    if policy.breaker:
        values["breaker"] = policy.breaker
        values["threshold"] = policy.breaker_threshold
        values["cooldown"] = policy.breaker_cooldown_s
    return values


def _start_text(fire: Fire) -> str | None:
    return f"{fire.start_by:%Y-%m-%dT%H:%M:%SZ}" if fire.start_by else None


# Light fires are messages without a lane.  Many of them share their rules and the end of their text.


def _is_light(fire: Fire) -> bool:
    hooks = fire.policy.hooks
    is_late = bool(hooks) and any(hook.startswith("on_late") for hook in hooks)
    return fire.origin == "push" and not fire.lane and not is_late


def _light_rules(fire: Fire) -> dict[str, Any]:
    policy = fire.policy
    rare = _gates(policy) | _given({"start_by": seconds_of(fire.start_by), "start_text": _start_text(fire)})
    rules = {"is_light": True, "claim_s": policy.claim_s, "unique_s": policy.unique_s or None}
    return _given(rules | {"rare": rare or None})


def put_values(fires: Sequence[Fire]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The distinct rules, and for each fire four words: key, due instant, number of its rules, text."""
    rules: list[dict[str, Any]] = []
    kinds: dict[tuple[Any, ...], tuple[bytes, str]] = {}  # number of the rules, and end of the text
    words: list[bytes] = []
    alike, number, end = None, b"0", ""
    due_at, due, due_word = None, "", b""
    for fire in fires:
        key, job, at, run_id, queue, lane, start_by, policy, origin, revision, payload, _, _ = fire
        if alike != (alike := (job, queue, lane, start_by, id(policy), origin, revision)):
            number, end = kinds.get(alike) or kinds.setdefault(alike, _kind_of(fire, rules))
        if at is not due_at:
            due_at, due = at, repr(at.timestamp())
            due_word = due.encode()
        own = f'{{"key":{_encode(key)},"due":{due},"run_id":{_encode(run_id)},"payload":{_encode(payload)},'
        words += (key.encode(), due_word, number, to_text(own + end) if end else fire_text(fire))
    return rules, words


def _kind_of(fire: Fire, rules: list[dict[str, Any]]) -> tuple[bytes, str]:
    """Add its rules; return their number and the end of its text; 0 and "" if it is not light."""
    if not _is_light(fire):
        return b"0", ""
    rules.append({"job": fire.job, "queue": fire.queue} | _light_rules(fire))
    return b"%d" % len(rules), _end_of_text(fire)


def _end_of_text(fire: Fire) -> str:
    values = {
        "job": fire.job,
        "queue": fire.queue,
        "start_by": seconds_of(fire.start_by),
        "policy": policy_text(fire.policy),
        "origin": fire.origin,
        "revision": fire.revision,
    }
    return _encode(_given(values))[1:]


def fires_of(texts: Sequence[bytes]) -> list[Fire]:
    """Parse many texts.  Parses a shared end only once, and the other fields of all texts together."""
    cuts = [text.rfind(_COMMON) for text in texts]
    starts = b"},".join([text[:cut] for text, cut in zip(texts, cuts, strict=True)])
    alike: dict[bytes, Fire] = {}
    instants: dict[float, datetime] = {}
    fires = []
    for text, cut, own in zip(texts, cuts, of_json(b"[%b}]" % starts) if texts else (), strict=True):
        if len(own) != _OWN:
            fires.append(fire_of(text))
            continue
        end, due = text[cut:], own["due"]
        like = alike.get(end) or alike.setdefault(end, fire_of(_NOBODY + end))
        at = instants.get(due) or instants.setdefault(due, instant(due))
        _, job, _, _, queue, lane, start_by, policy, origin, revision, _, first_at, count = like
        mine = own["key"], job, at, own["run_id"], queue, lane, start_by, policy, origin, revision
        fires.append(Fire(*mine, own["payload"], first_at, count))
    return fires


# Requests and replies.


def ask_values(ask: Ask) -> dict[str, Any]:
    values: dict[str, Any] = {
        "node": ask.node,
        "number": ask.number,
        "limit": ask.limit,
        "queues": ask.queues,
    }
    if ask.ttl_s:
        values["ttl_s"] = ask.ttl_s
    if ask.hooks:
        values["hooks"] = ask.hooks
    if ask.dead:
        values["dead"] = ask.dead
    if ask.without:
        values["without"] = ask.without
    return values


def plan_values(plan: Plan, texts: list[bytes]) -> dict[str, Any]:
    return {
        "job": plan.job,
        "revision": plan.revision,
        "since": plan.since.timestamp(),
        "until": plan.until.timestamp(),
        "spans": [fire.first_at.timestamp() for fire in plan.fires if fire.instants > 1 and fire.first_at],
        "fires": [
            {
                "text": add_text(texts, fire_text(fire)),
                "due": fire.due_at.timestamp(),
                "first": (fire.first_at or fire.due_at).timestamp(),
            }
            for fire in plan.fires
        ],
    }


def query_values(query: Query) -> dict[str, Any]:
    values: dict[str, Any] = {"state": query.state, "origins": list(query.origins)}
    values |= {"queues": list(query.queues), "kinds": list(query.kinds), "upcoming": query.upcoming}
    jobs = tuple(job for job in query.jobs if query.job in ("", job)) if query.jobs else (query.job,)
    values |= {"jobs": list(jobs)} if query.jobs or query.job else {}
    values |= {"key": query.key} if query.key else {}
    values |= {"keys": list(query.keys)} if query.keys else {}
    values |= {"before": {"due": query.before[0].timestamp(), "key": query.before[1]}} if query.before else {}
    for name, at in (("since", query.since), ("until", query.until)):
        values |= {name: at.timestamp()} if at else {}
    return values


def report_values(reports: Sequence[Report]) -> list[bytes]:
    """Five words for each report: key, fence, outcome, fields for the history, rare fields.  Then the outputs
    and follow-up fires; the rare fields refer to them by index."""
    words: list[bytes] = []
    texts: list[bytes] = []
    first = FIRST_TEXT + REPORT_WORDS * len(reports)
    for report in reports:
        claim, verdict = report.claim, report.verdict
        status = f'"status":{report.status},' if report.status is not None else ""
        words += (
            claim.fire.key.encode(),
            b"%d" % claim.fence,
            _outcome_word(verdict.outcome),
            f'{{{status}"took_s":{report.took_s!r}}}'.encode(),
            _more_of(report, texts, first),
        )
    return words + texts


@lru_cache(maxsize=64)  # most reports share it
def _outcome_word(outcome: Outcome) -> bytes:
    return to_text(outcome_text(outcome))


def _more_of(report: Report, texts: list[bytes], first: int) -> bytes:
    _, again_in_s, counts = report.verdict
    if again_in_s is None and counts and not (report.result or report.tail or report.follow):
        return b""
    values: dict[str, Any] = {
        "again_in_s": again_in_s,
        "counts": None if counts else False,
        "result": report.result or None,
        "tail": add_text(texts, report.tail, first) if report.tail else None,
        "follow": [add_text(texts, fire_text(fire), first) for fire in report.follow] or None,
    }
    return to_json(_given(values))


def add_text(texts: list[bytes], text: bytes, first: int = FIRST_TEXT) -> int:
    texts.append(text)
    return first + len(texts) - 1


def claims_of(said: Sequence[Any], now: float, node: str) -> tuple[Claim, ...]:
    """Four words for each claim: fire, fence, attempt, and the rest, which most claims share."""
    rests: dict[bytes, tuple[Any, ...]] = {}
    claims = []
    for fire, fence, attempt, rest in zip(
        fires_of(said[::4]), said[1::4], said[2::4], said[3::4], strict=True
    ):
        if rest not in rests:
            found = of_json(rest)
            ttl_s = float(found["ttl_s"])
            disposition, success = outcome_of(found.get("sentence")), instant_of(found.get("success"))
            rests[rest] = ttl_s, instant(now + ttl_s), disposition, success
        claims.append(Claim(fire, node, fence, attempt, *rests[rest]))
    return tuple(claims)


def verdict_of(said: int | bytes, reported: Verdict) -> Verdict | None:
    """0: a newer claim has the fire; 1: the reported verdict stands; else the verdict that stands."""
    if isinstance(said, int):
        return reported if said else None
    found = of_json(said)
    again_in_s = found.get("again_in_s")
    outcome = read_outcome(found["outcome"])
    return Verdict(outcome, None if again_in_s is None else float(again_in_s), found["counts"])


def watermarks_of(found: Any) -> dict[str, Watermark]:
    return {job: Watermark(instant(float(at)), revision) for job, at, revision in found or ()}


def row_of(found: Mapping[str, Any], text: bytes, tails: list[bytes]) -> Row:
    return Row(
        fire=fire_of(text),
        state=found["state"],
        attempt=found["attempt"],
        node=found.get("node", ""),
        fence=int(found["fence"]),
        run_at=instant_of(found.get("run_at")),
        claimed_at=instant_of(found.get("claimed_at")),
        over_at=instant_of(found.get("over_at")),
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
    return Note(found["name"], found["text"], written, instant_of(found.get("ends")))


# Parts.


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out None: Lua would get a null that is not nil."""
    return {name: value for name, value in values.items() if value is not None}
