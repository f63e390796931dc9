"""The driver in memory: dictionaries and a lock.  It is also the shortest example of a driver."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from detent import clock
from detent.model import DEAD, Attempt, Found, Query, Row, Size, Tally
from detent.rules.tallies import counted
from detent.rules.trust import STEP_S
from detent.stores.base import ORPHANS_TTL_S, REMEMBER_ASKS_S, app_of, leap
from detent.stores.engine.driver import (
    NO_CELL,
    NO_JOB,
    VIEW_S,
    Asked,
    Cell,
    Cells,
    Committed,
    Due,
    Expect,
    Expired,
    Fires,
    Group,
    Header,
    Jobs,
    JobState,
    LaneMembers,
    LastAsk,
    Next,
    Planned,
    Read,
    SetCell,
    Upcoming,
    Wake,
    Write,
    moves_with_clock,
    place_of,
)
from detent.stores.engine.record import Record, row_of
from detent.stores.search import newest, select

Bucket = tuple[str, ...]  # the name of an index


class State:
    """Everything that the store keeps."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.attempts: dict[str, list[Attempt]] = defaultdict(list)
        self.index: dict[Bucket, dict[str, Record]] = defaultdict(dict)
        self.cells: dict[tuple[str, str], Cell] = {}
        self.jobs: dict[str, JobState] = {}
        self.asks: dict[str, tuple[int, float]] = {}  # node -> the number of its newest ask, and when
        self.fences: dict[str, int] = {}
        self.generations: dict[str, int] = defaultdict(int)
        self.controls: dict[str, int] = defaultdict(int)
        self.version = self.last_id = 0
        self.longest_ttl_s = 0.0


class MemoryDriver:
    def __init__(
        self,
        wall: Callable[[], float] = clock.wall,
        steady: Callable[[], float] = clock.monotonic,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._wall, self._steady, self._wake = wall, steady, wake
        self.state = State()
        self.epoch, self.quarantined_until = 1, 0.0
        self.offset = wall() - steady()
        self._changed = threading.Condition(threading.RLock())
        self._wakeups, self._heard = 0, -1  # -1: no call of `wait` yet

    def hand(self, app: str) -> AbstractContextManager[None]:
        return nullcontext()

    # Look.

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        with self._changed:
            header = self._header(app)
            return header, [self._read(app, read, header) for read in reads]

    def _header(self, app: str) -> Header:
        state = self.state
        epoch, calm = str(self.epoch), self.quarantined_until
        return Header(self._now(), self._steady(), epoch, calm, state.generations[app], state.controls[app])

    def _read(self, app: str, read: Read, header: Header) -> Any:
        state, wall, steady = self.state, header.wall, header.steady
        match read:
            case Due():
                found = [r for r in self._all("pending", app, read.queue, read.tier) if r.look_at <= wall]
                some = sorted(
                    (one for one in found if not read.after or place_of(one) > read.after), key=place_of
                )
                return [one.copy() for one in some[: read.most]]
            case Expired():
                bucket = ("laned", app) if read.queue is None else ("claimed", app, read.queue)
                found = [r for r in self._all(*bucket) if r.expires <= steady]
                return [one.copy() for one in sorted(found, key=lambda one: one.expires)[: read.most]]
            case Asked():
                found = [r for r in self._all("node", read.node) if read.number in (None, r.ask)]
                return [one.copy() for one in sorted(found, key=lambda one: one.id)]
            case Fires():
                return [state.records[key].copy() for key in read.keys if key in state.records]
            case Planned():
                found = [one for job in read.jobs for one in self._all("job", job)]
                return [one.copy() for one in found if one.state == "pending" and not one.attempt]
            case LaneMembers():
                return {lane: [one.copy() for one in self._lane(lane, read, wall)] for lane in read.lanes}
            case Jobs():
                names = state.jobs if read.names is None else read.names
                ours = {
                    name: state.jobs[name] for name in names if name in state.jobs and app_of(name) == app
                }
                return (
                    {name: self._with_newest(name, job, wall) for name, job in ours.items()}
                    if read.newest
                    else ours
                )
            case Cells(prefix=""):
                return {name: state.cells[app, name] for name in read.names if (app, name) in state.cells}
            case Cells():
                cells = state.cells.items()
                return {
                    name: cell for (of, name), cell in cells if of == app and name.startswith(read.prefix)
                }
            case LastAsk():
                return state.asks.get(read.node, (0, 0.0))[0]
            case Next():
                pending = [r.look_at for q in read.queues for r in self._pending(app, q) if r.look_at > wall]
                claimed = [r.expires for q in read.queues for r in self._all("claimed", app, q)]
                return Upcoming(
                    min(pending, default=None), min((e for e in claimed if e > steady), default=None)
                )

    def _all(self, *bucket: str) -> list[Record]:
        return list(self.state.index[bucket].values()) if bucket in self.state.index else []

    def _pending(self, app: str, queue: str) -> Iterator[Record]:
        for tier in ("judged", "plain", "hook"):
            yield from self._all("pending", app, queue, tier)

    def _lane(self, lane: str, read: LaneMembers, wall: float) -> list[Record]:
        members = sorted(self._all("lane", lane), key=lambda one: one.id)
        pending = [one for one in members if one.state == "pending"]
        due = sorted((r for r in pending if r.run_at <= wall), key=lambda r: (r.fire.due_at, r.fire.key))
        return [
            *(one for one in members if one.state == "claimed"),
            *[one for one in pending if one.waits][:1],
            *due[len(due) - min(len(due), read.rivals) :],
            *_first_of_each_queue((one for one in pending if one.is_parked), read.parked),
        ]

    def _with_newest(self, name: str, job: JobState, wall: float) -> JobState:
        instants = [r.fire.due_at.timestamp() for r in self._all("job", name) if r.fire.origin == "schedule"]
        return job._replace(newest_due=max((at for at in instants if at <= wall), default=None))

    # Commit.

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        with self._changed:
            header, state = self._header(app), self.state
            if not self._holds(expect, header):
                return None
            done = [self._is_current(app, group, header.steady) for group in groups]
            if expect.is_whole and not all(done):
                return None
            state.version += 1
            first = self._give_fences(app, expect.fences, header.wall)
            is_woken, fresh = expect.wakes_nodes, set[str]()
            for group, _ in filter(lambda pair: pair[1], zip(groups, done, strict=True)):
                # A group may depend on a cell or record that an earlier group of this commit wrote: never so
                # in one ask, because such decisions are in one group.
                is_woken |= self._do(app, group, first, fresh)
            if expect.ask:
                state.asks[expect.ask[0]] = expect.ask[1], header.steady
            state.longest_ttl_s = max(state.longest_ttl_s, expect.longest_ttl_s)
            state.generations[app] += expect.new_generation
            state.controls[app] += expect.new_controls
            if is_woken:
                self.wake_nodes()
            return Committed(self._header(app), done, frozenset(fresh), state.version, first)

    def _holds(self, expect: Expect, header: Header) -> bool:
        if expect.epoch not in ("", header.epoch):
            return False
        if expect.seen is not None and header.steady - expect.seen > VIEW_S:
            return False
        if expect.generation not in (None, header.generation) or expect.controls not in (
            None,
            header.controls,
        ):
            return False
        if not expect.ask:
            return True
        node, number = expect.ask
        return header.steady >= header.quarantined_until and number > self.state.asks.get(node, (0, 0.0))[0]

    def _is_current(self, app: str, group: Group, steady: float) -> bool:
        state = self.state
        return (
            all(self._is_same(write, steady) for write in group.writes if write.version)
            and all(one.version in (None, self._version(one.key)) for one in group.drops)
            and all(
                one.version in (None, state.cells.get((app, one.name), NO_CELL).version)
                for one in group.cells
            )
            and all(one.version == state.jobs.get(one.name, NO_JOB).version for one in group.jobs)
        )

    def _version(self, key: str) -> int:
        return self.state.records[key].version if key in self.state.records else 0

    def _is_same(self, write: Write, steady: float) -> bool:
        old = self.state.records.get(write.record.fire.key)
        return (
            old is not None and old.version == write.version and (not write.must_live or old.is_live(steady))
        )

    def _give_fences(self, app: str, count: int, wall: float) -> int:
        if not count:
            return 0
        last = self.state.fences.get(app) or leap(0, wall)
        self.state.fences[app] = last + count
        return last + 1

    def _do(self, app: str, group: Group, first_fence: int, fresh: set[str]) -> bool:
        state, is_woken = self.state, False
        for drop in group.drops:
            old = state.records.get(drop.key)
            if old and (drop.version is not None or old.state == "pending"):
                self._remove(old)
        for write in group.writes:
            key = write.record.fire.key
            if write.version == 0 and key in state.records:
                continue
            if write.version == 0:
                fresh.add(key)
            self._put(write, first_fence)
        for cell in group.cells:
            self._set_cell(app, cell)
        for job in group.jobs:
            old_job = state.jobs.get(job.name, NO_JOB)
            state.jobs[job.name] = old_job._replace(at=job.at, revision=job.revision, version=state.version)
        for one in group.progress:
            self._progress(*one)
        for wake in group.wakes:
            is_woken |= self._unpark(wake)
        return is_woken

    def _put(self, write: Write, first_fence: int) -> None:
        state, record = self.state, write.record.copy()
        key, old = record.fire.key, state.records.get(record.fire.key)
        if old:
            self._unindex(old)
        if write.is_new_fire or not old:
            state.attempts.pop(key, None)
            state.records.pop(key, None)  # a new record is the last one
        record.version = state.version
        if write.is_new_fire or not old:
            state.last_id += 1
            record.id = state.last_id
        record.fence = first_fence - record.fence - 1 if record.fence < 0 else record.fence
        record.ran_fence = first_fence - record.ran_fence - 1 if record.ran_fence < 0 else record.ran_fence
        state.records[key] = record
        for bucket in _buckets(record):
            state.index[bucket][key] = record
        if write.attempt:
            state.attempts[key].append(write.attempt)

    def _remove(self, record: Record) -> None:
        self._unindex(record)
        del self.state.records[record.fire.key]
        self.state.attempts.pop(record.fire.key, None)

    def _unindex(self, record: Record) -> None:
        for bucket in _buckets(record):
            self.state.index[bucket].pop(record.fire.key, None)

    def _set_cell(self, app: str, cell: SetCell) -> None:
        cells, name = self.state.cells, (app, cell.name)
        text = cells.get(name, NO_CELL).text if cell.text is None else cell.text
        cells[name] = Cell(text, self.state.version)

    def _progress(self, job: str, succeeded: float | None, reached: float | None) -> None:
        old = self.state.jobs.get(job, NO_JOB)
        reaches = [at for at in (old.reached, reached) if at is not None]
        new = old.succeeded if succeeded is None else succeeded
        self.state.jobs[job] = old._replace(succeeded=new, reached=max(reaches, default=None))

    def _unpark(self, wake: Wake) -> bool:
        found = [
            one for one in self._all("lane" if wake.lane else "job", wake.lane or wake.job) if one.is_parked
        ]
        for record in _first_of_each_queue(found, wake.most) if wake.lane else found:
            record.look_at = min(record.look_at, wake.at) if wake.at else record.run_at
            record.is_parked, record.version = wake.at > 0, self.state.version
        return bool(found) and not wake.at

    # Queries.

    def find(self, query: Query) -> Found:
        with self._changed:
            some, before = select(self.state.records.values(), query)
            return Found((row_of(one, self._history(one, query)) for one in some), before)

    def _history(self, record: Record, query: Query) -> tuple[Attempt, ...]:
        attempts = self.state.attempts.get(record.fire.key, ())
        return tuple(one if query.key else one._replace(tail=b"") for one in attempts)

    def newest(self, app: str, jobs: Sequence[str], each: int) -> dict[str, list[Row]]:
        with self._changed:
            found = newest(self.state.records.values(), jobs, each, self._now())
            return {job: [row_of(one, ()) for one in some] for job, some in found.items()}

    def tally(self, app: str, starts: range) -> list[Tally]:
        with self._changed:
            ours = [one for one in self.state.records.values() if app_of(one.fire.job) == app]
            return counted((one for one in ours if one.state == "over"), starts)

    def count(self, app: str, queues: Sequence[str]) -> dict[str, Size]:
        with self._changed:
            found, now = dict[str, Size](), self._now()
            for record in self.state.records.values():
                fire, word = record.fire, _word_of(record, now)
                if (
                    word
                    and fire.origin == "push"
                    and app_of(fire.job) == app
                    and fire.queue in (queues or (fire.queue,))
                ):
                    size = found.get(fire.queue, Size())
                    found[fire.queue] = size._replace(**{word: getattr(size, word) + 1})
            return found

    def apps(self) -> list[str]:
        with self._changed:
            jobs = [name for name, job in self.state.jobs.items() if job.at is not None]
            jobs += [record.fire.job for record in self.state.records.values()]
            notes = [app for (app, _), cell in self.state.cells.items() if cell.text]
            return sorted({*map(app_of, jobs), *notes})

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        with self._changed:
            now, state, kept, gone = self._now(), self.state, defaultdict[str, int](int), 0
            since = self._steady() - REMEMBER_ASKS_S
            state.asks = {node: ask for node, ask in state.asks.items() if ask[1] > since}
            over = [r for r in state.records.values() if r.state == "over" and app_of(r.fire.job) == app]
            for record in sorted(over, key=lambda r: (r.fire.due_at, r.fire.key), reverse=True):
                job, due = record.fire.job, record.fire.due_at.timestamp()
                kept[job] += 1
                is_planned = record.fire.origin == "schedule"
                watermark = state.jobs.get(job, NO_JOB).at
                if is_planned and due > min(now if watermark is None else watermark, now):
                    continue
                if record.over_at < now - older_than_s or (kept[job] > keep and record.keep_until <= now):
                    self._progress(job, None, due if is_planned else None)
                    self._remove(record)
                    gone += 1
            return gone

    # Waiting, time and epochs.

    def wake_nodes(self) -> None:
        self._wakeups += 1
        self._changed.notify_all()
        self._wake()

    def wait(self, app: str, seconds: float) -> bool:
        with self._changed:
            seen = self._wakeups if self._heard < 0 else self._heard
            is_awake = self._changed.wait_for(lambda: self._wakeups != seen, seconds)
            self._heard = self._wakeups
            return is_awake

    def close(self) -> None: ...

    def _now(self) -> float:
        """The wall clock.  If it was set, what is due after a delay moves with it."""
        now = self._wall()
        step = now - self._steady() - self.offset
        self.offset += step
        if abs(step) > STEP_S:
            self.state.version += 1
            for record in self.state.records.values():
                record.run_at += step if moves_with_clock(record) else 0.0
                record.look_at, record.is_parked, record.version = record.run_at, False, self.state.version
        return now

    def new_epoch(self) -> None:
        """The store may have lost data: raise the fences, and grant nothing while an old claim may live."""
        with self._changed:
            self.epoch += 1
            now, state = self._now(), self.state
            state.fences = {app: leap(fence, now) for app, fence in state.fences.items()}
            least_s = 0.0 if state.fences else ORPHANS_TTL_S
            self.quarantined_until = self._steady() + max(state.longest_ttl_s, least_s)


def _buckets(record: Record) -> list[Bucket]:
    """The indexes that an open record is in."""
    fire, app = record.fire, app_of(record.fire.job)
    if record.state == "over":
        return []
    buckets: list[Bucket] = [("pending", app, fire.queue, record.tier)]
    if record.state == "claimed":
        buckets = [("claimed", app, fire.queue), ("node", record.node)]
        buckets += [("laned", app)] if fire.lane else []
    if fire.lane:
        buckets.append(("lane", fire.lane))
    return [*buckets, ("job", fire.job)]


def _first_of_each_queue(records: Iterable[Record], most: int) -> list[Record]:
    seen, first = defaultdict[str, int](int), []
    for record in sorted(records, key=lambda one: (one.run_at, one.fire.key)):
        seen[record.fire.queue] += 1
        if seen[record.fire.queue] <= most:
            first.append(record)
    return first


def _word_of(record: Record, now: float) -> str:
    """The field of `Size` that counts it; "": none."""
    match record.state:
        case "over":
            return "dead" if record.outcome and record.outcome.kind in DEAD else ""
        case "claimed":
            return "running"
        case _:
            return "pending" if record.run_at <= now else "delayed"
