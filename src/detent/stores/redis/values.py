"""How records are written in Redis: a text of the fire, which never changes, and a line of its state.

The line starts with words that the scripts read, then has a JSON list that only Python reads:

    version, first fence and first id of the commit that wrote it; run_at; look_at; flags; kind of outcome;
    expires; ttl_s; lane|queue|job; list

A number below 0 in `fence`, `ran_fence` and `id` counts from the first one of that commit.  So a script adds
the same words to each line of a commit, and need not change them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from detent.clock import instant
from detent.model import Attempt, Fire, Outcome, State, Verdict
from detent.stores.encoding import (
    instant_of,
    outcome_of,
    outcome_text,
    policy_of,
    policy_text,
    read_outcome,
    seconds_of,
)
from detent.stores.engine.driver import moves_with_clock
from detent.stores.engine.record import Record, Tier
from detent.stores.redis.indexes import Names, names_of, places_of

_COMMON = b',"job":'  # in the text of a fire, its own fields come before, shared ones after
_NOBODY, _OWN = b'{"key":"","due":0,"run_id":"","payload":"","lane":""', 5
NEVER = 9e15  # JSON has no infinity
_STATES: dict[str, State] = {"p": "pending", "c": "claimed", "o": "over"}
_TIERS: dict[str, Tier] = {"p": "plain", "j": "judged", "h": "hook"}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Kept(Record):
    """A record that was read, with the indexes that it is in."""

    __slots__ = ("names", "until")

    names: Names
    until: float  # its expiry, as it is kept


def to_bytes(text: str) -> bytes:
    """UTF-8.  A file name may hold bytes that are not Unicode; they are escaped."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", lambda found: f"\\\\u{ord(found[0]):04x}", text).encode()


def to_json(value: Any) -> bytes:
    return to_bytes(_encode(value))


def of_json(text: bytes) -> Any:
    return json.loads(text.decode("utf-8", "backslashreplace"))


@lru_cache(maxsize=1024)
def _word(text: str) -> str:
    return _encode(text)


# Fires.


def fire_texts(fires: Iterable[Fire]) -> list[bytes]:
    """The texts of fires.  Writes what fires of one kind share only once."""
    ends: dict[tuple[Any, ...], str] = {}
    texts, due_at, due = [], None, ""
    for fire in fires:
        key, job, at, run_id, queue, lane, start_by, policy, origin, revision, payload, first_at, count = fire
        alike = (job, queue, start_by, id(policy), origin, revision, first_at, count)
        end = ends.get(alike) or ends.setdefault(alike, _end_of_text(fire))
        if at is not due_at:
            due_at, due = at, repr(at.timestamp())
        own = f'{{"key":{_encode(key)},"due":{due},"run_id":{_encode(run_id)},"payload":{_encode(payload)},'
        own += f'"lane":{_encode(lane)},' if lane else '"lane":"",'
        texts.append(to_bytes(own + end))
    return texts


def _end_of_text(fire: Fire) -> str:
    values = {
        "job": fire.job,
        "queue": fire.queue,
        "start_by": seconds_of(fire.start_by),
        "policy": policy_text(fire.policy),
        "origin": fire.origin,
        "revision": fire.revision,
        "first": seconds_of(fire.first_at),
        "instants": fire.instants if fire.instants != 1 else None,
    }
    return _encode({name: value for name, value in values.items() if value is not None})[1:]


def fire_of(text: bytes) -> Fire:
    found = of_json(text)
    get = found.get
    return Fire(
        found["key"],
        found["job"],
        instant(found["due"]),
        found["run_id"],
        found["queue"],
        found["lane"],
        instant_of(get("start_by")),
        policy_of(found["policy"]),
        found["origin"],
        found["revision"],
        found["payload"],
        instant_of(get("first")),
        get("instants", 1),
    )


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
        _, job, _, _, queue, _, start_by, policy, origin, revision, _, first_at, count = like
        mine = own["key"], job, at, own["run_id"], queue, own["lane"], start_by, policy, origin, revision
        fires.append(Fire(*mine, own["payload"], first_at, count))
    return fires


# States.


def line_of(one: Record) -> bytes:
    """The line of a record's state, without the words that the script adds."""
    fire, outcome = one.fire, one.outcome
    flags = f"{one.state[0]}{one.tier[0]}{fire.origin == 'push':d}{one.is_parked:d}0{moves_with_clock(one):d}"
    _, _, job, lane_queue, _ = places_of(fire.queue, fire.lane, fire.job)
    ran_node = "1" if one.ran_node == one.node else _word(one.ran_node)
    more = (
        f"{_outcome(one.disposition)},{_outcome(one.stop)},{_outcome(outcome)},{_verdict(one)},"
        f"{one.over_at!r},{min(one.keep_until, NEVER)!r},{one.waits:d}"
        if one.verdict or one.outcome or one.stop or one.disposition or one.waits
        else "0"
    )
    return to_bytes(
        f"{one.run_at!r} {one.look_at!r} {flags} {outcome.kind if outcome else '-'}"
        f" {one.expires!r} {one.ttl_s!r} {lane_queue}|{job} "
        f"[{one.id},{one.attempt},{one.recorded},{one.fence},{_word(one.node)},{one.ask},"
        f"{ran_node},{one.ran_fence},{one.ran_at!r},{more}]"
    )


def _verdict(one: Record) -> str:
    verdict = one.verdict
    if verdict is None:
        return "0"
    if verdict.again_in_s is None and verdict.counts and verdict.outcome == one.outcome:
        return "1"
    return _encode([outcome_text(verdict.outcome), verdict.again_in_s, verdict.counts])


@lru_cache(maxsize=256)  # most attempts share it
def _outcome(outcome: Outcome | None) -> str:
    return "null" if outcome is None else _encode(outcome_text(outcome))


@lru_cache(maxsize=256)
def _read_outcome(text: str | None) -> Outcome | None:
    return outcome_of(text)


def records_of(words: Sequence[bytes]) -> list[Kept]:
    """The records of these words: for each a line and a text."""
    if not words:
        return []
    lines = [line.decode("utf-8", "backslashreplace").split(" ", 10) for line in words[::2]]
    lists = json.loads(f"[{','.join([line[10] for line in lines])}]")
    fires = fires_of(words[1::2])
    return [_record_of(*parts) for parts in zip(fires, lines, lists, strict=True)]


def _record_of(fire: Fire, line: list[str], more: list[Any]) -> Kept:
    version, first_fence, first_id, run_at, look_at, flags, _, expires, ttl_s, _, _ = line
    number, attempt, recorded, fence, node, ask, ran_node, ran_fence, ran_at, *rare = more
    one: Kept = object.__new__(Kept)
    one.fire, one.version = fire, int(version)
    one.id = number if number > 0 else int(first_id) - number
    one.state, one.tier, one.is_parked = _STATES[flags[0]], _TIERS[flags[1]], flags[3] == "1"
    one.run_at, one.look_at = float(run_at), float(look_at)
    one.expires, one.ttl_s = float(expires), float(ttl_s)
    one.attempt, one.recorded, one.node, one.ask = attempt, recorded, node, ask
    one.fence = fence if fence >= 0 else int(first_fence) - fence - 1
    one.ran_node = node if ran_node == 1 else ran_node
    one.ran_fence = ran_fence if ran_fence >= 0 else int(first_fence) - ran_fence - 1
    one.ran_at = ran_at
    one.disposition = one.stop = one.outcome = one.verdict = None
    one.over_at, one.keep_until, one.waits = 0.0, 0.0, False
    if len(rare) > 1:
        disposition, stop, outcome, verdict, one.over_at, one.keep_until, waits = rare
        one.disposition, one.stop = _read_outcome(disposition), _read_outcome(stop)
        one.outcome, one.waits = _read_outcome(outcome), waits == 1
        if verdict == 1 and one.outcome:
            one.verdict = Verdict(one.outcome)
        elif verdict:
            one.verdict = Verdict(read_outcome(verdict[0]), verdict[1], verdict[2])
    one.names, one.until = names_of(one), one.expires
    return one


# Histories: JSON lists without their brackets, so that a script can append to them.


def attempt_text(one: Attempt) -> bytes:
    started, ended = one.started_at.timestamp(), one.ended_at.timestamp()
    return to_bytes(
        f"[{one.number},{_word(one.node)},{one.fence},{started!r},{ended!r},{_outcome(one.outcome)},"
        f"{'null' if one.status is None else one.status},{one.took_s!r},{_encode(one.result)}]"
    )


def tail_text(one: Attempt) -> bytes:
    return json.dumps([one.number, one.tail.decode("latin-1")]).encode()


def attempts_of(text: bytes | None, tails: bytes | None) -> tuple[Attempt, ...]:
    """The attempts of a history; with their output, if it was read too."""
    outputs = dict(of_json(b"[%b]" % tails)) if tails else {}
    found = []
    for words in of_json(b"[%b]" % text) if text else ():
        number, node, fence, started, ended, outcome, status, took_s, result = words
        found.append(
            Attempt(
                number=number,
                node=node,
                fence=fence,
                started_at=instant(started),
                ended_at=instant(ended),
                outcome=read_outcome(outcome),
                status=status,
                took_s=took_s,
                tail=outputs.get(number, "").encode("latin-1"),
                result=result,
            )
        )
    return tuple(found)
