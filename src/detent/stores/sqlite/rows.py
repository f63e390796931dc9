"""Converts rows of the SQLite store to values and back.  Executes no statement."""

from __future__ import annotations

from typing import Any

from detent.clock import instant
from detent.model import Attempt, Fire, Note, Outcome, Verdict
from detent.stores.base import app_of
from detent.stores.encoding import (
    instant_of,
    outcome_of,
    outcome_text,
    policy_of,
    policy_text,
    read_outcome,
    seconds_of,
)
from detent.stores.record import Entry

FIRE = (
    "key", "job", "due", "run_id", "queue", "lane", "start_by", "policy", "origin", "revision", "payload",
    "first", "instants",
)  # fmt: skip
CHANGING = (
    "run_at", "state", "attempt", "fence", "node", "ask", "ttl", "expires", "waits", "sentence", "stop",
    "outcome", "verdict", "again", "counts", "ran_node", "ran_fence", "ran_at", "over_at",
)  # fmt: skip
COLUMNS = ", ".join(("id", *FIRE, *CHANGING))
RECORD = (
    f"INSERT INTO fires (app, run_at, {', '.join(FIRE)}) VALUES ({', '.join('?' * (len(FIRE) + 2))})"
    " ON CONFLICT (key) DO NOTHING"
)
CHANGE = f"UPDATE fires SET ({', '.join(CHANGING)}) = ({', '.join('?' * len(CHANGING))}) WHERE id = ?"


class Kept(Entry):
    """An entry with the id of its row."""

    __slots__ = ("id",)

    def __init__(self, fire: Fire, run_at: float, id: int) -> None:
        super().__init__(fire, run_at)
        self.id = id


def record_values(fire: Fire, run_at: float) -> tuple[Any, ...]:
    return (
        app_of(fire.job), run_at, fire.key, fire.job, fire.due_at.timestamp(), fire.run_id, fire.queue,
        fire.lane, seconds_of(fire.start_by), policy_text(fire.policy), fire.origin, fire.revision,
        fire.payload, seconds_of(fire.first_at), fire.instants,
    )  # fmt: skip


def change_values(entry: Kept) -> tuple[Any, ...]:
    verdict = entry.verdict
    return (
        entry.run_at, entry.state, entry.attempt, entry.fence, entry.node, entry.ask, entry.ttl_s,
        entry.expires, entry.waits, outcome_column(entry.disposition), outcome_column(entry.stop),
        outcome_column(entry.outcome), outcome_column(verdict.outcome if verdict else None),
        verdict.again_in_s if verdict else None, verdict.counts if verdict else True,
        *entry.ran, entry.over_at, entry.id,
    )  # fmt: skip


def entry_of(row: tuple[Any, ...]) -> Kept:
    entry = Kept(_fire_of(row[1:14]), row[14], row[0])
    (
        entry.state, entry.attempt, entry.fence, entry.node, entry.ask, entry.ttl_s, entry.expires, waits,
        disposition, stop, outcome, verdict, again_in_s, counts, *_,
    ) = row[15:]  # fmt: skip
    entry.ran, entry.over_at = row[29:32], row[32]
    entry.waits = bool(waits)
    entry.disposition, entry.stop, entry.outcome = (
        outcome_of(disposition),
        outcome_of(stop),
        outcome_of(outcome),
    )
    if last := outcome_of(verdict):
        entry.verdict = Verdict(last, again_in_s, bool(counts))
    return entry


def _fire_of(row: tuple[Any, ...]) -> Fire:
    key, job, due, run_id, queue, lane, start_by, policy, origin, revision, payload, first, instants = row
    return Fire(
        key, job, instant(due), run_id, queue, lane, instant_of(start_by), policy_of(policy), origin,
        revision, payload, instant_of(first), instants,
    )  # fmt: skip


def attempt_values(fire: int, one: Attempt) -> tuple[Any, ...]:
    started, ended = one.started_at.timestamp(), one.ended_at.timestamp()
    outcome = outcome_column(one.outcome)
    return fire, one.number, one.node, one.fence, started, ended, outcome, one.status, one.took_s


def attempt_of_row(row: tuple[Any, ...]) -> Attempt:
    number, node, fence, started, ended, outcome, status, took_s, tail, result = row
    when = instant(started), instant(ended)
    said = tail or b"", result or ""
    return Attempt(number, node, fence, *when, read_outcome(outcome), status, took_s, *said)


def note_of(row: tuple[Any, ...], ends: float | None) -> Note:
    name, text, written = row
    return Note(name, text, instant(written), instant_of(ends))


# Parts.


def outcome_column(outcome: Outcome | None) -> str | None:
    if outcome is None:
        return None
    text = outcome_text(outcome)
    # A reason may hold a file name that is not valid Unicode, which SQLite refuses.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
