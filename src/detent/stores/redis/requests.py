"""Requests to the script `commit`.  Records that change in the same way share a batch.

A batch has columns of arguments: keys, versions, lines, texts, names of indexes, scores.  A column whose
values are all the same is sent as one value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Literal

from detent.model import Attempt, Fire
from detent.rules.tallies import group_of
from detent.stores.base import NOTE_PREFIX
from detent.stores.engine.driver import Expect, Group, Progress, SetCell, Wake, Write
from detent.stores.engine.finishing import LANE_PREFIX
from detent.stores.engine.record import Record
from detent.stores.redis.indexes import Names, encoded, lasting_names, names_of, places_of, score_of
from detent.stores.redis.tallies import TALLY_S, tally_field, tally_name
from detent.stores.redis.values import Kept, attempt_text, fire_texts, line_of, tail_text

FIRST = 8  # arguments before the first column


Step = Literal["insert", "write", "replace", "delete"]
Histories = tuple[tuple[str, str], ...]  # (firsts | appends, hash)


class Shape:
    """How the records of a batch change.  There is one object for each way."""

    def __init__(self, step: Step, old: Names | None, new: Names | None, histories: Histories) -> None:
        before, after = old.indexes if old else (), new.indexes if new else ()
        self.step, self.histories = step, histories
        self.leaves = [one for one in before if step != "write" or one not in after]
        self.enters = [*zip(after, new.scores if new else (), strict=True)]


@lru_cache(maxsize=1024)
def shape_of(step: Step, old: Names | None, new: Names | None, histories: Histories = ()) -> Shape:
    return Shape(step, old, new, histories)


class Batch:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.keys: list[bytes] = []
        self.versions: list[str] = []
        self.places: list[tuple[str, ...]] = []
        self.histories: list[list[bytes]] = []
        self.live = float("inf")  # the earliest expiry of claims that must be live

    def request(self, shape: Shape, words: list[bytes]) -> dict[str, Any]:
        said: dict[str, Any] = {"count": len(self.keys), "keys": _column(words, self.keys)}
        said |= {"enters": [], "firsts": {}, "appends": {}}
        columns = [*zip(*self.places, strict=True)]
        wanted = {of for _, of in shape.leaves} | {of for (_, of), _ in shape.enters}
        names = {of: _values(words, columns[of]) for of in wanted}
        said["leaves"] = [[kind, names[of]] for kind, of in shape.leaves]
        if shape.step != "insert":
            said["versions"] = _values(words, self.versions)
        if shape.step == "delete":
            return said | {"is_gone": True}
        if self.live != float("inf"):
            said["live"] = self.live
        said["lines"] = _column(words, [line_of(one) for one in self.records])
        if shape.step != "write":
            said["texts"] = _column(words, fire_texts(one.fire for one in self.records))
        scores = {name: self._scores(name, words) for name in {name for _, name in shape.enters}}
        said["enters"] = [[kind, names[of], scores[name]] for (kind, of), name in shape.enters]
        for (form, hash_name), texts in zip(shape.histories, zip(*self.histories, strict=True), strict=True):
            said[form][hash_name] = _column(words, list(texts))
        return said

    def _scores(self, name: str, words: list[bytes]) -> int | str:
        scores = [score_of(one, name) for one in self.records]
        if scores.count(scores[0]) == len(scores):
            return repr(scores[0])
        return _column(words, [repr(score).encode() for score in scores])


def _column(words: list[bytes], values: list[bytes]) -> int:
    place = FIRST + len(words)
    words += values
    return place


def _values(words: list[bytes], values: Sequence[str]) -> int | str:
    if values.count(values[0]) == len(values):
        return values[0]
    return _column(words, [value.encode() for value in values])


class Request:
    """A request that is being made.  `seen` has the records that the unit of work read."""

    def __init__(self, seen: Mapping[str, Kept], present: set[str]) -> None:
        self._seen, self._present = seen, present
        self.batches: dict[Shape, Batch] = {}
        self.cells: dict[str, dict[str, list[Any]]] = {}  # by hash
        self.jobs: list[Any] = []
        self.wakes: list[Any] = []
        self.sets: set[tuple[str, str]] = set()
        self._succeeded: dict[str, str] = {}
        self._reached: dict[str, float] = {}
        self.inserted: list[str] = []
        self._tallies: dict[str, Counter[str]] = {}  # hash -> how many records of each group end

    def add(self, group: Group) -> None:
        for drop in group.drops:
            if old := self._seen.get(drop.key):
                self._delete(old)
        for write in group.writes:
            self._write(write)
        for cell in group.cells:
            self._cell(cell)
        for job in group.jobs:
            text = "" if job.at is None else f"{job.at!r} {job.revision}"
            self.jobs.append([encoded(job.name), text, job.version])
        for one in group.progress:
            self._progress(one)
        self.wakes += [_wake(one) for one in group.wakes]

    def said(self, expect: Expect, ahead: float | None, words: list[bytes]) -> dict[str, Any]:
        values = {
            "epoch": expect.epoch, "seen": expect.seen, "ask": expect.ask, "generation": expect.generation,
            "controls": expect.controls, "ahead": ahead if expect.seen is not None else None,
        }  # fmt: skip
        # What is deleted may be replaced.
        batches = sorted(self.batches.items(), key=lambda one: one[0].step != "delete")
        return {
            "expect": {name: value for name, value in values.items() if value is not None},
            "fences": expect.fences,
            "longest": expect.longest_ttl_s,
            "new_generation": expect.new_generation,
            "new_controls": expect.new_controls,
            "rings": expect.wakes_nodes,
            "shapes": [batch.request(shape, words) for shape, batch in batches],
            "cells": self.cells,
            "jobs": self.jobs,
            "succeeded": self._succeeded,
            "reached": {job: repr(at) for job, at in self._reached.items()},
            "tallies": self._tallies,
            "tally_s": TALLY_S,
            "wakes": self.wakes,
            "sets": sorted(self.sets),
        }

    def _write(self, write: Write) -> None:
        record = write.record
        fire, names = record.fire, names_of(record)
        if write.version == 0 or write.is_new_fire:
            if fire.key in self._present:
                return
            self._insert(write, names)
            return
        assert isinstance(record, Kept)
        histories = _histories(write.attempt)
        batch = self._batch(shape_of("write", record.names, names, histories), fire)
        batch.records.append(record)
        batch.versions.append(f"{write.version} ")
        if write.must_live:
            batch.live = min(batch.live, record.until)
        if write.attempt:
            batch.histories.append([_text_of(name, write.attempt) for _, name in histories])
        if record.state == "over":
            self.sets.add(("past", encoded(fire.job)))
            numbers = self._tallies.setdefault(tally_name(record.over_at), Counter())
            numbers[tally_field(group_of(record))] += 1
        elif record.is_parked:
            self.sets.add((f"parks:{encoded(fire.lane)}", encoded(fire.queue)))

    def _insert(self, write: Write, names: Names) -> None:
        record, fire = write.record, write.record.fire
        new = _all_names(names, lasting_names(fire.origin))
        if write.is_new_fire:
            self._delete(self._seen[fire.key])  # it may have been on another queue
            batch = self._batch(shape_of("replace", None, new), fire)
        else:
            self.inserted.append(fire.key)
            batch = self._batch(shape_of("insert", None, new), fire)
        record.id = -len(batch.keys)
        batch.records.append(record)
        batch.versions.append(f"{write.version} ")
        self.sets.add(("queues", encoded(fire.queue)))
        if fire.origin == "push":
            self.sets.add(("tasks", encoded(fire.job)))

    def _delete(self, old: Kept) -> None:
        names = _all_names(old.names, lasting_names(old.fire.origin))
        self._batch(shape_of("delete", names, None), old.fire).versions.append(f"{old.version} ")

    def _batch(self, shape: Shape, fire: Fire) -> Batch:
        """The batch of records that change like this one, which it adds."""
        batch = self.batches.get(shape) or self.batches.setdefault(shape, Batch())
        batch.keys.append(fire.key.encode("utf-8", "surrogateescape"))
        batch.places.append(places_of(fire.queue, fire.lane, fire.job))
        return batch

    def _cell(self, one: SetCell) -> None:
        hash_name, field = where(one.name)
        is_deleted = one.text == "" and not one.name.startswith(LANE_PREFIX)
        if hash_name.startswith("notes:") and not is_deleted:
            self.sets.add(("kinds", hash_name))
        cells = self.cells.setdefault(hash_name, {"fields": [], "versions": [], "texts": []})
        cells["fields"].append(field)
        cells["versions"].append(one.version)
        cells["texts"].append(False if is_deleted else one.text)

    def _progress(self, one: Progress) -> None:
        job = encoded(one.job)
        if one.succeeded is not None:
            self._succeeded[job] = repr(one.succeeded)
        if one.reached is not None:
            self._reached[job] = max(one.reached, self._reached.get(job, one.reached))


def _wake(one: Wake) -> list[Any]:
    return [encoded(one.lane), one.most, one.at] if one.lane else ["", encoded(one.job)]


@cache
def _all_names(names: Names, lasting: Names) -> Names:
    return Names([*names.indexes, *lasting.indexes])


def _histories(attempt: Attempt | None) -> Histories:
    """Numbers of attempts grow, so the first one begins the history."""
    if attempt is None:
        return ()
    form = "firsts" if attempt.number == 1 else "appends"
    return ((form, "attempts"), (form, "tails")) if attempt.tail else ((form, "attempts"),)


def _text_of(hash_name: str, attempt: Attempt) -> bytes:
    return attempt_text(attempt) if hash_name == "attempts" else tail_text(attempt)


def where(cell: str) -> tuple[str, str]:
    """The hash and the field of a cell.  Notes have a hash for each prefix of their names."""
    if cell.startswith(NOTE_PREFIX):
        prefix, slash, name = cell.removeprefix(NOTE_PREFIX).partition("/")
        return (f"notes:{encoded(prefix)}", name) if slash else ("notes:", prefix)
    kind, _, name = cell.partition("/")
    return f"cells:{kind}", encoded(name) if cell.startswith(LANE_PREFIX) else name


def groups_with(groups: Iterable[tuple[int, Group]], stale: set[str]) -> set[int]:
    """The groups that depend on something that is stale, as the script names it."""
    return {place for place, group in groups if not stale.isdisjoint(_named(group))}


def _named(group: Group) -> list[str]:
    names = [f"r{write.record.fire.key}" for write in group.writes]
    names += [f"r{drop.key}" for drop in group.drops]
    names += ["c{} {}".format(*where(cell.name)) for cell in group.cells]
    return names + [f"j{encoded(job.name)}" for job in group.jobs]
