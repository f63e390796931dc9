"""Bugs planted into the driver: checks of a commit that are left out, clocks, epochs, waking."""

from __future__ import annotations

from collections.abc import Sequence

from detent.stores.engine.driver import Committed, Expect, Group, Header, Wake, Write
from detent.stores.engine.record import Record
from detent.testing.sim.checked_store import CheckedDriver
from detent.testing.sim.mutants.registry import part

# The checks of a commit.  Others act too rarely between look and commit for some of them: see
# `tests/stores/engine/test_commit_checks.py`, which also plants these bugs.


@part()
class CommitIgnoresAskNumber(CheckedDriver):
    """Of two commits of one ask, both are granted."""

    def _holds(self, expect: Expect, header: Header) -> bool:
        if expect.ask and header.steady >= header.quarantined_until:
            expect = expect._replace(ask=None)
        return super()._holds(expect, header)


@part()
class CommitIgnoresRecordVersions(CheckedDriver):
    def _is_same(self, write: Write, steady: float) -> bool:
        old = self.state.records.get(write.record.fire.key)
        return old is not None and (not write.must_live or old.is_live(steady))


@part()
class CommitIgnoresJobVersions(CheckedDriver):
    """Two plans that saw the same watermark are both recorded."""

    def _is_current(self, app: str, group: Group, steady: float) -> bool:
        return super()._is_current(app, group._replace(jobs=()), steady)


@part()
class RefusedGroupIsWritten(CheckedDriver):
    """A commit writes its other groups, and the refused ones too."""

    def _is_current(self, app: str, group: Group, steady: float) -> bool:
        super()._is_current(app, group, steady)
        return True


# Fences, epochs and clocks.


@part()
class RefusedGroupReturnsItsFences(CheckedDriver):
    """The fences of refused groups are given again, also if later ones were granted."""

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        committed = super().commit(app, expect, groups)
        if committed and expect.fences and not all(committed.done):
            self.state.fences[app] -= 1
        return committed


@part()
class FencesAreGivenByAskNotByGrant(CheckedDriver):
    """All grants of a commit get the same fence."""

    def _put(self, write: Write, first_fence: int) -> None:
        if write.record.fence < 0:
            record = write.record.copy()
            record.fence = -1
            write = write._replace(record=record)
        super()._put(write, first_fence)


@part("failover")
class FenceIsNotRaisedInNewEpoch(CheckedDriver):
    """The fence is a plain counter, which a failover sets back."""

    def new_epoch(self) -> None:
        fences = dict(self.state.fences)
        super().new_epoch()
        self.state.fences = fences


@part("failover")
class NewEpochGrantsAtOnce(CheckedDriver):
    def new_epoch(self) -> None:
        super().new_epoch()
        self.quarantined_until = 0.0


@part()
class ClaimsExpireByWallClock(CheckedDriver):
    """A step of the wall clock ends claims, or extends them."""

    def _now(self) -> float:
        before, now = self.offset, super()._now()
        for record in self.state.records.values():
            record.expires -= self.offset - before
        return now


@part()
class MarginDoesNotCoverClockStep(CheckedDriver):
    """The store ignores clock steps that are larger than the margin of trust."""

    unnoticed_s = 2.5


@part()
class ClockStepKeepsFiresParked(CheckedDriver):
    """A step of the clock moves what is due, but not when parked fires are looked at."""

    def _now(self) -> float:
        parked = {one.fire.key: one.look_at for one in self.state.records.values() if one.is_parked}
        now = super()._now()
        for key, look_at in parked.items():
            record = self.state.records[key]
            record.look_at, record.is_parked = look_at, True
        return now


# Waking and deleting.


@part()
class NothingIsWoken(CheckedDriver):
    """Parked fires stay parked when their lane has room."""

    def _unpark(self, wake: Wake) -> bool:
        return False


@part()
class AnotherLaneIsWoken(CheckedDriver):
    def _unpark(self, wake: Wake) -> bool:
        return super()._unpark(wake._replace(lane=f"{wake.lane}/") if wake.lane else wake)


@part()
class WokenFireIsInSightOnlyLater(CheckedDriver):
    """The woken record is no longer parked, but no ask finds it."""

    def _unpark(self, wake: Wake) -> bool:
        look_at = {one.fire.key: one.look_at for one in self._members([wake.lane])}
        is_woken = super()._unpark(wake)
        for record in self._members([wake.lane]):
            record.look_at = look_at[record.fire.key]
            record.is_parked = record.look_at > record.run_at
        return is_woken


@part()
class LateHookIsDeletedWhileItRuns(CheckedDriver):
    """The hook of a late start is deleted although it was claimed."""

    def _do(self, app: str, group: Group, first_fence: int, fresh: set[str]) -> bool:
        for drop in group.drops:
            if drop.version is None and (old := self.state.records.get(drop.key)):
                self._remove(old)
        return super()._do(app, group, first_fence, fresh)


@part()
class PruneDeletesOpenFires(CheckedDriver):
    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        since = self._now() - older_than_s
        old: list[Record] = [one for one in self.open_records() if one.run_at < since]
        for record in old:
            self._remove(record)
        return len(old) + super().prune(app, older_than_s, keep)
