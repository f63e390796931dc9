"""Answers an ask: looks for due fires, decides what becomes of them, and commits the decisions.

Reads are bounded, whatever waits: an ask reads a few pages of the due fires of each queue (`Stream`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import compress, islice

from detent.model import Ask, Grants
from detent.rules.decide import Decision, Room, View, decide
from detent.rules.lanes import LATE_S
from detent.rules.rates import rate_of
from detent.stores.base import NOTE_PREFIX, PAUSE, RATE
from detent.stores.engine import driver
from detent.stores.engine.driver import Cells, Group, Place, Wake, Write
from detent.stores.engine.finishing import WAKE
from detent.stores.engine.grouping import compose
from detent.stores.engine.record import Record, Tier, claim_of, open_fire
from detent.stores.engine.stream import Stream
from detent.stores.engine.unit import Unit
from detent.stores.engine.widening import widen

FEW, PAGE, PAGE_MAX = 8, 100, 1000  # due fires of a read; the first takes few from other nodes
EXPIRED_MAX = 400  # expired claims that one ask considers, for each queue
PASSED_BY_WAKE = 8 * WAKE  # fires that look for a place in a lane whose first fires this node cannot run
SOON_S = 0.02  # when to ask again if the ask stopped early, or another ask took what it wanted
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
        unit, ask, queues = self._unit, self._ask, self._queues
        streams = [(queue, tier) for queue in queues for tier in TIERS]
        due = [driver.Due(tier, queue, self._first_page(tier)) for queue, tier in streams]
        found = iter(
            unit.look(
                *(Cells(prefix=NOTE_PREFIX + PAUSE), Cells(prefix=NOTE_PREFIX + RATE)),
                *(driver.LastAsk(ask.node), driver.Asked(ask.node, ask.number)),
                *(driver.Next(queues, tuple(due)), driver.Expired(None, PAGE)),
                *(driver.Expired(queue, EXPIRED_MAX) for queue in queues),
                *(driver.Asked(node) for node in ask.dead),
                *due,
            )
        )
        _, _, last_ask, mine, self._upcoming, self._stale = islice(found, 6)
        expired = [one for page in islice(found, len(queues)) for one in page]
        of_dead = [one for page in islice(found, len(ask.dead)) for one in page]
        pages = dict(zip(streams, found, strict=True))
        self._view = view = View(unit.now, unit.steady)
        view.pauses = unit.notes(PAUSE)
        view.rates = {name: rate_of(text) for name, text in unit.notes(RATE).items()}
        if ask.number <= last_ask or unit.steady < unit.header.quarantined_until:
            return self._answer_again(mine)
        counts = zip(streams, self._upcoming.due, strict=False)
        self._held = {stream for stream, number in counts if number > len(pages[stream])}
        dead = self._declare_dead(of_dead)
        self._decide(expired + dead)
        for queue in queues:
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

    def _declare_dead(self, claimed: Sequence[Record]) -> list[Record]:
        """Expire the live claims of dead nodes."""
        dead = [one for one in claimed if one.expires > self._unit.steady]
        for record in dead:
            record.expires = self._unit.steady
        return dead

    # Deciding.

    def _serve(self, queue: str, pages: Mapping[Tier, Sequence[Record]]) -> None:
        """Decide about the due fires of a queue in order, as long as that is of use."""
        young = Place(self._view.now - LATE_S, 0.0, "")
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
        widen(self._unit, view, [one.fire for one in some], self._queues)
        decisions = decide(ask, view, [open_fire(one, view.now, view.steady) for one in some], self._room)
        self._decisions += [one for one in decisions if not self._is_parked_already(one)]

    def _is_parked_already(self, decision: Decision) -> bool:
        record = self._unit.records[decision.key]
        return decision.step in ("wait", "park") and record.is_parked and record.look_at <= decision.until

    # Committing.

    def _commit(self, dead: Sequence[Record]) -> tuple[Grants, Sequence[Record]]:
        unit, ask, view = self._unit, self._ask, self._view
        groups = compose(unit, view, ask, self._decisions)
        granted = [[write.record for write in group.writes if write.record.fence < 0] for group in groups]
        all_granted = [record for some in granted for record in some]
        decided = {one.key for one in self._decisions}
        ended = [one for one in dead if one.fire.key not in decided]
        groups += [Group([Write(one, one.version)]) for one in ended]
        if view.passed_by:
            groups.append(Group(wakes=[Wake(lane, most=PASSED_BY_WAKE) for lane in sorted(view.passed_by)]))
        expect = driver.Expect(
            ask=(ask.node, ask.number),
            generation=unit.header.generation,
            controls=unit.header.controls,
            fences=len(all_granted),
            longest_ttl_s=max((one.ttl_s for one in all_granted), default=0.0),
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

    # Answering.

    def _answer_again(self, mine: Sequence[Record]) -> tuple[Grants, Sequence[Record]]:
        """Renew and return the claims that this ask already got."""
        unit, live = self._unit, [one for one in mine if one.is_live(self._unit.steady)]
        widen(unit, self._view, [], self._queues)
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
        view = self._view
        waits = [] if self._upcoming.look_at is None else [self._upcoming.look_at - view.now]
        waits += [] if self._upcoming.expires is None else [self._upcoming.expires - view.steady]
        waits += [view.closed_s(queue) for queue in self._queues]
        for record in [self._unit.records[one.key] for one in self._decisions]:
            waits.append(record.ttl_s if record.state == "claimed" else record.look_at - view.now)
        return min((wait for wait in waits if 0 < wait < NEVER_S), default=float("inf"))
