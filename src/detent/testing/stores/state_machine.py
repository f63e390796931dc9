"""Compares a store with the in-memory store by random sequences of calls.

Both stores use one fake clock.  The answers are compared after every call, and the whole contents after every
step.  Fences are compared relative to the first one; epochs are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from detent.model import (
    Ask,
    Claim,
    Command,
    Grants,
    Job,
    Outcome,
    Plan,
    Policy,
    Query,
    Rate,
    Report,
    Verdict,
    Watermark,
)
from detent.rules.planning import hook_fire, plan
from detent.rules.rates import rate_text
from detent.stores.base import PAUSE, RATE, Store
from detent.stores.memory.store import MemoryStore
from detent.testing.stores.comparison import by_fence, claim_of, notes_of, row_of, watermarks_of
from detent.testing.stores.fixtures import (
    AGAIN,
    DONE,
    GIVEN_BACK,
    OVER,
    START,
    TTL_S,
    Every,
    FakeClock,
    fire,
    later,
)

Opener = Callable[[FakeClock], Store]
APP = "a"
POLICIES = {
    "a.skip": Policy("Forbid", claim_s=TTL_S, hooks=("on_failure", "on_late"), late_after_s=15.0),
    "a.wait": Policy("Queue", claim_s=TTL_S, grace_s=8.0, catch_up="all"),
    "a.newest": Policy("Replace", max_running=2, claim_s=TTL_S, start_deadline_s=40.0),
    "a.free": Policy("Allow", claim_s=20.0, catch_up="skip"),
}
MESSAGES = {
    "a.mail": Policy("Allow", claim_s=TTL_S, breaker="smtp", breaker_threshold=2, breaker_cooldown_s=20.0),
    "a.once": Policy("Queue", claim_s=TTL_S, unique_s=50.0, rate_key="once"),
    "a.apart": Policy("Forbid", claim_s=TTL_S, rate_key="apart"),
}
NAMES = sorted(POLICIES)
JOBS = {
    name: Job(name, Every(START, 10 + 7 * number), Command(("true",)), POLICIES[name])
    for number, name in enumerate(NAMES)
}
QUEUES = ("default", "db", "default^low")
RATES = (Rate(2, 20.0), Rate(4, 30.0, smooth=True), Rate(1, 15.0, by_key=True), None)
LIVES = ("n1", "n2", "n3")
REFUSED = Verdict(Outcome("failed", "refused", "backend"))
VERDICTS = (DONE, OVER, AGAIN, GIVEN_BACK, REFUSED)
FIND_MAX = 10_000
LATE_ASK = Ask(APP, "an observer", 0, 0, QUEUES)  # granted nothing; the answer says what is next
STEPS = 40  # calls in a sequence
LOOK_S = 0.125  # a store may search for dispositions only once in this time

numbers = st.integers(0, 999)
revisions = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["r1", "r2"]), min_size=1)


class Pair(NamedTuple):
    """One claim, as granted by the in-memory store and by the store under test."""

    ours: Claim
    theirs: Claim


class StoreMachine(RuleBasedStateMachine):
    """Drives the in-memory store (ours) and the store under test (theirs) through the same calls."""

    opener: ClassVar[Opener]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.ours = MemoryStore(self.clock.wall, self.clock.monotonic)
        self.theirs = type(self).opener(self.clock)
        self.first_fences: tuple[int, int] | None = None
        self.pairs: list[Pair] = []
        self.plans: list[Plan] = []
        self.asks: dict[str, list[Ask]] = {life: [] for life in LIVES}

    def teardown(self) -> None:
        self.theirs.close()

    # What nodes do most.  Without these rules, few random sequences would claim anything.

    @initialize()
    def begin(self) -> None:
        self.set_jobs(dict.fromkeys(NAMES, "r1"), 0)

    @rule(life=st.sampled_from(LIVES), seconds=st.sampled_from([0, 1, 5, 11, 16]), limit=st.integers(1, 5))
    def take_a_turn(self, life: str, seconds: float, limit: int) -> None:
        self.clock.pass_time(seconds)
        self.advance(30.0, set(NAMES))
        self.claim(life, limit, 0.0, (), ())

    @rule(life=st.sampled_from(LIVES), name=st.sampled_from(NAMES), first=st.integers(0, 9))
    def push(self, life: str, name: str, first: int) -> None:
        self.put([first, first + 1], name, 0.0, QUEUES[0])
        self.claim(life, 5, 0.0, (), ())

    @rule(seconds=st.sampled_from([1, 10, 25]), life=st.sampled_from(LIVES))
    def renew_all(self, seconds: float, life: str) -> None:
        self.clock.pass_time(seconds)
        mine = [pair for pair in self.pairs[-6:] if pair.ours.node == life]
        self.same_renew(mine)

    @rule(life=st.sampled_from(LIVES), verdict=st.sampled_from(VERDICTS), seconds=st.sampled_from([0, 1, 5]))
    def finish_all(self, life: str, verdict: Verdict, seconds: float) -> None:
        self.clock.pass_time(seconds)
        mine = [pair for pair in self.pairs[-9:] if pair.ours.node == life]
        self.same_finish(mine, verdict)

    # Planning.

    @rule(wanted=revisions, behind=st.sampled_from([0, 0, 0, 1]))
    def set_jobs(self, wanted: dict[str, str], behind: int) -> None:
        seen = self.ours.look(APP).generation - behind
        self.same("set_jobs", *[watermarks_of(store.set_jobs(APP, seen, wanted)) for store in self.both])

    @rule(ahead_s=st.sampled_from([0.0, 30.0, 120.0]), names=st.sets(st.sampled_from(NAMES), min_size=1))
    def advance(self, ahead_s: float, names: set[str]) -> None:
        watermarks = self.ours.look(APP)
        by_job = {name: watermarks.by_job[name] for name in sorted(names) if name in watermarks.by_job}
        self.plans += [
            planned(name, watermark, watermarks.now, ahead_s) for name, watermark in by_job.items()
        ]
        self.same_advance(self.plans[len(self.plans) - len(by_job) :])

    @precondition(lambda self: self.plans)
    @rule(number=numbers)
    def advance_late(self, number: int) -> None:
        self.same_advance([self.plans[number % len(self.plans)]])

    @rule(
        numbers=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        name=st.sampled_from(NAMES),
        delay_s=st.sampled_from([0.0, 0.0, 5.0, 40.0]),
        queue=st.sampled_from(QUEUES),
    )
    def put(self, numbers: list[int], name: str, delay_s: float, queue: str) -> None:
        concurrency = POLICIES[name].concurrency
        fires = [
            fire(f"{name}@{n}", concurrency, policy=POLICIES[name], due_at=later(n), queue=queue)
            for n in numbers
        ]
        self.same("put", *[store.put(fires, delay_s) for store in self.both])

    @rule(
        numbers=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        name=st.sampled_from(sorted(MESSAGES)),
        delay_s=st.sampled_from([0.0, 0.0, 5.0]),
        queue=st.sampled_from(QUEUES),
    )
    def put_messages(self, numbers: list[int], name: str, delay_s: float, queue: str) -> None:
        now, policy = self.ours.look(APP).now, MESSAGES[name]
        whole: dict[str, Any] = {"policy": policy, "due_at": now, "queue": queue, "origin": "push"}
        fires = [fire(f"{name}@{n}", policy.concurrency, **whole) for n in numbers]
        self.same("put", *[store.put(fires, delay_s) for store in self.both])

    # Running.

    @rule(
        life=st.sampled_from(LIVES),
        limit=st.integers(0, 5),
        ttl_s=st.sampled_from([0.0, 12.0]),
        dead=st.sampled_from([(), (), (), LIVES[:1], LIVES[1:]]),
        without=st.sampled_from([(), (), tuple(NAMES[:2])]),
    )
    def claim(
        self, life: str, limit: int, ttl_s: float, dead: tuple[str, ...], without: tuple[str, ...]
    ) -> None:
        self.same_claim(self.new_ask(life, limit, ttl_s, dead, without))

    @precondition(lambda self: self.pairs)
    @rule(
        chosen=st.lists(numbers, min_size=1, max_size=3),
        verdict=st.sampled_from(VERDICTS),
        life=st.sampled_from(LIVES),
        limit=st.integers(0, 5),
    )
    def finish_and_claim(self, chosen: list[int], verdict: Verdict, life: str, limit: int) -> None:
        ask, pairs = self.new_ask(life, limit), [self.pair(number) for number in chosen]
        mine, grants = self.ours.finish_and_claim([report_of(pair.ours, verdict) for pair in pairs], ask)
        theirs, others = self.theirs.finish_and_claim(
            [report_of(pair.theirs, verdict) for pair in pairs], ask
        )
        self.same("finish, and claim", mine, theirs)
        self.same_grants(grants, others)

    @precondition(lambda self: any(self.asks.values()))
    @rule(number=numbers, back=st.sampled_from([1, 1, 1, 2, 3]))
    def claim_again(self, number: int, back: int) -> None:
        asked = [asks for asks in self.asks.values() if asks]
        asks = asked[number % len(asked)]
        self.same_claim(asks[-min(back, len(asks))])

    @precondition(lambda self: self.pairs)
    @rule(chosen=st.lists(numbers, min_size=1, max_size=4))
    def renew(self, chosen: list[int]) -> None:
        self.same_renew([self.pair(number) for number in chosen])

    @precondition(lambda self: self.pairs)
    @rule(chosen=st.lists(numbers, min_size=1, max_size=3), verdict=st.sampled_from(VERDICTS))
    def finish(self, chosen: list[int], verdict: Verdict) -> None:
        self.same_finish([self.pair(number) for number in chosen], verdict)

    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        rows = self.ours.find(Query(limit=FIND_MAX))
        key = rows[number % len(rows)].fire.key if rows else "a.nobody@1"
        self.same("cancel", *[store.cancel(key, "by hand") for store in self.both])

    # Queues.

    @rule(queue=st.sampled_from(["default", "db"]), rate=st.sampled_from(RATES))
    def limit(self, queue: str, rate: Rate | None) -> None:
        for store in self.both:
            store.note(APP, RATE + queue, rate_text(rate) if rate else "")

    @rule(name=st.sampled_from(["default", "db/once", "sms"]), count=st.integers(0, 1))
    def charge(self, name: str, count: int) -> None:
        answers = [store.charge(APP, name, Rate(2, 25.0), count) for store in self.both]
        self.same("charge", *[(used, round(free_in_s, 3)) for used, free_in_s in answers])

    @rule(name=st.sampled_from(["default", "sms"]))
    def reset(self, name: str) -> None:
        for store in self.both:
            store.reset(APP, name)

    @rule(number=numbers)
    def forget(self, number: int) -> None:
        rows = self.ours.find(Query(limit=FIND_MAX))
        gone = [row.fire.key for row in rows[number % 7 :: 7]]
        self.same("forget", *[store.forget(gone) for store in self.both])

    # Book-keeping and time.

    @rule(name=st.sampled_from(NAMES), text=st.sampled_from(["", "a reason"]), ttl_s=st.sampled_from([0, 30]))
    def pause(self, name: str, text: str, ttl_s: float) -> None:
        for store in self.both:
            store.note(APP, PAUSE + name, text, ttl_s)

    @rule(older_than_s=st.sampled_from([0.0, 20.0, 300.0]), keep=st.sampled_from([0, 1, 1000]))
    def prune(self, older_than_s: float, keep: int) -> None:
        self.same("prune", *[store.prune(APP, older_than_s, keep) for store in self.both])

    @rule(seconds=st.sampled_from([0.25, 1, 5, 10, 16, 31, 70, 200]))
    def pass_time(self, seconds: float) -> None:
        self.clock.pass_time(seconds)

    @rule(seconds=st.sampled_from([-600, -20, 20, 600]))
    def step_wall(self, seconds: float) -> None:
        self.clock.step_wall(seconds)
        self.touch()
        self.claim(LIVES[0], 0, 0.0, (), ())  # a step may change when to look again at what waits

    @invariant()
    def they_remember_the_same(self) -> None:
        self.touch()
        ours, theirs = (store.find(Query(limit=FIND_MAX)) for store in self.both)
        bases = self.first_fences or (0, 0)
        self.same("find", [row_of(r, bases[0]) for r in ours], [row_of(r, bases[1]) for r in theirs])
        turns = [[r.fire.key for r in s.find(Query(APP, upcoming=True, limit=FIND_MAX))] for s in self.both]
        self.same("find what is next", *turns)
        self.same("count", *[store.count(APP) for store in self.both])
        self.same("notes", *[notes_of(store.notes(APP)) for store in self.both])
        ours_s, theirs_s = (round(store.claim(LATE_ASK).next_in_s, 3) for store in self.both)
        assert 0 < theirs_s <= ours_s, (
            f"next_in_s: the in-memory store says {ours_s}, {type(self.theirs).__name__} says {theirs_s}"
        )

    # Comparison.

    @property
    def both(self) -> tuple[Store, Store]:
        return self.ours, self.theirs

    def touch(self) -> None:
        """Call both stores, so that each notices a step of the clock."""
        self.same("look", *[watermarks_of(store.look(APP)) for store in self.both])

    def pair(self, number: int) -> Pair:
        """Mostly one of the newest claims."""
        return self.pairs[-1 - number % min(len(self.pairs), 1 + number % 12)]

    def same(self, call: str, ours: object, theirs: object) -> None:
        name = type(self.theirs).__name__
        assert ours == theirs, f"{call}: the in-memory store says {ours}, {name} says {theirs}"

    def same_advance(self, plans: Sequence[Plan]) -> None:
        self.same("advance", *[watermarks_of(store.advance(APP, plans)) for store in self.both])

    def same_renew(self, pairs: Sequence[Pair]) -> None:
        ours = self.ours.renew([pair.ours for pair in pairs])
        self.same("renew", ours, self.theirs.renew([pair.theirs for pair in pairs]))

    def same_finish(self, pairs: Sequence[Pair], verdict: Verdict) -> None:
        ours = self.ours.finish([report_of(pair.ours, verdict) for pair in pairs])
        theirs = self.theirs.finish([report_of(pair.theirs, verdict) for pair in pairs])
        self.same("finish", ours, theirs)

    def new_ask(self, life: str, *wanted: Any) -> Ask:
        limit, *rest = wanted
        self.clock.pass_time(LOOK_S)
        ask = Ask(APP, life, len(self.asks[life]) + 1, limit, QUEUES[: 1 + limit % 3], *rest)
        self.asks[life].append(ask)
        return ask

    def same_claim(self, ask: Ask) -> None:
        self.same_grants(*[store.claim(ask) for store in self.both])

    def same_grants(self, mine: Grants, others: Grants) -> None:
        ours, theirs = by_fence(mine), by_fence(others)
        if ours and theirs and self.first_fences is None:
            self.first_fences = ours[0].fence, theirs[0].fence
        bases = self.first_fences or (0, 0)
        self.same("claim", [claim_of(c, bases[0]) for c in ours], [claim_of(c, bases[1]) for c in theirs])
        known = {pair.ours.fence for pair in self.pairs}
        pairs = (Pair(*both) for both in zip(ours, theirs, strict=True))
        self.pairs += [pair for pair in pairs if pair.ours.fence not in known]


def check_against_memory(opener: Opener, *, examples: int, fixed: bool, shrink: bool = True) -> None:
    """Compare the stores of `opener` with the in-memory store by this many sequences.  `fixed`: always the
    same ones; `shrink`: look for the shortest sequence that shows a difference."""
    machine = type("Machine", (StoreMachine,), {"opener": staticmethod(opener)})
    bounds = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        derandomize=fixed,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=bounds)


def planned(name: str, watermark: Watermark, now: datetime, ahead_s: float) -> Plan:
    return plan(JOBS[name]._replace(revision=watermark.revision), watermark, now, ahead_s)


def report_of(claim: Claim, verdict: Verdict) -> Report:
    """Settle a disposition as it says, perhaps with a retry after a loss; else report the verdict."""
    if claim.disposition is not None:
        again = verdict.again_in_s if claim.disposition.kind == "lost" else None
        verdict = Verdict(claim.disposition, again_in_s=again)
    hook = hook_fire(claim.fire, "on_failure", claim.fire.due_at, {"outcome": verdict.outcome.kind})
    follow = () if verdict.outcome.kind == "succeeded" else (hook,)
    return Report(claim, verdict, status=3, took_s=1.5, tail=b"tail", follow=follow)
