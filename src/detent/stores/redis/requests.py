"""Requests to the script `commit`: versions to check, and writes.

A write is a command of Redis, or one of the script's own: STAMP sets fields of a hash and gives them a
version, RESTAMP changes only the version, EXTEND adds to a list, COUNT adds to numbers.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from detent.rules.tallies import MINUTE_S, group_of, start_of
from detent.rules.tallies import Group as TallyGroup
from detent.stores.base import LANE_PREFIX, NOTE_PREFIX
from detent.stores.engine.driver import Expect, Group, SetCell, Write
from detent.stores.engine.record import Record
from detent.stores.redis.indexes import Indexes, encoded, indexes_of, lasting_indexes
from detent.stores.redis.session import Seen, Session
from detent.stores.redis.values import Kept, attempt_text, fire_text, line_of, tail_text

TALLY_S = 48 * 3600  # how long the numbers of a minute are kept
REMOVES = ("ZREM", "HDEL")  # first: what is deleted may be replaced, and a full server needs the memory
Word = bytes | str | float
Arguments = defaultdict[str, list[Word]]  # of a command, by key


class Request:
    """A request that is being made.  `seen` has the records that the unit of work read, `present` the keys
    that exist although they were to be inserted."""

    def __init__(self, seen: Mapping[str, Kept], present: set[str]) -> None:
        self._seen, self._present = seen, present
        self.checks: defaultdict[str, dict[Word, str]] = defaultdict(dict)  # hash -> field -> version
        self.writes: defaultdict[str, Arguments] = defaultdict(lambda: defaultdict(list))  # by command
        self._sets: defaultdict[str, set[str]] = defaultdict(set)  # members to add
        self._tallies: defaultdict[str, Counter[TallyGroup]] = defaultdict(Counter)  # hash -> fires
        self._wakes: list[list[Any]] = []
        self._live_until = float("inf")  # the earliest expiry of claims that must be live
        self.inserted: list[str] = []
        self.written: dict[str, tuple[Kept, Indexes]] = {}

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
            self.checks["jobs"][name] = f"{job.version} "
            if job.at is None:
                self.writes["HDEL"]["jobs"].append(name)
            else:
                self.writes["STAMP"]["jobs"] += name, f"{job.at!r} {job.revision}"
        for one in group.progress:
            if one.succeeded is not None:
                self.writes["ZADD"]["succeeded"] += one.succeeded, encoded(one.job)
            if one.reached is not None:
                self.writes["ZADD GT"]["reached"] += one.reached, encoded(one.job)
        for wake in group.wakes:
            who = [encoded(wake.lane), wake.most, wake.at] if wake.lane else ["", encoded(wake.job)]
            self._wakes.append(who)

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
        checks, writes = list[list[Any]](), list[list[Any]]()
        for hash_name, fields in self.checks.items():
            common = {*fields.values()} if len({*fields.values()}) == 1 else ()
            checks.append([hash_name, len(fields), *common])
            words += fields if common else [*fields, *fields.values()]
        for name, numbers in self._tallies.items():
            counts = [(tally_field(group), number) for group, number in numbers.items()]
            self.writes["COUNT"][name] = [word for pair in counts for word in pair]
            self.writes["EXPIRE"][name] = [TALLY_S]
        for name, members in self._sets.items():
            self.writes["SADD"][name] = [*members]
        for command in sorted(self.writes, key=lambda one: one not in REMOVES):
            writes.append([command])
            for key, given in self.writes[command].items():
                writes[-1] += key, len(given)
                words += given
        return session.run(app, "commit", [held, checks, writes, self._wakes], words)

    # Records.

    def _insert(self, write: Write) -> None:
        record, fire = write.record, write.record.fire
        key = key_of(fire.key)
        if fire.key in self._present:
            return
        if write.is_new_fire:
            self._delete(self._seen[fire.key])  # it may have been on another queue
        else:
            self.checks["states"][key] = "0 "
            self.inserted.append(fire.key)
        texts = self.writes["HSET"]["texts"]
        record.id = -1 - len(texts) // 2
        texts += key, fire_text(fire)
        self._set_state(key, record, (*indexes_of(record), *lasting_indexes(fire.origin, fire.job)))
        self._sets["queues"].add(encoded(fire.queue))
        if fire.origin == "push":
            self._sets["tasks"].add(encoded(fire.job))

    def _update(self, write: Write) -> None:
        record, fire, indexes = write.record, write.record.fire, indexes_of(write.record)
        assert isinstance(record, Kept)
        key = key_of(fire.key)
        self.written[fire.key] = record, indexes
        self.checks["states"][key] = f"{write.version} "
        for one in record.indexes:
            if one not in indexes:
                self.writes["ZREM"][one[0]].append(key)
        self._set_state(key, record, indexes)
        if write.must_live:
            self._live_until = min(self._live_until, record.until)
        if attempt := write.attempt:
            command = "HSET" if attempt.number == 1 else "EXTEND"  # the first begins the history
            self.writes[command]["attempts"] += key, attempt_text(attempt)
            if attempt.tail:
                self.writes[command]["tails"] += key, tail_text(attempt)
        if record.state == "over":
            self._sets["past"].add(encoded(fire.job))
            self._tallies[tally_name(record)][group_of(record)] += 1
        elif record.is_parked:
            self._sets[f"parks:{encoded(fire.lane)}"].add(encoded(fire.queue))

    def _set_state(self, key: bytes, record: Record, indexes: Indexes) -> None:
        self.writes["STAMP"]["states"] += key, line_of(record)
        added = self.writes["ZADD"]
        for index, attribute in indexes:
            score = getattr(record, attribute) if attribute else record.fire.due_at.timestamp()
            added[index] += _number(score), key

    def _delete(self, old: Kept) -> None:
        key = key_of(old.fire.key)
        self.checks["states"][key] = f"{old.version} "
        for index, _ in (*old.indexes, *lasting_indexes(old.fire.origin, old.fire.job)):
            self.writes["ZREM"][index].append(key)
        for hash_name in ("states", "texts", "attempts", "tails"):
            self.writes["HDEL"][hash_name].append(key)

    def _set_cell(self, one: SetCell) -> None:
        hash_name, field = where(one.name)
        if one.version is not None:
            self.checks[hash_name][field] = f"{one.version} "
        if one.text is None:
            self.writes["RESTAMP"][hash_name].append(field)
        elif one.text == "" and not one.name.startswith(LANE_PREFIX):
            self.writes["HDEL"][hash_name].append(field)
        else:
            self.writes["STAMP"][hash_name] += field, one.text
            if hash_name.startswith("notes:"):
                self._sets["kinds"].add(hash_name)


@lru_cache(maxsize=1024)  # records that change together have the same times
def _number(score: float) -> bytes:
    return repr(score).encode()


def tally_name(ended: Record) -> str:
    return f"tally:{start_of(ended.over_at, MINUTE_S) // MINUTE_S}"


def tally_field(group: TallyGroup) -> str:
    return json.dumps(group)


def key_of(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


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
