"""Requests to the script `commit`: versions to check, and writes.

A write is a command of Redis, or one of the script's own: STAMP sets fields of a hash and gives them a
version, RESTAMP changes only the version, EXTEND adds to a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.model import Attempt
from detent.stores.base import NOTE_PREFIX
from detent.stores.engine.driver import Expect, Group, SetCell, Wake, Write
from detent.stores.engine.finishing import LANE_PREFIX
from detent.stores.redis.indexes import encoded, indexes_of, lasting_indexes, score_of
from detent.stores.redis.session import Seen, Session
from detent.stores.redis.values import Kept, attempt_text, fire_text, line_of, tail_text

REMOVES = ("ZREM", "HDEL")  # first: what is deleted may be replaced, and a full server needs the memory
Word = bytes | str | float


class Request:
    """A request that is being made.  `seen` has the records that the unit of work read, `present` the keys
    that exist although they were to be inserted."""

    def __init__(self, seen: Mapping[str, Kept], present: set[str]) -> None:
        self._seen, self._present = seen, present
        self._checks: dict[str, dict[Word, str]] = {}  # hash -> field -> version
        self._writes: dict[tuple[str, str], list[Word]] = {}  # command and key -> arguments
        self._sets: dict[str, set[str]] = {}  # members to add
        self._wakes: list[list[Any]] = []
        self._shared: dict[tuple[Any, ...], bytes] = {}
        self._live_until = float("inf")  # the earliest expiry of claims that must be live
        self.inserted: list[str] = []
        self.written: dict[str, Kept] = {}

    def check(self, hash_name: str, field: Word, version: int | str) -> None:
        self._checks.setdefault(hash_name, {})[field] = f"{version} "

    def write(self, command: str, key: str, *words: Word) -> None:
        self._writes.setdefault((command, key), []).extend(words)

    def add(self, group: Group) -> None:
        for drop in group.drops:
            if old := self._seen.get(drop.key):
                self._delete(old)
        for write in group.writes:
            if write.version == 0 or write.is_new_fire:
                self._insert(write)
            else:
                self._update(write)
        for cell in group.cells:
            self._set_cell(cell)
        for job in group.jobs:
            name = encoded(job.name)
            self.check("jobs", name, job.version)
            if job.at is None:
                self.write("HDEL", "jobs", name)
            else:
                self.write("STAMP", "jobs", name, f"{job.at!r} {job.revision}")
        for one in group.progress:
            if one.succeeded is not None:
                self.write("ZADD", "succeeded", one.succeeded, encoded(one.job))
            if one.reached is not None:
                self.write("ZADD GT", "reached", one.reached, encoded(one.job))
        self._wakes += [_wake(one) for one in group.wakes]

    def send(
        self, session: Session, app: str, expect: Expect, ahead: float | None = None
    ) -> tuple[Seen, list[Any]]:
        """Returns the reply: refused; stale and the fields that are; or done and the first fence."""
        held = {name: value for name, value in expect._asdict().items() if value not in (None, "")}
        if expect.seen is not None and ahead is not None:
            held["ahead"] = ahead
        if self._live_until != float("inf"):
            held["live_until"] = self._live_until
        words: list[Word] = []
        for fields in self._checks.values():
            words += [*fields, *fields.values()]
        for (command, key), given in sorted(self._writes.items(), key=lambda one: one[0][0] not in REMOVES):
            words += [command, key, len(given), *given]
        for name, members in self._sets.items():
            words += ["SADD", name, len(members), *members]
        checks = [(hash_name, len(fields)) for hash_name, fields in self._checks.items()]
        return session.run(app, "commit", [held, checks, self._wakes], words)

    # Records.

    def _insert(self, write: Write) -> None:
        record, fire = write.record, write.record.fire
        key = key_of(fire.key)
        if fire.key in self._present:
            return
        if write.is_new_fire:
            self._delete(self._seen[fire.key])  # it may have been on another queue
        else:
            self.check("states", key, 0)
            self.inserted.append(fire.key)
        record.id = -1 - len(self._writes.get(("HSET", "texts"), ())) // 2
        self.write("STAMP", "states", key, line_of(record))
        self.write("HSET", "texts", key, fire_text(fire, self._shared))
        for index, attribute in (*indexes_of(record), *lasting_indexes(record)):
            self.write("ZADD", index, score_of(record, attribute), key)
        self._list("queues", encoded(fire.queue))
        if fire.origin == "push":
            self._list("tasks", encoded(fire.job))

    def _update(self, write: Write) -> None:
        record, fire, indexes = write.record, write.record.fire, indexes_of(write.record)
        assert isinstance(record, Kept)
        key = key_of(fire.key)
        self.written[fire.key] = record
        self.check("states", key, write.version)
        self.write("STAMP", "states", key, line_of(record))
        for one in record.indexes:
            if one not in indexes:
                self.write("ZREM", one[0], key)
        for index, attribute in indexes:
            self.write("ZADD", index, score_of(record, attribute), key)
        if write.must_live:
            self._live_until = min(self._live_until, record.until)
        if write.attempt:
            self._add_attempt(key, write.attempt)
        if record.state == "over":
            self._list("past", encoded(fire.job))
        elif record.is_parked:
            self._list(f"parks:{encoded(fire.lane)}", encoded(fire.queue))

    def _add_attempt(self, key: bytes, attempt: Attempt) -> None:
        """Numbers of attempts grow, so the first one begins the history."""
        command = "HSET" if attempt.number == 1 else "EXTEND"
        self.write(command, "attempts", key, attempt_text(attempt))
        if attempt.tail:
            self.write(command, "tails", key, tail_text(attempt))

    def _delete(self, old: Kept) -> None:
        key = key_of(old.fire.key)
        self.check("states", key, old.version)
        for index, _ in (*old.indexes, *lasting_indexes(old)):
            self.write("ZREM", index, key)
        for hash_name in ("states", "texts", "attempts", "tails"):
            self.write("HDEL", hash_name, key)

    # Cells and sets.

    def _set_cell(self, one: SetCell) -> None:
        hash_name, field = where(one.name)
        if one.version is not None:
            self.check(hash_name, field, one.version)
        if one.text is None:
            self.write("RESTAMP", hash_name, field)
        elif one.text == "" and not one.name.startswith(LANE_PREFIX):
            self.write("HDEL", hash_name, field)
        else:
            self.write("STAMP", hash_name, field, one.text)
            if hash_name.startswith("notes:"):
                self._list("kinds", hash_name)

    def _list(self, name: str, member: str) -> None:
        self._sets.setdefault(name, set()).add(member)


def key_of(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _wake(one: Wake) -> list[Any]:
    return [encoded(one.lane), one.most, one.at] if one.lane else ["", encoded(one.job)]


def where(cell: str) -> tuple[str, str]:
    """The hash and the field of a cell.  Notes have a hash for each prefix of their names."""
    if cell.startswith(NOTE_PREFIX):
        prefix, slash, name = cell.removeprefix(NOTE_PREFIX).partition("/")
        return (f"notes:{encoded(prefix)}", encoded(name)) if slash else ("notes:", encoded(prefix))
    kind, _, name = cell.partition("/")
    return f"cells:{kind}", encoded(name)


def names_of(group: Group) -> list[str]:
    """What the group depends on, as the script names it: hash and field."""
    names = [f"states {write.record.fire.key}" for write in group.writes]
    names += [f"states {drop.key}" for drop in group.drops]
    names += ["{} {}".format(*where(cell.name)) for cell in group.cells]
    return names + [f"jobs {encoded(job.name)}" for job in group.jobs]
