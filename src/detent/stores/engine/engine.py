"""All verbs of a store, on any driver.  Each is a unit of work: look, decide, commit; again if refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TypeVar

from detent.clock import instant
from detent.errors import StoreUnavailable
from detent.model import (
    Ask,
    Cause,
    Claim,
    Fire,
    Found,
    Grants,
    Note,
    Outcome,
    Plan,
    Query,
    Rate,
    Report,
    Row,
    Size,
    Tally,
    Usage,
    Verdict,
    Watermarks,
)
from detent.rules.rates import charged, charges_of, charges_text, usage
from detent.rules.tallies import in_order, intervals
from detent.stores.base import BREAKER, CHARGE_PREFIX, NOTE_PREFIX, PAUSE, RATE, app_of, check_newest
from detent.stores.engine.claiming import Claiming, Far
from detent.stores.engine.driver import Cells, Driver, Expect, Fires, Jobs, Wake
from detent.stores.engine.finishing import cancel, finish, read_claims, read_reports, renew
from detent.stores.engine.planning import advance, set_jobs, watermarks
from detent.stores.engine.record import Record
from detent.stores.engine.unit import Conflict, Unit

S = TypeVar("S")
T = TypeVar("T")
TRIES = 12  # of a unit of work that others interfere with
KNOWN_MAX = 20_000  # records of granted claims that a process remembers


class Engine:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._far: Far = {}
        # Records of claims that this process was granted, by key and fence.  Finishing such a claim needs no
        # look: the commit finds out whether the record is still the same.  A store that lost data may give a
        # version twice, so they are valid in one epoch only.
        self._known: dict[tuple[str, int], Record] = {}
        self._known_epoch = ""

    # Planning.

    def set_jobs(self, app: str, seen: int, revisions: Mapping[str, str]) -> Watermarks:
        return self._run(app, lambda unit: set_jobs(unit, seen, revisions))

    def look(self, app: str) -> Watermarks:
        unit = Unit(self.driver, app)
        unit.look(Jobs())
        return watermarks(unit, unit.jobs)

    def advance(self, app: str, plans: Sequence[Plan]) -> Watermarks:
        return self._run(app, lambda unit: advance(unit, plans))

    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        jobs, step = [fire.job for fire in fires], partial(_put, delay_s=delay_s)
        return _each_app(fires, jobs, lambda app, some: self._run(app, partial(step, fires=some)))

    # Running.

    def claim(self, ask: Ask) -> Grants:
        grants, records = self._run(ask.app, lambda unit: Claiming(unit, ask, self._far).answer())
        self._remember(records, grants.epoch)
        return grants

    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        return self._each_claim(claims, claims, read_claims, renew)

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        return self._each_claim(reports, [report.claim for report in reports], read_reports, finish)

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        with self.driver.hand(ask.app):
            return self.finish(reports), self.claim(ask)

    def cancel(self, key: str, reason: str = "", cause: Cause = "stopped") -> bool:
        def step(unit: Unit) -> bool:
            is_open = cancel(unit, key, Outcome("cancelled", reason, cause))
            unit.commit(Expect(wakes_nodes=True) if is_open else None)
            return is_open

        return self._run(app_of(key), step)

    # Queues.

    def charge(self, app: str, name: str, rate: Rate, count: int = 1) -> Usage:
        def step(unit: Unit) -> Usage:
            cell = CHARGE_PREFIX + name
            unit.look(Cells((cell,)))
            _, charges = charges_of(unit.cells[cell].text)
            found = usage(charges, rate, unit.steady)
            if count and not found.free_in_s:
                unit.set_cell(cell, charges_text(charged(charges, rate, unit.steady), rate))
                found = found._replace(used=found.used + 1)
            unit.commit()
            return found

        return self._run(app, step)

    def reset(self, app: str, name: str) -> None:
        def step(unit: Unit) -> None:
            unit.look(Cells((CHARGE_PREFIX + name,)))
            unit.set_cell(CHARGE_PREFIX + name, "")
            unit.commit(Expect(wakes_nodes=True))

        self._run(app, step)

    def forget(self, keys: Sequence[str]) -> int:
        def step(unit: Unit, keys: Sequence[str]) -> list[bool]:
            (records,) = unit.look(Fires(tuple(keys)))
            for record in records:
                if record.state == "over" and record.fire.origin != "schedule":
                    unit.drop(record)
            unit.commit()
            return [key in unit.drops for key in keys]

        unique = tuple(dict.fromkeys(keys))
        return sum(_each_app(unique, unique, lambda app, some: self._run(app, partial(step, keys=some))))

    def count(self, app: str, queues: Sequence[str] = ()) -> dict[str, Size]:
        return dict(self.driver.count(app, queues))

    # Records.

    def find(self, query: Query) -> Found:
        return self.driver.find(query)

    def newest(self, app: str, jobs: Sequence[str], each: int = 20) -> dict[str, list[Row]]:
        check_newest(jobs, each)
        ours = [job for job in dict.fromkeys(jobs) if app_of(job) == app]
        found = self.driver.newest(app, ours, each) if ours else {}
        return {job: found.get(job, []) for job in jobs}

    def tally(self, app: str, since: datetime, until: datetime, step_s: int = 60) -> list[Tally]:
        starts = intervals(since, until, step_s)
        return in_order(self.driver.tally(app, starts)) if starts else []

    def apps(self) -> list[str]:
        return self.driver.apps()

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        return self.driver.prune(app, older_than_s, keep)

    def note(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        is_control = name.startswith((PAUSE, RATE))

        def step(unit: Unit) -> None:
            unit.look()
            unit.set_note(name, text, ttl_s)
            if name.startswith(PAUSE):
                unit.wakes.append(Wake(job=name.removeprefix(PAUSE)))
            wakes = is_control or name.startswith(BREAKER)
            unit.commit(Expect(new_controls=is_control, wakes_nodes=wakes))

        self._run(app, step)

    def notes(self, app: str, prefix: str = "") -> list[Note]:
        unit, found = Unit(self.driver, app), []
        unit.look(Cells(prefix=NOTE_PREFIX + prefix))
        for name in unit.notes(""):
            text, written, expires, lasts_s = json.loads(unit.cells[NOTE_PREFIX + name].text)
            ends_at = None if expires is None else instant(unit.now + min(expires - unit.steady, lasts_s))
            found.append(Note(name, text, instant(written), ends_at))
        return sorted(found)

    def wait(self, app: str, seconds: float) -> bool:
        return self.driver.wait(app, seconds)

    def close(self) -> None:
        self.driver.close()

    # Units of work.

    def _run(self, app: str, step: Callable[[Unit], T], known: Mapping[str, Record] | None = None) -> T:
        for _ in range(TRIES):
            with suppress(Conflict), self.driver.hand(app):
                return step(Unit(self.driver, app, known or {}))
            known = None
        raise StoreUnavailable(
            "too many other processes write to the store at the same time; it will be tried again"
        )

    def _each_claim(
        self,
        items: Sequence[S],
        claims: Sequence[Claim],
        read: Callable[[Unit, Sequence[S]], object],
        act: Callable[[Unit, S], T],
    ) -> list[T]:
        """Run a unit of work for the items of each app, which are claims or have claims."""

        def act_for(app: str, pairs: Sequence[tuple[S, Claim]]) -> list[T]:
            epoch, some = self._known_epoch, [item for item, _ in pairs]
            recalled = [self._known.pop((claim.fire.key, claim.fence), None) for _, claim in pairs]
            known = {record.fire.key: record for record in recalled if record}

            def step(unit: Unit) -> list[T]:
                read(unit, some)
                found = [act(unit, item) for item in some]
                if unit.remembered and unit.epoch != epoch:
                    raise Conflict
                if unit.writes:
                    self._commit_claims(unit)
                return found

            return self._run(app, step, known)

        pairs = list(zip(items, claims, strict=True))
        return _each_app(pairs, [claim.fire.job for claim in claims], act_for)

    def _commit_claims(self, unit: Unit) -> None:
        """Wakes the nodes if fires follow, or if a fire may wait for a lane that it takes over."""
        records = [write.record for write in unit.writes.values()]
        follow_s = [one.fire.policy.claim_s for one in records if one.version == 0]
        ended = [one.fire for one in records if one.state != "claimed"]
        wakes = any(fire.lane and fire.policy.concurrency == "Replace" for fire in ended)
        expect = Expect(wakes_nodes=wakes or bool(follow_s), longest_ttl_s=max(follow_s, default=0.0))
        committed = unit.commit(expect)
        for record in records:
            record.version = committed.version if committed else record.version
        self._remember((one for one in records if one.state == "claimed"), unit.epoch)

    def _remember(self, records: Iterable[Record], epoch: str) -> None:
        if epoch != self._known_epoch:
            self._known.clear()
            self._known_epoch = epoch
        for record in records:
            self._known[record.fire.key, record.fence] = record
        while len(self._known) > KNOWN_MAX:
            self._known.pop(next(iter(self._known)), None)


def _put(unit: Unit, fires: Sequence[Fire], delay_s: float) -> list[bool]:
    """Record fires.  Only for keys that may be used again it matters which fire has them now."""
    reusable = tuple(fire.key for fire in fires if fire.policy.unique_s)
    unit.look(Fires(reusable))
    fresh = [unit.replace(fire, unit.now + delay_s) for fire in fires]
    longest_ttl_s = max((fire.policy.claim_s for fire in fires), default=0.0)
    committed = unit.commit(Expect(longest_ttl_s=longest_ttl_s, wakes_nodes=any(fresh)))
    assert committed
    replaced = {key for key, write in unit.writes.items() if write.version}
    return [
        is_fresh and (fire.key in committed.fresh or fire.key in replaced)
        for fire, is_fresh in zip(fires, fresh, strict=True)
    ]


def _each_app(
    items: Sequence[S], names: Sequence[str], act: Callable[[str, Sequence[S]], list[T]]
) -> list[T]:
    """Act on the items of each app, which their names begin with.  Returns the answers in their order."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(app_of(name), []).append(place)
    answers: dict[int, T] = {}
    for app, some in places.items():
        answers.update(zip(some, act(app, [items[place] for place in some]), strict=True))
    return [answers[place] for place in range(len(items))]
