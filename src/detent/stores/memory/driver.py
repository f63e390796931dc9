"""The driver in memory: dictionaries and a lock.  It is also the shortest example of a driver."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import compress
from typing import Any

from detent import clock
from detent.model import Attempt, Found, Query, Row, Size, Tally
from detent.rules.tallies import counted
from detent.rules.trust import STEP_S
from detent.stores import search
from detent.stores.base import ORPHANS_TTL_S, REMEMBER_ASKS_S, app_of, leap
from detent.stores.engine import driver
from detent.stores.engine.driver import NO_CELL, NO_JOB, Cell, Expect, Group, Header, JobState, place_of
from detent.stores.engine.record import Record, row_of

Clock = Callable[[], float]


class State:
    """Everything that the store keeps."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.open: dict[str, Record] = {}  # those that are not over, by id
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
    def __init__(self, wall: Clock = clock.wall, steady: Clock = clock.monotonic) -> None:
        self._wall, self._steady = wall, steady
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
            ours = [one for one in self.state.open.values() if app_of(one.fire.job) == app]
            by_state = [[one for one in ours if one.state == state] for state in ("pending", "claimed")]
            return header, [_copied(self._read(app, read, header, *by_state)) for read in reads]

    def _header(self, app: str) -> Header:
        counters = self.state.generations[app], self.state.controls[app]
        return Header(self._now(), self._steady(), str(self.epoch), self.quarantined_until, *counters)

    def _read(
        self, app: str, read: driver.Read, header: Header, pending: list[Record], claimed: list[Record]
    ) -> Any:
        state, wall, steady = self.state, header.wall, header.steady
        match read:
            case driver.Due(tier, queue, most, after):
                some = [r for r in pending if r.look_at <= wall and (r.tier, r.fire.queue) == (tier, queue)]
                return sorted((r for r in some if not after or place_of(r) > after), key=place_of)[:most]
            case driver.Expired(queue, most):
                some = [r for r in claimed if r.fire.queue == queue or (queue is None and r.fire.lane)]
                return sorted((r for r in some if r.expires <= steady), key=lambda r: r.expires)[:most]
            case driver.Asked(node, number):
                return [r for r in claimed if r.node == node and number in (None, r.ask)]
            case driver.Fires(keys):
                return [state.records[key] for key in keys if key in state.records]
            case driver.Planned(jobs):
                names = set(jobs)
                return [r for r in pending if r.fire.job in names and not r.attempt]
            case driver.LaneMembers():
                return search.members_of_lanes(read, pending, claimed, wall)
            case driver.Jobs(wanted, is_newest_read):
                newest = search.newest_due_of(pending + claimed, wall) if is_newest_read else {}
                ours = [one for one in (state.jobs if wanted is None else wanted) if app_of(one) == app]
                known = [(name, state.jobs[name]) for name in ours if name in state.jobs]
                return {name: one._replace(newest_due=newest.get(name)) for name, one in known}
            case driver.Cells(names, ""):
                return {name: state.cells[app, name] for name in names if (app, name) in state.cells}
            case driver.Cells(_, prefix):
                cells = state.cells.items()
                return {name: cell for (of, name), cell in cells if of == app and name.startswith(prefix)}
            case driver.LastAsk(node):
                return state.asks.get(node, (0, 0.0))[0]
            case driver.Next(queues):
                looks = [r.look_at for r in pending if r.fire.queue in queues and r.look_at > wall]
                ends = [r.expires for r in claimed if r.fire.queue in queues and r.expires > steady]
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
            last_fence = state.fences.get(app) or leap(0, header.wall)
            if expect.fences:
                state.fences[app] = last_fence + expect.fences
            is_woken, fresh = expect.wakes_nodes, set[str]()
            for group in compress(groups, done):  # what one of them writes, no other depends on
                is_woken |= self._do(app, group, last_fence + 1, fresh)
            if expect.ask:
                state.asks[expect.ask[0]] = expect.ask[1], header.steady
            state.longest_ttl_s = max(state.longest_ttl_s, expect.longest_ttl_s)
            state.generations[app] += expect.new_generation
            state.controls[app] += expect.new_controls
            if is_woken:
                self.wake_nodes()
            return driver.Committed(self._header(app), done, frozenset(fresh), state.version, last_fence + 1)

    def _holds(self, expect: Expect, header: Header) -> bool:
        node, number = expect.ask or ("", 1)
        return expect.holds(header) and number > self.state.asks.get(node, (0, 0.0))[0]

    def _is_current(self, app: str, group: Group, steady: float) -> bool:
        records, cells, jobs = self.state.records, self.state.cells, self.state.jobs
        found: list[tuple[int | None, Record | Cell | JobState | None]] = []
        found += [(drop.version, records.get(drop.key)) for drop in group.drops]
        found += [(cell.version, cells.get((app, cell.name))) for cell in group.cells]
        found += [(job.version, jobs.get(job.name)) for job in group.jobs]
        are_same = all(version in (None, one.version if one else 0) for version, one in found)
        return are_same and all(self._is_same(write, steady) for write in group.writes if write.version)

    def _is_same(self, write: driver.Write, steady: float) -> bool:
        old = self.state.records.get(write.record.fire.key)
        if old is None or old.version != write.version:
            return False
        return not write.must_live or old.is_live(steady)

    def _do(self, app: str, group: Group, first_fence: int, fresh: set[str]) -> bool:
        state = self.state
        for drop in group.drops:
            old = state.records.get(drop.key)
            if old and (drop.version is not None or old.state == "pending"):
                self._remove(old)
        for write in group.writes:
            if write.version or write.record.fire.key not in state.records:
                fresh.update([write.record.fire.key] if not write.version else [])
                self._put(write, first_fence)
        for name, text, _ in group.cells:
            old_cell = state.cells.get((app, name), NO_CELL)
            state.cells[app, name] = Cell(old_cell.text if text is None else text, state.version)
        for job, at, revision, _ in group.jobs:
            old_job = state.jobs.get(job, NO_JOB)
            state.jobs[job] = old_job._replace(at=at, revision=revision, version=state.version)
        for one in group.progress:
            state.jobs[one.job] = driver.progressed(state.jobs.get(one.job, NO_JOB), one)
        woken = [self._unpark(wake) for wake in group.wakes]
        return any(woken)

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

    def _unpark(self, wake: driver.Wake) -> bool:
        lane, job = wake.lane, wake.job
        parked = [one for one in self.state.open.values() if one.is_parked]
        found = [one for one in parked if (one.fire.lane == lane if lane else one.fire.job == job)]
        found = search.first_of_each_queue(found, wake.most) if lane else found
        for record in found:
            record.look_at = min(record.look_at, wake.at) if wake.at else record.run_at
            record.is_parked, record.version = wake.at > 0, self.state.version
        return bool(found) and not wake.at

    # Queries.

    def find(self, query: Query) -> Found:
        with self._changed:
            some, before = search.select(self._candidates(query), query)
            return Found((row_of(one, self._history(one, query)) for one in some), before)

    def _candidates(self, query: Query) -> Iterable[Record]:
        """The records that may match: a search for a few fires need not read all."""
        if query.key:
            return [self.state.records[query.key]] if query.key in self.state.records else []
        is_open = query.upcoming or query.state in ("pending", "claimed")
        return (self.state.open if is_open else self.state.records).values()

    def _history(self, record: Record, query: Query) -> tuple[Attempt, ...]:
        attempts = self.state.attempts.get(record.fire.key, ())
        return tuple(one if query.key else one._replace(tail=b"") for one in attempts)

    def newest(self, app: str, jobs: Sequence[str], each: int) -> dict[str, list[Row]]:
        with self._changed:
            found = search.newest(self.state.records.values(), jobs, each, self._now())
            return {job: [row_of(one, ()) for one in some] for job, some in found.items()}

    def tally(self, app: str, starts: range) -> list[Tally]:
        with self._changed:
            return counted(self._over(app), starts)

    def count(self, app: str, queues: Sequence[str]) -> dict[str, Size]:
        with self._changed:
            return search.sizes(self.state.records.values(), app, queues, self._now())

    def apps(self) -> list[str]:
        with self._changed:
            names = [name for name, job in self.state.jobs.items() if job.at is not None]
            names += [record.fire.job for record in self.state.records.values()]
            names += [app for (app, _), cell in self.state.cells.items() if cell.text]
            return sorted(set(map(app_of, names)))

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        with self._changed:
            state, since = self.state, self._steady() - REMEMBER_ASKS_S
            state.asks = {node: ask for node, ask in state.asks.items() if ask[1] > since}
            watermarks = {name: job.at for name, job in state.jobs.items() if job.at is not None}
            gone = search.prunable(self._over(app), watermarks, self._now(), (older_than_s, keep))
            drops = [driver.Drop(one.fire.key, one.version) for one in gone]
            fires = [one.fire for one in gone if one.fire.origin == "schedule"]
            reached = [driver.Progress(fire.job, reached=fire.due_at.timestamp()) for fire in fires]
            self._do(app, Group(drops=drops, progress=reached), 0, set())
            return len(gone)

    def _over(self, app: str) -> list[Record]:
        records = self.state.records.values()
        return [one for one in records if one.state == "over" and app_of(one.fire.job) == app]

    # Waiting, time and epochs.

    def wake_nodes(self) -> None:
        self._wakeups += 1
        self._changed.notify_all()

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
