"""Every store passes the shared suite, and the suite finds a store that breaks a rule."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.equipment.mysql_server import ClockedStore, shared_databases

from detent.model import (
    Ask,
    Cause,
    Claim,
    Fire,
    Grants,
    Outcome,
    Plan,
    Report,
    Verdict,
    Watermarks,
)
from detent.stores.base import BREAKER, CHARGE_PREFIX, LANE_PREFIX, NOTE_PREFIX, Store
from detent.stores.engine.driver import Expect, Group, Header, Planned, Read
from detent.stores.engine.record import Record
from detent.stores.memory.driver import MemoryDriver
from detent.stores.memory.store import MemoryStore
from detent.stores.sqlite.store import SqliteStore
from detent.testing.check_store import (
    CHECKS,
    Check,
    FakeClock,
    NotOffered,
    World,
    check_store,
    run_check,
    sentence,
)


def _memory(_: Path) -> World:
    clock = FakeClock()

    def forget(store: Store) -> Store:
        assert isinstance(store, MemoryStore)
        store.driver.new_epoch()
        return store

    return World(
        opener=lambda: MemoryStore(clock.wall, clock.monotonic),
        pass_time=clock.pass_time,
        stepper=clock.step_wall,
        reopener=lambda store: store,
        forgetter=forget,
    )


def _sqlite(directory: Path) -> World:
    clock, paths = FakeClock(), (directory / f"{number}.db" for number in itertools.count())
    opened: dict[int, Path] = {}

    def open_at(path: Path) -> Store:
        store = SqliteStore(path, clock.wall, clock.monotonic, lambda: "this boot")
        opened[id(store)] = path
        return store

    def reopen(store: Store) -> Store:
        store.close()
        return open_at(opened[id(store)])

    def restore(store: Store) -> Store:
        """Replace the file by a copy with the same content."""
        store.close()
        path = opened[id(store)]
        shutil.copy(path, path.with_suffix(".copy"))
        path.with_suffix(".copy").replace(path)
        return open_at(path)

    return World(
        opener=lambda: open_at(next(paths)),
        pass_time=clock.pass_time,
        stepper=clock.step_wall,
        reopener=reopen,
        forgetter=restore,
    )


def _mysql(_: Path) -> World:
    clock, databases = FakeClock(), shared_databases()

    def reopen(store: Store) -> Store:
        assert isinstance(store, ClockedStore)
        store.close()
        return databases.open_again(store)

    def restore(store: Store) -> Store:
        """Continue on another server that has a copy of the data."""
        assert isinstance(store, ClockedStore)
        databases.server.sql("UPDATE world SET `system` = 'another'", database=store.schema)
        return reopen(store)

    return World(
        opener=lambda: databases.open(clock),
        pass_time=clock.pass_time,
        stepper=clock.step_wall,
        reopener=reopen,
        forgetter=restore,
    )


WORLDS: dict[str, Callable[[Path], World]] = {"memory": _memory, "sqlite": _sqlite, "mysql": _mysql}
NEED_MORE = {  # than a store and a clock: they are skipped where a world does not offer it
    "a step of the wall clock expires no claim",
    "a small step of the wall clock expires no claim that its node trusts",
    "a retry and a delay move with a step of the wall clock",
    "a returned fire moves with a step of the wall clock",
    "a nominal instant does not move with a step of the wall clock",
    "a change keeps the hooks of fires that have ended",
    "a change after the clock was set back loses no instant",
    "a note does not end with a step of the wall clock",
    "a step of the clock allows no further attempt",
    "a small step of the clock allows no further attempt",
    "a store opened again remembers",
    "a new epoch raises the fence and waits before it grants",
    "a new epoch keeps the claims that it remembers",
    "a new epoch without known claims waits before it grants",
    "a new epoch waits for the longest possible claim",
}
# The other rules hold in memory if the suite lists them, as the next test shows.
RULES = [
    (check, world)
    for check in CHECKS
    for world in WORLDS
    if world != "memory" or sentence(check) in NEED_MORE
]


@pytest.mark.parametrize(("check", "world"), RULES, ids=lambda one: getattr(one, "__name__", one))
def test_every_store_keeps_the_rule(check: Check, world: str, tmp_path: Path) -> None:
    run_check(check, WORLDS[world](tmp_path))


def test_the_suite_lists_the_rules_that_held_and_skips_what_is_not_offered() -> None:
    clock = FakeClock()
    held = check_store(lambda: MemoryStore(clock.wall, clock.monotonic), clock.pass_time)
    assert "a key is recorded once" in held
    assert {sentence(check) for check in CHECKS} - set(held) == NEED_MORE


# Stores that break one rule each, and the rule that each one breaks.


class ForgetsKeys(MemoryStore):
    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        for fire in fires:
            self.driver.state.records.pop(fire.key, None)
        return super().put(fires, delay_s)


class HearsLateAsks(MemoryStore):
    def claim(self, ask: Ask) -> Grants:
        self.driver.state.asks.pop(ask.node, None)
        return super().claim(ask)


class GrantsAfresh(MemoryStore):
    def claim(self, ask: Ask) -> Grants:
        grants = super().claim(ask)
        return grants._replace(claims=tuple(c for c in grants.claims if c.fence > self._newest(grants)))

    def _newest(self, grants: Grants) -> int:
        seen, self._seen = getattr(self, "_seen", 0), max((c.fence for c in grants.claims), default=0)
        return int(seen)


class RenewsTheDead(MemoryStore):
    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        for record in self.driver.state.open.values():
            record.expires = float("inf")
        return super().renew(claims)


class TrustsAnyFence(MemoryStore):
    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        records = self.driver.state.records
        newest = [one.claim._replace(fence=records[one.claim.fire.key].fence) for one in reports]
        return super().finish([one._replace(claim=claim) for one, claim in zip(reports, newest, strict=True)])


class LosesDispositions(MemoryStore):
    def claim(self, ask: Ask) -> Grants:
        grants = super().claim(ask)
        for record in self.driver.state.open.values():
            record.disposition = None
        return grants


class FollowsTwice(MemoryStore):
    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        for report in reports:
            self.put(report.follow)
        return super().finish(reports)


class TakesNothingBack(MemoryStore):
    def __init__(self, *clocks: Callable[[], float]) -> None:
        super().__init__(*clocks)
        self.driver = FindsNothingPlanned(*clocks)


class FindsNothingPlanned(MemoryDriver):
    def _planned(self, record: Record, wall: float) -> bool:
        return False

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        header, replies = super().look(app, reads)
        for read, reply in zip(reads, replies, strict=True):
            if isinstance(read, Planned):
                reply[:] = [one for one in reply if self._planned(one, header.wall)]
        return header, replies


class FindsWhatIsNotDue(FindsNothingPlanned):
    def _planned(self, record: Record, wall: float) -> bool:
        return record.run_at > wall


class WithdrawsOnlyWhatIsNotDue(MemoryStore):
    def __init__(self, *clocks: Callable[[], float]) -> None:
        super().__init__(*clocks)
        self.driver = FindsWhatIsNotDue(*clocks)


class FillsGaps(MemoryStore):
    def advance(self, app: str, plans: Sequence[Plan]) -> Watermarks:
        jobs = self.driver.state.jobs
        for plan in plans:
            if (job := jobs.get(plan.job)) and job.at is not None:
                jobs[plan.job] = job._replace(at=max(job.at, plan.since.timestamp()))
        return super().advance(app, plans)


class KeepsItsFence(MemoryStore):
    def __init__(self, *clocks: Callable[[], float]) -> None:
        super().__init__(*clocks)
        self.driver.new_epoch = self._new_epoch  # type: ignore[method-assign]

    def _new_epoch(self) -> None:
        self.driver.epoch += 1


class Leaves(MemoryStore):
    """Leaves something out of each group that it commits."""

    def __init__(self, *clocks: Callable[[], float]) -> None:
        super().__init__(*clocks)
        commit = self.driver.commit
        self.driver.commit = lambda app, expect, groups: commit(  # type: ignore[method-assign]
            app, expect, [self._left(expect, group) for group in groups]
        )

    def _left(self, expect: Expect, group: Group) -> Group:
        raise NotImplementedError


class HasNoGrace(Leaves):
    def _left(self, expect: Expect, group: Group) -> Group:
        some = [one._replace(text="") if one.name.startswith(LANE_PREFIX) else one for one in group.cells]
        return group._replace(cells=some)


class KeepsLateHooks(Leaves):
    def _left(self, expect: Expect, group: Group) -> Group:
        return group._replace(drops=[one for one in group.drops if one.version is not None])


class ChargesNobody(Leaves):
    def _left(self, expect: Expect, group: Group) -> Group:
        return group._replace(cells=[one for one in group.cells if not one.name.startswith(CHARGE_PREFIX)])


class LetsAllProbe(Leaves):
    def _left(self, expect: Expect, group: Group) -> Group:
        start = NOTE_PREFIX + BREAKER if expect.ask else "no cell"
        return group._replace(cells=[one for one in group.cells if not one.name.startswith(start)])


class StopsNobody(MemoryStore):
    def claim(self, ask: Ask) -> Grants:
        grants = super().claim(ask)
        self._forget_stops()
        return grants

    def cancel(self, key: str, reason: str = "", cause: Cause = "stopped") -> bool:
        answer = super().cancel(key, reason, cause)
        self._forget_stops()
        return answer

    def _forget_stops(self) -> None:
        for record in self.driver.state.open.values():
            record.stop = None


class CountsWhatIsGivenBack(MemoryStore):
    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        return super().finish([one._replace(verdict=one.verdict._replace(counts=True)) for one in reports])


class MixesQueues(MemoryStore):
    def claim(self, ask: Ask) -> Grants:
        return super().claim(ask._replace(queues=tuple(sorted(ask.queues))))


class BuriesNobody(MemoryStore):
    def claim(self, ask: Ask) -> Grants:
        return super().claim(ask._replace(dead=()))


class ForgetsWhatWasCancelled(MemoryStore):
    def cancel(self, key: str, reason: str = "", cause: Cause = "stopped") -> bool:
        reached = {name: job.reached for name, job in self.driver.state.jobs.items()}
        done, jobs = super().cancel(key, reason, cause), self.driver.state.jobs
        jobs.update({name: job._replace(reached=reached.get(name)) for name, job in jobs.items()})
        return done


class ForgetsCauses(MemoryStore):
    def cancel(self, key: str, reason: str = "", cause: Cause = "stopped") -> bool:
        return super().cancel(key, reason)

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        some = [one.verdict._replace(outcome=one.verdict.outcome._replace(cause="work")) for one in reports]
        return super().finish(
            [one._replace(verdict=verdict) for one, verdict in zip(reports, some, strict=True)]
        )


class RenewsInNameOnly(MemoryStore):
    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        return [None for _ in claims]


class LivesByTheWallClock(MemoryStore):
    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        super().__init__(wall, wall)


BROKEN: list[tuple[type[MemoryStore], str]] = [
    (ForgetsKeys, "a_key_is_recorded_once"),
    (HearsLateAsks, "an_ask_that_arrives_late_is_granted_nothing"),
    (GrantsAfresh, "a_repeated_ask_gets_the_same_grants_renewed"),
    (RenewsTheDead, "an_expired_claim_renews_nothing"),
    (TrustsAnyFence, "a_finish_repeated_after_another_claim_is_refused"),
    (TrustsAnyFence, "an_expired_claim_is_granted_to_be_settled_as_lost"),
    (LosesDispositions, "a_disposition_outlives_the_node_that_should_settle_it"),
    (FollowsTwice, "following_fires_are_recorded_once_with_the_end"),
    (FollowsTwice, "a_refused_finish_records_no_following_fires"),
    (TakesNothingBack, "a_change_withdraws_fires_that_are_not_yet_due"),
    (WithdrawsOnlyWhatIsNotDue, "a_fire_that_came_due_before_a_change_runs_under_the_new_policy"),
    (TakesNothingBack, "a_change_withdraws_the_late_hooks_of_withdrawn_fires"),
    (ForgetsWhatWasCancelled, "a_change_does_not_plan_a_cancelled_instant_again"),
    (FillsGaps, "a_plan_must_continue_at_the_watermark"),
    (KeepsItsFence, "a_new_epoch_raises_the_fence_and_waits_before_it_grants"),
    (HasNoGrace, "a_fire_that_is_due_during_the_grace_waits_for_its_lane"),
    (StopsNobody, "a_replacement_waits_until_the_holder_has_ended"),
    (StopsNobody, "a_fire_that_was_told_to_stop_is_never_due_again"),
    (CountsWhatIsGivenBack, "a_returned_claim_counts_no_attempt"),
    (KeepsLateHooks, "a_late_hook_is_dropped_when_its_fire_starts"),
    (KeepsLateHooks, "a_late_hook_is_dropped_when_its_fire_is_over"),
    (MixesQueues, "queues_are_served_in_the_order_in_which_they_are_named"),
    (ChargesNobody, "a_rate_is_never_exceeded_in_any_window"),
    (ChargesNobody, "a_rate_by_key_counts_each_key_by_itself"),
    (LetsAllProbe, "one_fire_probes_a_breaker_that_has_cooled_down"),
    (BuriesNobody, "the_claims_of_a_dead_instance_end_at_once"),
    (ForgetsCauses, "the_cause_of_an_outcome_is_kept_whatever_its_reason_looks_like"),
    (ForgetsCauses, "the_cause_of_a_cancelled_fire_is_kept"),
    (RenewsInNameOnly, "a_renewed_claim_stays_alive"),
    (LivesByTheWallClock, "a_step_of_the_wall_clock_expires_no_claim"),
]


@pytest.mark.parametrize(("broken", "name"), BROKEN, ids=lambda one: getattr(one, "__name__", one))
def test_a_broken_store_is_reported_with_the_rule_that_it_breaks(
    broken: type[MemoryStore], name: str, tmp_path: Path
) -> None:
    clock, (check,) = FakeClock(), [check for check in CHECKS if check.__name__ == name]
    world = _memory(tmp_path)._replace(
        opener=lambda: broken(clock.wall, clock.monotonic),
        pass_time=clock.pass_time,
        stepper=clock.step_wall,
    )
    with pytest.raises(AssertionError, match=f"^{broken.__name__}: {name.replace('_', ' ')}: "):
        run_check(check, world)


def test_a_world_says_what_it_does_not_offer() -> None:
    world = World(MemoryStore, lambda seconds: None)
    for act in (
        lambda: world.step_wall(1),
        lambda: world.reopen(MemoryStore()),
        lambda: world.new_epoch(MemoryStore()),
    ):
        with pytest.raises(NotOffered):
            act()
