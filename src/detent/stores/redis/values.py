"""How records are written in Redis: a text of the fire, which never changes, and a line of its state.

The text has two lines, each a JSON list: what only this fire has, and what it shares with others.  A newer
version may add values to the ends of these lists; an older one ignores them.  The line of a state
has words that the scripts read (`lua/records.lua`), then a JSON list that only Python reads:

    version, first fence and first id of the commit that wrote it; state; kind of outcome; run_at; look_at;
    expires; ttl_s; lane; queue; job; tier; whether it is parked, was doubted, moves with the clock; list

A number below 0 in `fence`, `ran_fence` and `id` counts from the first one of that commit.  So a script adds
the same words to each line of a commit, and need not change them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from detent.clock import instant
from detent.model import Attempt, Fire, Outcome, Policy, Row, State, Verdict
from detent.stores.encoding import instant_of, outcome_of, policy_of, policy_text, read_outcome, seconds_of
from detent.stores.engine.driver import NO_CELL, Cell, moves_with_clock
from detent.stores.engine.record import Record, Tier, row_of
from detent.stores.redis.indexes import Indexes, encoded, indexes_of

NEVER = 9e15  # JSON has no infinity
STATES: dict[bytes, State] = {b"p": "pending", b"c": "claimed", b"o": "over"}
_TIERS: dict[bytes, Tier] = {b"p": "plain", b"j": "judged", b"h": "hook"}
_WORDS = 16  # of a line before its list
_NOTHING = (0.0, 0.0, 0, None, None, None, None)  # the end of the list, if it was left out
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_word = lru_cache(maxsize=1024)(_encode)


class Kept(Record):
    """A record that was read, with the indexes that it is in."""

    __slots__ = ("indexes", "until")

    indexes: Indexes
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


def pairs_of(words: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """The fields and values of a hash, or members and scores."""
    return zip(words[::2], words[1::2], strict=True)


def cell_of(text: bytes | None) -> Cell:
    """What STAMP wrote."""
    if not text:
        return NO_CELL
    version, _, _, rest = text.decode("utf-8", "backslashreplace").split(" ", 3)
    return Cell(rest, int(version))


# Fires.


def fire_text(fire: Fire) -> bytes:
    key, job, due_at, run_id, queue, lane, start_by, policy, origin, revision, payload, first_at, count = fire
    own = f"[{_encode(key)},{due_at.timestamp()!r},{_encode(run_id)},{_encode(payload)},{_word(lane)}]"
    end = _shared_text(job, queue, policy, origin, revision, start_by, first_at, count)
    return b"%b\n%b" % (to_bytes(own), end)


@lru_cache(maxsize=1024)
def _shared_text(job: str, queue: str, policy: Policy, origin: str, revision: str, *more: Any) -> bytes:
    start_by, first_at, count = more
    times = seconds_of(start_by), seconds_of(first_at)
    return to_json([job, queue, policy_text(policy), origin, revision, *times, count])


@lru_cache(maxsize=1024)
def _shared_of(text: bytes) -> tuple[Any, ...]:
    job, queue, policy, origin, revision, start_by, first_at, count, *_ = of_json(text)
    return job, queue, instant_of(start_by), policy_of(policy), origin, revision, instant_of(first_at), count


def fires_of(texts: Sequence[bytes]) -> list[Fire]:
    pairs = [text.split(b"\n") for text in texts]
    fires = []
    for own, (_, end) in zip(of_json(b"[%b]" % b",".join([own for own, _ in pairs])), pairs, strict=True):
        key, due, run_id, payload, lane, *_ = own
        job, queue, start_by, policy, origin, revision, first_at, count = _shared_of(end)
        mine = key, job, instant(due), run_id, queue, lane, start_by, policy, origin, revision
        fires.append(Fire._make((*mine, payload, first_at, count)))
    return fires


# States.


def line_of(one: Record) -> bytes:
    """The line of a record's state, without the words that the script adds."""
    fire, outcome, end = one.fire, one.outcome, ""
    if one.verdict or outcome or one.stop or one.disposition or one.waits:
        end = (
            f",{one.over_at!r},{min(one.keep_until, NEVER)!r},{one.waits:d},{_text(one.disposition)},"
            f"{_text(one.stop)},{_text(outcome)},{_text(one.verdict)}"
        )
    return to_bytes(
        f"{one.state[0]} {outcome.kind if outcome else ''} {one.run_at!r} {one.look_at!r} {one.expires!r} "
        f"{one.ttl_s!r} {encoded(fire.lane)} {encoded(fire.queue)} {encoded(fire.job)} {one.tier[0]} "
        f"{one.is_parked:d} 0 {moves_with_clock(one):d} "
        f"[{one.id},{one.attempt},{one.recorded},{one.fence},{_word(one.node)},{one.ask},"
        f"{_word(one.ran_node)},{one.ran_fence},{one.ran_at!r}{end}]"
    )


@lru_cache(maxsize=256)  # most records share it
def _text(value: Outcome | Verdict | None) -> str:
    return "null" if value is None else _encode(json.dumps(value))


@lru_cache(maxsize=256)
def _verdict_of(text: str | None) -> Verdict | None:
    if text is None:
        return None
    outcome, again_in_s, counts = json.loads(text)
    return Verdict(Outcome(*outcome), again_in_s, counts)


def records_of(words: Sequence[Any], hashes: int = 2) -> list[Kept]:
    """The records of these words: for each a line, a text, and what other hashes have of it."""
    if not words:  # as for most lanes
        return []
    lines = [line.split(b" ", _WORDS) for line in words[::hashes]]
    lists = of_json(b"[%b]" % b",".join([line[_WORDS] for line in lines]))
    return [_record_of(*parts) for parts in zip(fires_of(words[1::hashes]), lines, lists, strict=True)]


def _record_of(fire: Fire, line: list[bytes], more: list[Any]) -> Kept:
    version, first_fence, first_id, state, _, run_at, look_at, expires, ttl_s, *_ = line
    number, one_attempt, recorded, fence, node, ask, ran_node, ran_fence, ran_at, *rest = more
    one: Kept = object.__new__(Kept)
    one.fire, one.version = fire, int(version)
    one.id = number if number > 0 else int(first_id) - number
    one.state, one.tier, one.is_parked = STATES[state], _TIERS[line[12]], line[13] == b"1"
    one.run_at, one.look_at, one.ttl_s = float(run_at), float(look_at), float(ttl_s)
    one.expires = one.until = float(expires)
    one.attempt, one.recorded, one.node, one.ask = one_attempt, recorded, node, ask
    one.fence, one.ran_fence = fence, ran_fence
    one.take_fences(int(first_fence))
    one.ran_node, one.ran_at = ran_node, ran_at
    one.over_at, one.keep_until, waits, disposition, stop, outcome, verdict = rest or _NOTHING
    one.waits, one.disposition, one.stop = waits == 1, outcome_of(disposition), outcome_of(stop)
    one.outcome, one.verdict = outcome_of(outcome), _verdict_of(verdict)
    one.indexes = indexes_of(one)
    return one


def rows_of(words: Sequence[Any], hashes: int) -> list[Row]:
    """The same as rows, with attempts and output if these hashes were read."""
    places = range(0, len(words), hashes)
    histories = [words[place + 2 : place + hashes] for place in places]
    found = zip(records_of(words, hashes), histories, strict=True)
    return [row_of(one, attempts_of(*history) if history else ()) for one, history in found]


# Histories: JSON lists without their brackets, so that a script can append to them.


def attempt_text(one: Attempt) -> bytes:
    started, ended = one.started_at.timestamp(), one.ended_at.timestamp()
    return to_bytes(
        f"[{one.number},{_word(one.node)},{one.fence},{started!r},{ended!r},{_text(one.outcome)},"
        f"{'null' if one.status is None else one.status},{one.took_s!r},{_encode(one.result)}]"
    )


def tail_text(one: Attempt) -> bytes:
    return json.dumps([one.number, one.tail.decode("latin-1")]).encode()


def attempts_of(text: bytes | None, tails: bytes | None = None) -> tuple[Attempt, ...]:
    """The attempts of a history; with their output, if it was read too."""
    outputs = dict(of_json(b"[%b]" % tails)) if tails else {}
    found = []
    for number, node, fence, started, ended, outcome, *rest in of_json(b"[%b]" % text) if text else ():
        status, took_s, result = rest
        times, tail = (instant(started), instant(ended)), outputs.get(number, "").encode("latin-1")
        said = read_outcome(outcome)
        found.append(Attempt(number, node, fence, *times, said, status, took_s, tail, result))
    return tuple(found)
