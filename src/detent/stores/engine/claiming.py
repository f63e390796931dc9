"""Answers an ask: looks for due fires, decides what becomes of them, and commits the decisions.

Reads are bounded, whatever waits: an ask reads a few pages of the due fires of each queue (`Stream`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import compress

from detent.model import Ask, Grants
from detent.rules import lanes as lane_rules
from detent.rules.breakers import circuit_of, circuit_text
from detent.rules.decide import Decision, JobFacts, Lane, Room, View, decide, late_hooks_of
from detent.rules.rates import charges_of, charges_text, rate_of, without_priority
from detent.stores.base import BREAKER, NOTE_PREFIX, PAUSE, RATE
from detent.stores.encoding import graces_text, instant_of, live_graces, note_text
from detent.stores.engine import driver
from detent.stores.engine.driver import NO_JOB, Cells, Group, Place, SetCell, Wake, Write
from detent.stores.engine.finishing import LANE_PREFIX, WAKE
from detent.stores.engine.record import Record, Tier, claim_of, open_fire
from detent.stores.engine.stream import Stream
from detent.stores.engine.unit import Unit

FEW, PAGE, PAGE_MAX = 8, 100, 1000  # due fires of a read; the first takes few from other nodes
EXPIRED_MAX = 400  # expired claims that one ask considers, for each queue
RIVALS_MAX = 100  # fires of a lane that one decision about replacing others considers
PASSED_BY_WAKE = 8 * WAKE  # fires that look for a place in a lane whose first fires this node cannot run
SOON_S = 0.02  # when to ask again if the ask stopped early, or another ask took what it wanted
CHARGE_PREFIX = "charge/"  # of the cell with the charges of a rate
NEVER_S = 1e12  # a longer wait is none
TIERS: tuple[Tier, ...] = ("judged", "plain", "hook")

# App, node, queue and tier -> how far an ask without success has read.
Far = dict[tuple[str, str, str, Tier], Place]


class Claiming:
    def __init__(self, unit: Unit, ask: Ask, far: Far) -> None:
        self._unit, self._ask, self._far = unit, ask, far
        self._queues = tuple(dict.fromkeys(ask.queues))
        self._room = Room(ask)
        self._decisions: list[Decision] = []
        self._is_cut_short = False
        self._stale: Sequence[Record] = ()
        self._held: Container[tuple[str, Tier]] = ()  # streams with due fires that other asks are reading

    def answer(self) -> tuple[Grants, Sequence[Record]]:
        """Returns the grants, and the records of the claims as they are now."""
        unit, ask = self._unit, self._ask
        reads: list[driver.Read] = [Cells(prefix=NOTE_PREFIX + PAUSE), Cells(prefix=NOTE_PREFIX + RATE)]
        reads += [driver.LastAsk(ask.node), driver.Asked(ask.node, ask.number)]
        streams = [(queue, tier) for queue in self._queues for tier in TIERS]
        due = [driver.Due(tier, queue, self._first_page(tier)) for queue, tier in streams]
        reads += [driver.Next(self._queues, tuple(due)), driver.Expired(None, PAGE)]
        reads += [driver.Expired(queue, EXPIRED_MAX) for queue in self._queues]
        reads += [driver.Asked(node) for node in ask.dead]
        reads += due
        _, _, last_ask, mine, self._upcoming, self._stale, *found = unit.look(*reads)
        self._view = view = View(unit.now, unit.steady)
        view.pauses = unit.notes(PAUSE)
        view.rates = {name: rate_of(text) for name, text in unit.notes(RATE).items()}
        if ask.number <= last_ask or unit.steady < unit.header.quarantined_until:
            return self._answer_again(mine)
        count = len(self._queues)
        dead = self._declare_dead(found[count : count + len(ask.dead)])
        self._decide([one for page in found[:count] for one in page] + dead)
        pages = dict(zip(streams, found[count + len(ask.dead) :], strict=True))
        counts = zip(streams, self._upcoming.due, strict=False)
        self._held = {stream for stream, number in counts if number > len(pages[stream])}
        for queue in self._queues:
            self._serve(queue, {tier: pages[queue, tier] for tier in TIERS})
        return self._commit(dead)

    def _first_page(self, tier: Tier) -> int:
        """As many as the ask has room for: what it reads, other nodes cannot claim in the meantime.

        Judged fires are read beyond that: those that must not run need no room."""
        if tier != "plain" or self._ask.without:
            return self._page(tier)
        return min(max(FEW, self._ask.limit), PAGE_MAX)

    def _page(self, tier: Tier) -> int:
        return self._ask.hooks + FEW if tier == "hook" else min(max(PAGE, self._ask.limit), PAGE_MAX)

    def _declare_dead(self, pages: Sequence[Sequence[Record]]) -> list[Record]:
        """Expire the live claims of dead nodes."""
        dead = [one for page in pages for one in page if one.expires > self._unit.steady]
        for record in dead:
            record.expires = self._unit.steady
        return dead

    # Deciding.

    def _serve(self, queue: str, pages: Mapping[Tier, Sequence[Record]]) -> None:
        """Decide about the due fires of a queue in order, as long as that is of use."""
        young = Place(self._view.now - lane_rules.LATE_S, 0.0, "")
        streams = [
            Stream(
                (driver.Due(tier, queue, self._page(tier)), self._first_page(tier)),
                pages[tier],
                [young, self._far.get(self._name(queue, tier))],
            )
            for tier in TIERS
        ]
        freed, is_useful = self._freed(queue), True
        while True:
            limits = [one.head_end for one in streams if one.limits_order and self._wants(one, is_useful)]
            until = min((place for place in limits if place), default=None)
            batch, freed = [record for stream in streams for record in stream.take(until)] + freed, []
            before = len(self._decisions)
            self._decide(batch)
            is_useful = len(self._decisions) - before > PAGE / 2
            wanted = [one for one in streams if not one.buffer and self._wants(one, is_useful)]
            reads = [(one, due) for one in wanted if (due := one.next_read())]
            if not reads and not any(stream.buffer for stream in streams):
                break
            pages_read = self._unit.look(*(due for _, due in reads)) if reads else []
            for (stream, _), page in zip(reads, pages_read, strict=True):
                stream.extend(page)
        self._is_cut_short |= not (self._room.delays and self._room.settled)
        for stream in streams:
            goes_on = not stream.is_complete and self._wants(stream, False)
            is_held = (queue, stream.tier) in self._held and self._wants(stream, False)
            self._is_cut_short |= goes_on or is_held
            self._remember(stream, young if goes_on else None)

    def _wants(self, stream: Stream, is_useful: bool) -> bool:
        """Whether more fires of this stream can be decided."""
        if stream.tier == "hook":
            return self._room.hooks > 0
        runs = self._room.runs > 0 and not self._view.closed_s(stream.queue)
        return runs or (stream.tier == "judged" and is_useful and self._room.settled > 0)

    def _remember(self, stream: Stream, young: Place | None) -> None:
        """Keep where the next ask goes on, unless it starts from the oldest fire again."""
        name, place = self._name(stream.queue, stream.tier), stream.stopped_at
        if young and place and place < young:
            self._far[name] = place
        else:
            self._far.pop(name, None)

    def _name(self, queue: str, tier: Tier) -> tuple[str, str, str, Tier]:
        return self._ask.app, self._ask.node, queue, tier

    def _freed(self, queue: str) -> list[Record]:
        """The first parked fires of lanes whose holder was found dead: they may run at once.  The holder may
        be on a queue that this ask does not serve."""
        lanes = {self._unit.records[one.key].fire.lane for one in self._decisions if one.step == "settle"}
        lanes |= {one.fire.lane for one in self._stale if one.fire.queue not in self._queues}
        if not (lanes := lanes - {""}):
            return []
        (members,) = self._unit.look(driver.LaneMembers(tuple(sorted(lanes)), parked=WAKE))
        some = [one for page in members.values() for one in page if one.fire.queue == queue]
        return [one for one in some if one.is_parked and one.run_at <= self._view.now]

    def _decide(self, due: Iterable[Record]) -> None:
        view, ask = self._view, self._ask
        ours = {one.fire.key: one for one in due if one.fire.queue in self._queues}
        some = [one for one in ours.values() if one.state == "claimed" or one.run_at <= view.now]  # V4
        some.sort(key=lambda one: (one.run_at, one.fire.key))
        self._widen(some)
        decisions = decide(ask, view, [open_fire(one, view.now, view.steady) for one in some], self._room)
        self._decisions += [one for one in decisions if not self._is_parked_already(one)]

    def _is_parked_already(self, decision: Decision) -> bool:
        record = self._unit.records[decision.key]
        return decision.step in ("wait", "park") and record.is_parked and record.look_at <= decision.until

    # Reading what decisions depend on.

    def _widen(self, due: Sequence[Record]) -> None:
        """Read what the decisions about these fires depend on, and is not in the view yet."""
        unit, view, fires = self._unit, self._view, [one.fire for one in due]
        lanes = dict.fromkeys(fire.lane for fire in fires if fire.lane and fire.lane not in view.lanes)
        jobs = dict.fromkeys(fire.job for fire in fires if fire.job not in view.jobs)
        names = [view.rate_of(fire)[1] for fire in fires] if view.rates else []
        names += [without_priority(queue) for queue in self._queues if without_priority(queue) in view.rates]
        charges = dict.fromkeys(name for name in names if name and name not in view.charges)
        breakers = dict.fromkeys(fire.policy.breaker for fire in fires)
        breakers = {name: None for name in breakers if name and name not in view.circuits}
        if not (lanes or jobs or charges or breakers):
            return
        cells = [LANE_PREFIX + lane for lane in lanes] + [CHARGE_PREFIX + name for name in charges]
        cells += [NOTE_PREFIX + BREAKER + name for name in breakers]
        replacing = {fire.lane for fire in fires if fire.policy.concurrency == "Replace"}
        waiting = driver.LaneMembers((), waiting=lane_rules.WAITING_MAX)
        _, states, members, rivals = unit.look(
            Cells(tuple(cells)),
            driver.Jobs(tuple(jobs), newest=True),
            waiting._replace(lanes=tuple(lane for lane in lanes if lane not in replacing)),
            waiting._replace(lanes=tuple(lane for lane in lanes if lane in replacing), rivals=RIVALS_MAX),
        )
        for name in jobs:
            state = states.get(name, NO_JOB)
            view.jobs[name] = JobFacts(instant_of(state.at), instant_of(state.newest_due))
        found = members | rivals
        for lane in lanes:
            ours = {one.fire.key: one for one in found.get(lane, ())}.values()
            graces = live_graces(unit.cells[LANE_PREFIX + lane].text, view.steady)
            open_fires = [open_fire(one, view.now, view.steady) for one in ours]
            view.lanes[lane] = Lane(open_fires, [end for end, _ in graces])
        for name in charges:
            _, view.charges[name] = charges_of(unit.cells[CHARGE_PREFIX + name].text)
        view.circuits |= {name: circuit_of(unit.note(BREAKER + name)) for name in breakers}
        self._look_for_probes(breakers)

    def _look_for_probes(self, breakers: Iterable[str]) -> None:
        unit, view = self._unit, self._view
        probes = {name: view.circuits[name].probe for name in breakers if view.circuits[name].probe}
        if probes:
            unit.look(driver.Fires(tuple(probes.values())))
        for name, key in probes.items():
            probe = unit.records.get(key)
            view.probing[name] = bool(probe and probe.is_live(view.steady) and probe.disposition is None)

    # Committing.

    def _commit(self, dead: Sequence[Record]) -> tuple[Grants, Sequence[Record]]:
        unit, ask, view = self._unit, self._ask, self._view
        decided = {one.key for one in self._decisions}
        ended = [one for one in dead if one.fire.key not in decided]
        grants = [one for one in self._decisions if one.step in ("run", "settle")]
        fences = {one.key: -1 - place for place, one in enumerate(grants)}
        groups = [self._group(some, fences) for some in components(self._decisions)]
        granted = [
            [write.record for write in group.writes if write.record.fire.key in fences] for group in groups
        ]
        groups += [Group([Write(one, one.version)]) for one in ended]
        passed_by = [Wake(lane=lane, most=PASSED_BY_WAKE) for lane in sorted(view.passed_by)]
        groups += [Group(wakes=passed_by)] if passed_by else []
        expect = driver.Expect(
            ask=(ask.node, ask.number),
            generation=unit.header.generation,
            controls=unit.header.controls,
            fences=len(grants),
            longest_ttl_s=max((one.ttl_s for some in granted for one in some), default=0.0),
            wakes_nodes=bool(ended) or any(one.step == "stop" for one in self._decisions),
            is_whole=False,
        )
        committed = unit.commit_groups(expect, groups)
        self._is_cut_short |= not all(committed.done)
        done = [record for some in compress(granted, committed.done) for record in some]
        for record in done:
            record.version = committed.version
            record.take_fences(committed.first_fence)
        return self._grants(done, self._next_in_s())

    def _group(self, decisions: Sequence[Decision], fences: Mapping[str, int]) -> Group:
        unit, ask, view = self._unit, self._ask, self._view
        touches = sorted({name for one in decisions for name in one.touches})
        drops: list[driver.Drop] = []
        progress: list[driver.Progress] = []
        lanes: set[str] = set()
        records = {one.key: unit.records[one.key] for one in decisions}
        for one in decisions:
            record = records[one.key]
            if one.step in ("settle", "delay") and self._has_room(record):
                lanes.add(record.fire.lane)  # it leaves a place to the next fires of its lane
            if one.step in ("run", "settle") and record.fire.origin == "schedule":
                reached = record.fire.due_at.timestamp()
                progress.append(driver.Progress(record.fire.job, reached=reached))
            if one.step == "run":
                drops += [driver.Drop(key, None) for key in late_hooks_of(record.fire)]
            apply_decision(one, record, ask, view, fences.get(one.key, 0))
        return Group(
            writes=[Write(one, one.version) for one in records.values()],
            drops=drops,
            cells=[self._cell(name) for name in touches],
            progress=progress,
            wakes=[Wake(lane=lane, most=WAKE) for lane in sorted(lanes)],
        )

    def _has_room(self, record: Record) -> bool:
        lane = self._view.lanes.get(record.fire.lane)
        return lane is not None and lane.room(record.fire.policy.max_running) > 0

    def _cell(self, touched: str) -> SetCell:
        unit, view = self._unit, self._view
        kind, _, name = touched.partition("/")
        cell = NOTE_PREFIX + touched if kind == "breaker" else touched
        match kind:
            case "lane":
                text = graces_text(live_graces(unit.cells[cell].text, view.steady))
            case "charge":
                text = charges_text(view.charges[name], view.rates[without_priority(name.partition("/")[0])])
            case _:
                text = note_text(circuit_text(view.circuits[name]), view.now, view.steady, 0)
        return SetCell(cell, text, unit.cells[cell].version)

    # Answering.

    def _answer_again(self, mine: Sequence[Record]) -> tuple[Grants, Sequence[Record]]:
        """Renew and return the claims that this ask already got."""
        unit, live = self._unit, [one for one in mine if one.is_live(self._unit.steady)]
        self._widen([])
        unit.look(driver.Jobs(tuple({one.fire.job for one in live})))
        for record in live:
            record.expires = unit.steady + record.ttl_s
            unit.write(record, must_live=True)
        if committed := unit.commit():
            for record in live:
                record.version = committed.version
        left_s = unit.header.quarantined_until - unit.steady
        return self._grants(live, left_s if left_s > 0 else self._next_in_s())

    def _grants(self, records: Sequence[Record], next_in_s: float) -> tuple[Grants, Sequence[Record]]:
        unit, claims = self._unit, []
        for one in sorted(records, key=lambda one: one.fence):
            claims.append(claim_of(one, unit.now + one.ttl_s, unit.jobs[one.fire.job].succeeded))
        return Grants(tuple(claims), self._view.now_at, next_in_s, unit.epoch), records

    def _next_in_s(self) -> float:
        if self._is_cut_short or self._view.passed_by:
            return SOON_S
        view, decided = self._view, {one.key: one for one in self._decisions}
        waits = [] if self._upcoming.look_at is None else [self._upcoming.look_at - view.now]
        waits += [] if self._upcoming.expires is None else [self._upcoming.expires - view.steady]
        waits += [view.closed_s(queue) for queue in self._queues]
        for key in decided:
            record = self._unit.records[key]
            waits.append(record.ttl_s if record.state == "claimed" else record.look_at - view.now)
        return min((wait for wait in waits if 0 < wait < NEVER_S), default=float("inf"))


def apply_decision(decision: Decision, record: Record, ask: Ask, view: View, fence: int) -> None:
    """Change the record as decided."""
    match decision.step:
        case "run" | "settle":
            record.state, record.node, record.ask, record.fence = "claimed", ask.node, ask.number, fence
            record.ttl_s = ask.ttl_s or record.fire.policy.claim_s
            record.expires, record.look_at = view.steady + record.ttl_s, record.run_at
            record.is_parked = False
            if decision.step == "run":
                record.attempt += 1
                record.ran_node, record.ran_fence, record.ran_at = ask.node, fence, view.now
            else:
                record.disposition = decision.outcome
        case "stop":
            record.stop = decision.outcome
        case "wait" | "park":
            record.waits |= decision.step == "wait"
            record.is_parked = decision.until > 0
            record.look_at = max(decision.until, record.run_at)
        case "delay":
            record.run_at = record.look_at = decision.until
            record.is_parked = False


def components(decisions: Sequence[Decision]) -> list[list[Decision]]:
    """Groups of decisions that touch the same things, in order."""
    group_of: dict[str, int] = {}
    groups: dict[int, list[Decision]] = {}
    for place, one in enumerate(decisions):
        joined = sorted({group_of[name] for name in (*one.touches, one.key) if name in group_of})
        into = joined[0] if joined else place
        group = groups.setdefault(into, [])
        for other in joined[1:]:
            group += groups.pop(other)
            group_of.update((name, into) for name, at in group_of.items() if at == other)
        group.append(one)
        group_of.update((name, into) for name in (*one.touches, one.key))
    return list(groups.values())
