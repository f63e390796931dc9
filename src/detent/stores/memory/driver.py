"""The driver in memory: dictionaries and a lock.  It is also the shortest example of a driver."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import compress
from typing import Any

from detent import clock
from detent.model import Attempt, Found, Query, Row, Size, Tally
from detent.rules.tallies import counted
from detent.rules.trust import STEP_S
from detent.stores.base import ORPHANS_TTL_S, REMEMBER_ASKS_S, app_of, leap
from detent.stores.engine import driver
from detent.stores.engine.driver import NO_CELL, NO_JOB, Cell, Expect, Group, Header, JobState, place_of
from detent.stores.engine.record import Record, row_of
from detent.stores.search import newest, select, sizes


class State:
    """Everything that the store keeps."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.open: dict[str, Record] = {}  # those that are not over
        self.attempts: dict[str, list[Attempt]] = defaultdict(list)
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

    def look(self, app: str, reads: Sequence[driver.Read]) -> tuple[Header, list[Any]]:
        with self._changed:
            header = self._header(app)
            ours: dict[str, list[Record]] = {"pending": [], "claimed": []}
            for one in self.state.open.values():
                if app_of(one.fire.job) == app:
                    ours[one.state].append(one)
            return header, [_copied(self._read(app, read, header, ours)) for read in reads]

    def _header(self, app: str) -> Header:
        state = self.state
        epoch, calm = str(self.epoch), self.quarantined_until
        return Header(self._now(), self._steady(), epoch, calm, state.generations[app], state.controls[app])

    def _read(self, app: str, read: driver.Read, header: Header, ours: Mapping[str, list[Record]]) -> Any:
        """The reply to a read.  `ours` are the open records of the app, by state."""
        state, wall, steady = self.state, header.wall, header.steady
        pending, claimed = ours["pending"], ours["claimed"]
        match read:
            case driver.Due():
                some = [r for r in pending if (r.fire.queue, r.tier) == (read.queue, read.tier)]
                some = [r for r in some if r.look_at <= wall and (not read.after or place_of(r) > read.after)]
                return sorted(some, key=place_of)[: read.most]
            case driver.Expired():
                some = [r for r in claimed if r.expires <= steady and read.queue in (None, r.fire.queue)]
                some = [r for r in some if r.fire.lane or read.queue is not None]
                return sorted(some, key=lambda r: r.expires)[: read.most]
            case driver.Asked():
                some = [r for r in claimed if r.node == read.node and read.number in (None, r.ask)]
                return sorted(some, key=lambda r: r.id)
            case driver.Fires():
                return [state.records[key] for key in read.keys if key in state.records]
            case driver.Planned():
                jobs = set(read.jobs)
                return [r for r in pending if r.fire.job in jobs and not r.attempt]
            case driver.LaneMembers():
                return _lanes(read, pending, claimed, wall)
            case driver.Jobs():
                names = state.jobs if read.names is None else read.names
                found = {name: state.jobs[name] for name in names if name in state.jobs}
                found = {name: job for name, job in found.items() if app_of(name) == app}
                return _with_newest(found, pending + claimed, wall) if read.newest else found
            case driver.Cells(prefix=""):
                return {name: state.cells[app, name] for name in read.names if (app, name) in state.cells}
            case driver.Cells():
                cells = [(name, cell) for (of, name), cell in state.cells.items() if of == app]
                return {name: cell for name, cell in cells if name.startswith(read.prefix)}
            case driver.LastAsk():
                return state.asks.get(read.node, (0, 0.0))[0]
            case driver.Next():
                looks = [r.look_at for r in pending if r.fire.queue in read.queues and r.look_at > wall]
                ends = [r.expires for r in claimed if r.fire.queue in read.queues and r.expires > steady]
                return driver.Upcoming(min(looks, default=None), min(ends, default=None))

    # Commit.

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> driver.Committed | None:
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
            for group in compress(groups, done):  # what one of them writes, no other depends on
                is_woken |= self._do(app, group, first, fresh)
            if expect.ask:
                state.asks[expect.ask[0]] = expect.ask[1], header.steady
            state.longest_ttl_s = max(state.longest_ttl_s, expect.longest_ttl_s)
            state.generations[app] += expect.new_generation
            state.controls[app] += expect.new_controls
            if is_woken:
                self.wake_nodes()
            return driver.Committed(self._header(app), done, frozenset(fresh), state.version, first)

    def _holds(self, expect: Expect, header: Header) -> bool:
        node, number = expect.ask or ("", 1)
        return expect.holds(header) and number > self.state.asks.get(node, (0, 0.0))[0]

    def _is_current(self, app: str, group: Group, steady: float) -> bool:
        records, cells, jobs = self.state.records, self.state.cells, self.state.jobs
        versions = [(one.version, records[one.key].version) for one in group.drops if one.key in records]
        versions += [(one.version, 0) for one in group.drops if one.key not in records]
        versions += [(one.version, cells.get((app, one.name), NO_CELL).version) for one in group.cells]
        versions += [(one.version, jobs.get(one.name, NO_JOB).version) for one in group.jobs]
        are_same = all(self._is_same(write, steady) for write in group.writes if write.version)
        return are_same and all(expected in (None, found) for expected, found in versions)

    def _is_same(self, write: driver.Write, steady: float) -> bool:
        old = self.state.records.get(write.record.fire.key)
        if old is None or old.version != write.version:
            return False
        return not write.must_live or old.is_live(steady)

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
            if write.version or write.record.fire.key not in state.records:
                fresh.update([write.record.fire.key] if not write.version else [])
                self._put(write, first_fence)
        for cell in group.cells:
            old_text = state.cells.get((app, cell.name), NO_CELL).text
            state.cells[app, cell.name] = Cell(old_text if cell.text is None else cell.text, state.version)
        for job in group.jobs:
            old_job = state.jobs.get(job.name, NO_JOB)
            state.jobs[job.name] = old_job._replace(at=job.at, revision=job.revision, version=state.version)
        for one in group.progress:
            self._progress(*one)
        for wake in group.wakes:
            is_woken |= self._unpark(wake)
        return is_woken

    def _put(self, write: driver.Write, first_fence: int) -> None:
        state, record = self.state, write.record.copy()
        key = record.fire.key
        if write.is_new_fire:
            self._remove(record)
        if key not in state.records:
            state.last_id += 1
            record.id = state.last_id
        record.version = state.version
        record.take_fences(first_fence)
        state.records[key] = state.open[key] = record
        if record.state == "over":
            del state.open[key]
        if write.attempt:
            state.attempts[key].append(write.attempt)

    def _remove(self, record: Record) -> None:
        for kept in (self.state.records, self.state.open, self.state.attempts):
            kept.pop(record.fire.key, None)

    def _progress(self, job: str, succeeded: float | None, reached: float | None) -> None:
        old = self.state.jobs.get(job, NO_JOB)
        reaches = [at for at in (old.reached, reached) if at is not None]
        new = old.succeeded if succeeded is None else succeeded
        self.state.jobs[job] = old._replace(succeeded=new, reached=max(reaches, default=None))

    def _unpark(self, wake: driver.Wake) -> bool:
        found = [one for one in self.state.open.values() if one.is_parked]
        if wake.lane:
            found = _first_of_each_queue([one for one in found if one.fire.lane == wake.lane], wake.most)
        else:
            found = [one for one in found if one.fire.job == wake.job]
        for record in found:
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
            return sizes(self.state.records.values(), app, queues, self._now())

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
                record.run_at += step if driver.moves_with_clock(record) else 0.0
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


def _copied(reply: Any) -> Any:
    """A unit of work changes the records that it read."""
    match reply:
        case list():
            return [record.copy() for record in reply]
        case dict():
            return {name: _copied(one) for name, one in reply.items()}
    return reply


def _lanes(
    read: driver.LaneMembers, pending: list[Record], claimed: list[Record], wall: float
) -> dict[str, list[Record]]:
    lanes: dict[str, list[Record]] = {lane: [] for lane in read.lanes}
    for one in sorted((one for one in pending if one.fire.lane in lanes), key=lambda one: one.id):
        lanes[one.fire.lane].append(one)
    members = {lane: _waiting(read, some, wall) for lane, some in lanes.items()}
    for one in claimed:
        members.get(one.fire.lane, []).append(one)
    return members


def _waiting(read: driver.LaneMembers, pending: list[Record], wall: float) -> list[Record]:
    """What to read of the pending records of a lane, which are in order of id."""
    due = sorted((r for r in pending if r.run_at <= wall), key=lambda r: (r.fire.due_at, r.fire.key))
    return [
        *[one for one in pending if one.waits][: read.waiting],
        *due[len(due) - min(len(due), read.rivals) :],
        *_first_of_each_queue((one for one in pending if one.is_parked), read.parked),
    ]


def _with_newest(jobs: dict[str, JobState], ours: list[Record], wall: float) -> dict[str, JobState]:
    due = [one.fire for one in ours if one.fire.origin == "schedule" and one.fire.due_at.timestamp() <= wall]
    newest = {fire.job: fire.due_at.timestamp() for fire in sorted(due, key=lambda fire: fire.due_at)}
    return {name: job._replace(newest_due=newest.get(name)) for name, job in jobs.items()}


def _first_of_each_queue(records: Iterable[Record], most: int) -> list[Record]:
    seen, first = defaultdict[str, int](int), []
    for record in sorted(records, key=lambda one: (one.run_at, one.fire.key)):
        seen[record.fire.queue] += 1
        if seen[record.fire.queue] <= most:
            first.append(record)
    return first
