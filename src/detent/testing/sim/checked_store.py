"""The store of the simulator: the engine on a memory driver that reports every commit to the checker.

The checker sees the records before and after each commit.  So it depends on no rule of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from detent.clock import instant
from detent.model import Job, Watermark
from detent.rules.trust import STEP_S
from detent.stores.base import NOTE_PREFIX, PAUSE, app_of, leap
from detent.stores.encoding import live_note
from detent.stores.engine.driver import NO_CELL, Committed, Driver, Expect, Group
from detent.stores.engine.engine import Engine
from detent.stores.engine.record import Record
from detent.stores.memory.driver import MemoryDriver, State
from detent.testing.sim.checker import Checker, Shadow, keys_of
from detent.testing.sim.invariants import forgotten_lanes, wrong_lane, wrong_late_hook, wrong_settling

LATE_MAX_S = 2.0
ROUNDING_S = 1e-3  # smaller differences are rounding, not a step


class Saved(NamedTuple):
    """What a successor has after a failover."""

    state: State
    shadow: Shadow


class CheckedDriver(MemoryDriver):
    """Its clock behaves like a server's: a step too small to be noticed moves the end of claims."""

    unnoticed_s = STEP_S

    def __init__(
        self,
        clocks: tuple[Callable[[], float], Callable[[], float]],
        wake: Callable[[], None],
        manifests: dict[str, dict[str, Job]],
        checker: Checker,
    ) -> None:
        super().__init__(*clocks)
        self._wake, self.shadow, self.manifests, self.checker = wake, Shadow(), manifests, checker
        self._granted: list[tuple[Record, Record]] = []  # in this commit, before and after

    # What is committed.

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        changes_jobs = any(group.jobs for group in groups)
        before = self.watermarks(app) if changes_jobs else {}
        committed = super().commit(app, expect, groups)
        if committed and changes_jobs:
            (self._check_jobs if expect.new_generation else self._check_plans)(before, self.watermarks(app))
        self._check_grants()
        if committed:
            self._check_parking({write.record.fire.lane for group in groups for write in group.writes})
        return committed

    def _do(self, app: str, group: Group, first_fence: int, fresh: set[str]) -> bool:
        records = self.state.records
        before = {write.record.fire.key: records.get(write.record.fire.key) for write in group.writes}
        is_woken = super()._do(app, group, first_fence, fresh)
        for key, old in before.items():
            if records[key] is not old:
                self._observe(old, records[key])
        return is_woken

    def _observe(self, old: Record | None, new: Record) -> None:
        if old is None or old.id != new.id:
            self._record(new)
        elif new.state == "claimed" and new.fence != old.fence:
            self._grant(old, new)
        elif new.recorded != old.recorded and old.disposition is None and new.fire.policy.grace_s:
            self.shadow.begin_grace(new.fire, self._steady())
        if new.state == "over" and old and old.state != "over":
            self._end(old, new)

    def _record(self, new: Record) -> None:
        if new.fire.origin == "hook":
            self.shadow.hooks.add(new.fire.key)
        if new.fire.origin == "manual":
            self.shadow.pushed.add(new.fire.key)

    def _grant(self, old: Record, new: Record) -> None:
        late_s = self._now() - old.run_at
        if self.checker.is_punctual and old.state == "pending" and not old.waits and late_s > LATE_MAX_S:
            self.checker.fail(f"{new.fire.key} was claimed {late_s:.0f} s late for nothing")
        if new.disposition is None and old.state != "pending":
            self.checker.fail(f"{new.fire.key} was granted to {new.node}, and is {old.state} by {old.node}")
        if new.disposition is None and new.fire.origin == "schedule":
            self._check_job_of(old, new)
        self.checker.grants[new.fire.key] += 1
        self.shadow.reach(new.fire)
        self._granted.append((old, new))

    def _check_job_of(self, old: Record, new: Record) -> None:
        app, name = app_of(new.fire.job), NOTE_PREFIX + PAUSE + new.fire.job
        if self.state.jobs[new.fire.job].at is None:
            self.checker.fail(f"{new.fire.key} was granted, although its job was removed")
        if not old.attempt and live_note(self.state.cells.get((app, name), NO_CELL).text, self._steady()):
            self.checker.fail(f"{new.fire.key} was granted, although its job is paused")

    def _end(self, old: Record, new: Record) -> None:
        if old.state == "pending":
            self.shadow.reach(new.fire)
        self.shadow.end(new, self._job_of(new), self._steady())
        assert new.outcome
        early = new.fire.origin == "schedule" and new.fire.due_at > instant(self._now())
        if early and new.outcome.kind != "cancelled" and not self.checker.steps:
            self.checker.fail(f"{new.fire.key} was {new.outcome.kind} before it was due")

    def _check_grants(self) -> None:
        granted, self._granted, steady = self._granted, [], self._steady()
        wrong = [
            wrong_lane(self._members([lane]), self.shadow.graces.get(lane, ()), steady)
            for lane in {new.fire.lane: 0 for _, new in granted if new.fire.lane}
        ]
        for old, new in granted:
            if old.state == "pending" and not old.disposition:
                wrong.append(wrong_settling(new, self.state.records, steady))
            if new.fire.origin == "hook" and not old.fence:
                wrong.append(wrong_late_hook(new, self.state.records))
        for what in filter(None, wrong):
            self.checker.fail(what)

    def _check_parking(self, lanes: set[str]) -> None:
        clocks = self._now(), self._steady()
        for what in forgotten_lanes(self._members(lanes - {""}), self.shadow.graces, clocks):
            self.checker.fail(what)

    def _members(self, lanes: Collection[str]) -> list[Record]:
        return [one for one in self.state.open.values() if one.fire.lane in lanes] if lanes else []

    def _remove(self, record: Record) -> None:
        super()._remove(record)
        if record.state == "claimed":
            self.checker.fail(f"{record.fire.key} was deleted while it was claimed")

    def _check_jobs(self, before: dict[str, Watermark], after: dict[str, Watermark]) -> None:
        for name, watermark in after.items():
            old = before.get(name)
            if old and old.revision == watermark.revision:
                continue
            if wrong := self.shadow.resumes_wrongly(name, old, watermark, instant(self._now())):
                self.checker.fail(wrong)
            self._check_withdrawn(name, watermark.revision)
        jobs = {name: self.manifests[name][watermark.revision] for name, watermark in after.items()}
        self.shadow.revise(jobs, before, after)

    def _check_plans(self, before: dict[str, Watermark], after: dict[str, Watermark]) -> None:
        for name, old in before.items():
            new = after.get(name)
            if new is None or new.revision != old.revision or new.at < old.at:
                self.checker.fail(f"a plan changed {name} from {old} to {new}")

    def _check_withdrawn(self, name: str, revision: str) -> None:
        """What an older revision planned stays only behind an instant that was reached."""
        reached = self.state.jobs[name].reached or 0.0
        for record in [one for one in self.state.open.values() if one.fire.job == name]:
            fire = record.fire
            if fire.origin != "schedule" or record.state != "pending" or fire.revision == revision:
                continue
            if not record.attempt and (fire.first_at or fire.due_at).timestamp() > reached:
                self.checker.fail(f"{fire.key} is still planned by {fire.revision!r}")
            self.checker.kept.add(fire.key)

    # What the simulator asks.

    def watermarks(self, app: str) -> dict[str, Watermark]:
        jobs = self.state.jobs.items()
        return {
            name: Watermark(instant(job.at), job.revision)
            for name, job in jobs
            if job.at is not None and app_of(name) == app
        }

    def open_records(self) -> list[Record]:
        return [*self.state.open.values()]

    def awaited(self, held: set[str]) -> set[str]:
        """The instants of spans that are not due again yet, because the clock was set back, and the fires of
        jobs that no node holds."""
        now, spans = instant(self._now()), [one for one in self.open_records() if one.fire.instants > 1]
        later = [one for one in spans if one.fire.due_at > now]
        keys = {key for one in later for key in keys_of(one.fire, self._job_of(one))}
        return keys | {one.fire.key for one in self.open_records() if one.fire.job not in held}

    def _job_of(self, record: Record) -> Job | None:
        return self.manifests.get(record.fire.job, {}).get(record.fire.revision)

    def wake_nodes(self) -> None:
        super().wake_nodes()
        self._wake()

    # Faults.

    def _now(self) -> float:
        before, now = self.offset, super()._now()
        if ROUNDING_S < abs(step := self.offset - before) < self.unnoticed_s:
            for record in self.state.records.values():
                record.expires -= step
        return now

    def save(self) -> Saved:
        return Saved(copy_of(self.state), self.shadow.copy())

    def fail_over(self, saved: Saved) -> None:
        """Continue as a successor that has only the saved state."""
        self.state, self.shadow = saved
        self.new_epoch()
        # An epoch without a known fence grants its first one after a quarantine, so more than a second later.
        self.checker.floors.append(max(self.state.fences.values(), default=leap(0, self._now() + 1)))


class CheckedStore(Engine):
    """`driver` may be a hostile one; `checked` keeps the state."""

    def __init__(self, driver: Driver, checked: CheckedDriver) -> None:
        super().__init__(driver)
        self.checked = checked
        self.calls: Counter[str] = Counter()

    @property
    def shadow(self) -> Shadow:
        return self.checked.shadow


def copy_of(state: State) -> State:
    other = State()
    other.records = {key: record.copy() for key, record in state.records.items()}
    other.open = {key: other.records[key] for key in state.open}
    other.attempts.update((key, list(attempts)) for key, attempts in state.attempts.items())
    other.generations.update(state.generations)
    other.controls.update(state.controls)
    other.cells, other.jobs, other.asks = dict(state.cells), dict(state.jobs), dict(state.asks)
    other.fences, other.version, other.last_id = dict(state.fences), state.version, state.last_id
    other.longest_ttl_s = state.longest_ttl_s
    return other
