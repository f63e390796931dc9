"""Simulates whole fleets in virtual time, with the real node code.  One seed always gives one history.

Nodes are killed, stopped, cut off, drained and restarted with other jobs; machines vanish; all of
them may be down for an hour.  The store is slow, away, loses requests and replies, receives requests
long after their sender gave up, has its clock set, and fails over without its last writes.  Some requests
are carried out in steps: others act between look and commit.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from detent.clock import instant
from detent.errors import StoreUnavailable
from detent.model import Command, Fire, Job, Policy, Retries
from detent.node.node import Node
from detent.node.ports import Ports, Tuning
from detent.stores.base import PAUSE
from detent.testing.sim.checked_store import CheckedDriver, CheckedStore, Saved
from detent.testing.sim.checker import Checker
from detent.testing.sim.schedule import Every
from detent.testing.sim.slow_calls import SlowCalls
from detent.testing.sim.virtual_time import Process, VirtualLoop
from detent.testing.sim.warden import SimWarden

START = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)
APP = "app"
BEAT_S = 10.0
CALM_S, SETTLED_S, BACKLOG_MAX = 2400.0, 1200.0, 3  # the last: more times of calm, while a fire is open
STEPS_S = (-7200, -300, -70, -5, 5, 70, 300, 7200)  # by which the store's clock is set
SMALL_STEPS_S = (-0.4, 0.4, 2.4)  # those below `STEP_S` are not noticed
CALM_CLOCK_S = 30.0  # between two small steps: at most one in the lifetime of a claim
ASK_S = 0.5
BRIEF_S = 8.0  # a claim so short that small steps matter
DELAYS_S = (1, 20, 90, 900, 1200)  # after its sender gave up; the last: after the next deploy
SLOW_CHANCE = 0.25  # of a request that is carried out in steps
BATCH_EVERY_S, BATCH_MAX = 60.0, 60  # of messages; the mean time between two, and the largest one
LANES = ("",) * 8 + (f"{APP}.skip", f"{APP}.replace", f"{APP}.replace-two", f"{APP}.wide")  # of messages
WORK = Command(("true",))
TWICE = Retries(max_attempts=2, min_s=5)
THRICE = Retries(max_attempts=3)
HOOKED = ("on_failure",)
POLICIES = {
    "skip": (60, Policy(timeout_s=90, start_deadline_s=50, retries=THRICE, hooks=HOOKED)),
    "wide": (20, Policy(max_running=2, timeout_s=20, catch_up="all", retries=THRICE)),
    "wait": (240, Policy("Queue", timeout_s=90, catch_up="skip", retries=TWICE, grace_s=5)),
    "replace": (45, Policy("Replace", timeout_s=100, retries=THRICE)),
    "replace-two": (30, Policy("Replace", 2, timeout_s=100, retries=TWICE, start_deadline_s=70)),
    "rerun": (90, Policy(timeout_s=90, on_lost="rerun", retries=TWICE, hooks=HOOKED)),
    "allow": (77, Policy("Allow", timeout_s=90, catch_up="all", retries=THRICE)),
    "brief": (20, Policy("Queue", timeout_s=60, grace_s=3)),  # the next fire waits for the lane
    "short": (300, Policy(start_deadline_s=5, catch_up="skip", hooks=(*HOOKED, "on_late"), late_after_s=20)),
}


def variant_of(policy: Policy, variant: int) -> Policy:
    """Another policy for the same job: variant 1 changes limits, variant 2 the concurrency too."""
    if variant == 0:
        return policy
    changed = policy._replace(timeout_s=policy.timeout_s + 15, claim_s=policy.claim_s + 10)
    if variant == 2:
        return changed._replace(concurrency="Forbid" if policy.concurrency == "Allow" else "Allow")
    return changed


class Fleet(NamedTuple):
    """The number of machines and jobs; the jobs use the policies in rotation."""

    machines: tuple[int, int]
    jobs: int
    room: int  # of each node


SMALL, LARGE = Fleet((2, 4), jobs=len(POLICIES), room=8), Fleet((3, 7), jobs=50, room=32)
SCENARIOS = ("rough", "failover", "gentle", "deploy", "calm", "crash")
INEXCUSABLE = {"calm": {"lost", "missed", "cancelled"}, "gentle": {"lost"}}


def periods(jobs: int) -> Iterator[tuple[str, int]]:
    """Name and period of each job: each policy once, then again with other periods."""
    for number in range(jobs):
        name, (period_s, _) = list(POLICIES.items())[number % len(POLICIES)]
        round_ = number // len(POLICIES)
        yield (f"{name}~{round_}", period_s + 11 * round_) if round_ else (name, period_s)


class Sim:
    """One run of a scenario: `calm` (no faults), `gentle` (only network faults: no fire may be lost),
    `crash` (nodes die and drain, nothing else), `deploy` (new jobs all the time), `rough` (all but
    failovers), `failover` (everything)."""

    def __init__(
        self,
        seed: int,
        scenario: str = "rough",
        hours: float = 4.0,
        *,
        fleet: Fleet = SMALL,
        node_type: type[Node] = Node,
        driver_type: type[CheckedDriver] = CheckedDriver,
        warden_type: type[SimWarden] = SimWarden,
    ) -> None:
        self.rng, self.loop, self.checker = Random(seed), VirtualLoop(), Checker()
        self.scenario, self.hours, self.faults, self.fleet = scenario, hours, scenario != "calm", fleet
        self.node_type, self.warden_type = node_type, warden_type
        self.jobs: dict[str, Job] = {}
        self.revisions: dict[str, dict[str, Job]] = {}
        self.checker.revisions = self.revisions
        self.stepped_s = self.ahead_s = 0.0  # by how much the store's clock was set; and the maximum
        self.nudged_at = -CALM_CLOCK_S  # when it last made a small step
        clocks = self.wall, self.loop.time
        self.driver = driver_type(clocks, self.ring, self.revisions, self.checker)
        self.slow_calls = SlowCalls(self.driver, self.rng, self.loop)
        self.slow_calls.is_reliable = scenario == "crash"
        self.store = CheckedStore(self.slow_calls.driver, self.driver)
        self.nodes: dict[str, Node] = {}
        self.cut_off: set[str] = set()
        self.deaf: set[str] = set()  # instances whose requests arrive, but not the replies
        self.deployed: set[str] = set()  # machines that must restart their node
        self.store_away, self.blackout, self.refuses_reports = False, False, False
        self.unheard: set[asyncio.Task[None]] = set()  # requests whose senders gave up
        self.held: list[Callable[[], Any]] | None = None  # requests that wait for the end of a failover
        self.checker.only_deaths, self.checker.is_punctual = scenario == "crash", scenario == "calm"
        self.periods_s = dict(periods(fleet.jobs))
        for name, period_s in self.periods_s.items():
            self.define(name, period_s)

    def wall(self) -> float:
        return START.timestamp() + self.loop.time() + self.stepped_s

    # The manifest.

    def define(self, name: str, period_s: int, variant: int = 0) -> None:
        """Define a job.  Its command is its revision, so the checker sees which revision's work runs."""
        policy = variant_of(POLICIES[name.partition("~")[0]][1], variant)
        if self.scenario == "rough" and name.startswith("brief"):
            policy = policy._replace(claim_s=BRIEF_S)
        revision = f"every {period_s} policy {variant}"
        job = Job(f"{APP}.{name}", Every(period_s), Command((revision,)), policy, revision=revision)
        job = job._replace(hooks=dict.fromkeys(policy.hooks, WORK))
        self.jobs = self.jobs | {job.name: job}
        self.revisions.setdefault(job.name, {})[job.revision] = job

    def edit(self) -> None:
        """Remove a job, or define it: unchanged, with another schedule, or with another policy."""
        name = self.rng.choice(list(self.periods_s))
        if self.rng.random() < 0.3 and len(self.jobs) > 3:
            self.jobs = {k: job for k, job in self.jobs.items() if k != f"{APP}.{name}"}
        else:
            period_s = self.periods_s[name] + self.rng.choice([0, 0, 7, 15])
            self.define(name, period_s, variant=self.rng.choice([0, 0, 1, 2]))

    # The network between a node and the store.

    def ring(self) -> None:
        for node in self.nodes.values():
            if self.rng.random() < 0.95 or not self.faults:
                self.loop.call_later(0.005, node.wake)

    def offload(self, instance: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        errs = self.scenario != "crash"

        async def call(line: str, method: Callable[..., Any], *args: Any) -> Any:
            self.store.calls[method.__name__] += 1
            await asyncio.sleep(self.rng.expovariate(1 / 0.005))
            self.maybe_fail(instance)
            if self.refuses_reports and method.__name__ == "finish":
                raise StoreUnavailable("reports are refused")
            if errs and self.faults and self.is_late(method, *args):
                raise StoreUnavailable("the request is still under way")
            if self.faults and self.rng.random() < SLOW_CHANCE:
                answer = await self.slow_calls.run(method, *args)
            else:
                answer = self.deliver(method, *args)
            if errs and self.faults and self.rng.random() < 0.02:
                await asyncio.sleep(self.rng.uniform(0, 8 if self.scenario == "gentle" else 35))
            await asyncio.sleep(self.rng.expovariate(1 / 0.005))
            self.maybe_fail(instance, self.deaf)
            return answer

        return call

    def is_late(self, method: Callable[..., Any], *args: Any) -> bool:
        """Whether the request arrives only after its sender timed out."""
        request = functools.partial(self.deliver, method, *args)
        if self.held is not None and self.rng.random() < 0.3:
            self.held.append(request)
            return True
        if self.rng.random() >= (0.2 if method.__name__ == "set_jobs" else 0.03):
            return False
        if self.rng.random() < 0.3:
            self.loop.call_later(self.rng.choice(DELAYS_S), request)
        else:  # it is carried out while its sender repeats it
            task = self.loop.create_task(self.slow_calls.run_unheard(method, *args))
            self.unheard.add(task)
            task.add_done_callback(self.unheard.discard)
        return True

    def deliver(self, method: Callable[..., Any], *args: Any) -> Any:
        """Carry out the request.  The store must accept jobs only over the current generation, and a plan
        only without a gap."""
        if method.__name__ not in ("set_jobs", "advance"):
            return method(*args)
        before, by_job = self.driver.state.generations[APP], self.driver.watermarks(APP)
        answer, after = method(*args), self.driver.watermarks(APP)
        if method.__name__ == "set_jobs" and args[1] != before != self.driver.state.generations[APP]:
            self.checker.fail(f"jobs over generation {args[1]} were accepted in generation {before}")
        for plan in args[1] if method.__name__ == "advance" else ():
            watermark = by_job.get(plan.job)
            if watermark and plan.since > watermark.at and after[plan.job] != watermark:
                self.checker.fail(f"a plan from {plan.since} was accepted, with {plan.job} at {watermark.at}")
        return answer

    def maybe_fail(self, instance: str, deaf: Collection[str] = ()) -> None:
        away = instance in self.cut_off or instance in deaf or self.store_away
        if away or (self.faults and self.scenario != "crash" and self.rng.random() < 0.02):
            raise StoreUnavailable("injected")

    # Nodes.

    async def run_machine(self, machine: str) -> None:
        """One machine: its node starts with the newest jobs, runs, dies, and starts again."""
        number = 0
        while True:
            while self.blackout:
                await asyncio.sleep(5)
            number += 1
            instance, process = f"{machine}.{number}", Process()
            warden = self.warden_type(self.loop, self.rng, self.checker)
            self.nodes[machine] = node = self.start_node(instance, process, warden)
            process.spawn(node.run())
            process.spawn(self.send_heartbeat(node))
            await self.trouble(instance, process)
            await self.end_instance(instance, node, process, warden)
            await asyncio.sleep(self.rng.choice([0.0, 1.0, self.rng.uniform(0, 200)]))

    async def send_heartbeat(self, node: Node) -> None:
        """Send heartbeats, like the service of a real node."""
        while True:
            with suppress(StoreUnavailable):
                await node.send_heartbeat()
            await asyncio.sleep(BEAT_S)

    def start_node(self, instance: str, process: Process, warden: SimWarden) -> Node:
        def emit(event: str, **fields: Any) -> None:
            if not process.dead:
                self.checker.emit(event, **fields)

        ports = Ports(
            self.store, warden, self.offload(instance), process.spawn, self.loop.time, self.rng, emit
        )
        ports = ports._replace(heartbeat=lambda: {"queues": ["default"], "tasks": []})
        return self.node_type(instance, APP, self.jobs, ports, Tuning(max_running=self.fleet.room))

    async def end_instance(self, instance: str, node: Node, process: Process, warden: SimWarden) -> None:
        if not self.blackout and self.rng.random() < 0.3:
            await asyncio.wait([process.spawn(node.drain(25.0))], timeout=120)
            self.checker.emit("sim.drain")
        process.kill()
        self.checker.deaths[instance] = self.loop.time()
        self.rng.choice([warden.hang_up, warden.hang_up, warden.lose_power])()
        self.checker.emit("sim.death")
        if self.rng.random() < 0.5:
            self.loop.call_later(1.5, self.prove_death, instance, warden)

    def prove_death(self, instance: str, warden: SimWarden) -> None:
        """The host's other nodes see that the lock of the dead life is free."""
        if warden.is_gone:
            for node in self.nodes.values():
                node.declare_dead(instance)

    async def trouble(self, instance: str, process: Process) -> None:
        """Inject faults into a node until it dies."""
        while self.scenario == "deploy" and instance.partition(".")[0] not in self.deployed:
            await asyncio.sleep(1)
        self.deployed.discard(instance.partition(".")[0])
        while self.faults and self.scenario in ("rough", "failover", "crash") and not self.blackout:
            await self.unless_blackout(self.rng.uniform(30, 600))
            others = ["stop", "cut", "flap", "die", "die"]
            kind = "die" if self.scenario == "crash" else self.rng.choice(others)
            self.checker.emit(f"sim.{kind}")
            if kind == "die":
                return
            await self.pause_or_cut(kind, instance, process)
        while not self.blackout and self.scenario != "deploy":
            await asyncio.sleep(60)

    async def pause_or_cut(self, kind: str, instance: str, process: Process) -> None:
        if kind == "stop":
            process.stop()
            await self.unless_blackout(self.rng.choice([3, 20, 40, 120]))
            process.go_on()
        for _ in range({"stop": 0, "cut": 1, "flap": 8}[kind]):
            cut = self.rng.choice([self.cut_off, self.deaf])
            cut.add(instance)
            self.loop.call_later(self.rng.uniform(0, BRIEF_S), self.nudge)
            await self.unless_blackout(self.rng.choice([3, 10, 20] if kind == "flap" else [3, 20, 40, 120]))
            cut.discard(instance)
            await self.unless_blackout(self.rng.uniform(0.05, 2))

    async def unless_blackout(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while not self.blackout and (left := end - self.loop.time()) > 0.001:
            await asyncio.sleep(min(left, 15))

    # Faults of the store and of all nodes.

    async def inject_faults(self) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / 90))
            if not self.faults or self.scenario == "crash":
                continue
            if self.scenario == "deploy":
                await self.deploy()
            mild = [self.push] * 4 + [self.prune] * 4 + [self.cancel] * 2 + [self.refuse_reports, self.pause]
            wild = [self.change, self.store_outage, self.lights_out, self.fail_over, self.step]
            await self.rng.choice(mild + wild if self.scenario in ("rough", "failover") else mild)()

    async def send_messages(self) -> None:
        """Clients send batches; many are larger than the room of all nodes."""
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / BATCH_EVERY_S))
            if self.faults:
                self.send(self.rng.randint(1, BATCH_MAX))

    async def push(self) -> None:
        self.send(1)

    def send(self, number: int) -> None:
        """A client sends messages, each of them twice.  Some of them are in the lane of a job."""
        fires = [self.new_message() for _ in range(number)]
        if f"{APP}.skip" in self.jobs:
            self.store.put(fires + fires)

    def new_message(self) -> Fire:
        key = f"{APP}.skip+{self.rng.getrandbits(60):x}"
        lane = self.rng.choice(LANES)
        policy = POLICIES[lane.partition(".")[2] or "allow"][1]._replace(hooks=())
        return Fire(key, f"{APP}.skip", self.now(), lane=lane, origin="manual", policy=policy)

    async def prune(self) -> None:
        """Keep fires for longer than an outage and a clock step: a report may be repeated that late."""
        self.store.prune(APP, 600 if not self.checker.steps else 600 + max(map(abs, STEPS_S)), 10**9)

    async def cancel(self) -> None:
        if keys := sorted(one.fire.key for one in self.driver.open_records()):
            self.store.cancel(self.rng.choice(keys), "by hand")

    async def pause(self) -> None:
        """Pause a job for a while; a failover may forget that."""
        name = PAUSE + self.rng.choice(list(self.jobs))
        self.store.note(APP, name, "by hand")
        self.loop.call_later(self.rng.choice([10, 60, 200]), self.store.note, APP, name, "")
        self.checker.emit("sim.pause")

    async def change(self) -> None:
        self.edit()
        self.checker.emit("sim.edit")

    async def step(self) -> None:
        """Set the store's clock; each node notices soon."""
        self.stepped_s += self.rng.choice(STEPS_S)
        self.ahead_s = max(self.ahead_s, self.stepped_s)
        self.checker.steps += 1
        self.checker.emit("sim.step")
        for node in self.nodes.values():
            self.loop.call_later(1.0, node.wake)

    def nudge(self) -> None:
        """Set the store's clock by a few seconds while a node cannot renew its claims; the other nodes ask
        again and again for those claims."""
        if self.faults and self.loop.time() >= self.nudged_at + CALM_CLOCK_S:
            self.nudged_at = self.loop.time()
            self.stepped_s += self.rng.choice(SMALL_STEPS_S)
            self.ahead_s = max(self.ahead_s, self.stepped_s)
            self.checker.steps += 1
            self.checker.emit("sim.nudge")
            for asked in range(int(BRIEF_S / ASK_S)):
                for node in self.nodes.values():
                    self.loop.call_later(asked * ASK_S, node.wake)

    async def store_outage(self) -> None:
        self.store_away = True
        await asyncio.sleep(self.rng.choice([1, 10, 60, 300]))
        self.store_away = False
        self.checker.emit("sim.store-outage")

    async def refuse_reports(self) -> None:
        """Refuse reports, and nothing else, for longer than a claim lives."""
        self.refuses_reports = True
        await asyncio.sleep(self.rng.choice([10, 60, 120]))
        self.refuses_reports = False
        self.checker.emit("sim.reports-refused")

    async def lights_out(self) -> None:
        if self.rng.random() < 0.5:
            self.blackout = True
            await asyncio.sleep(self.rng.choice([30, 300, 1800]))
            self.blackout = False
            self.checker.emit("sim.blackout")

    async def fail_over(self) -> None:
        if self.scenario == "failover":
            saved = self.driver.save()
            self.held = []
            await asyncio.sleep(self.rng.choice([1, 10, 60, 200]))
            self.promote(saved)

    def promote(self, saved: Saved) -> None:
        """Finish the failover; the requests that waited for the store arrive first."""
        self.driver.fail_over(saved)
        held, self.held = self.held or [], None
        for request in held:
            request()
        self.checker.emit("sim.failover")

    async def deploy(self) -> None:
        """Restart some nodes with new jobs; the store may lose that in a failover.  Then wait, and check."""
        saved = self.driver.save()
        self.edit()
        self.deployed = {machine for machine in self.nodes if self.rng.random() < 0.7}
        await asyncio.sleep(self.rng.uniform(1, 15))
        if self.rng.random() < 0.5:
            self.promote(saved)
        self.checker.emit("sim.deploy")
        await asyncio.sleep(900)
        self.check_in_force()

    # The run.

    def now(self) -> datetime:
        return instant(self.wall())

    async def play(self) -> None:
        self.loop.set_exception_handler(
            lambda _, context: self.checker.fail(repr(context.get("exception") or context["message"]))
        )
        instances = [
            asyncio.create_task(self.run_machine(f"m{i}"))
            for i in range(self.rng.randint(*self.fleet.machines))
        ]
        instances += [asyncio.create_task(self.inject_faults()), asyncio.create_task(self.send_messages())]
        while self.loop.time() < self.hours * 3600 and not self.checker.broken:
            self.check_trust()
            await asyncio.sleep(15)
        self.faults, self.slow_calls.is_reliable = False, True
        await asyncio.sleep(0 if self.checker.broken else CALM_S)
        expected = self.store.shadow.expected(self.now() - timedelta(seconds=SETTLED_S))
        for _ in range(BACKLOG_MAX):  # after a long standstill, a lane may have much to catch up on
            if not self.checker.broken and expected - self.awaited() - self.store.shadow.finals.keys():
                await asyncio.sleep(CALM_S)
        for task in filter(asyncio.Task.done, instances):
            task.result()
        end = START + timedelta(seconds=self.loop.time() + self.ahead_s, hours=1)
        self.checker.check(self.store.shadow, expected - self.awaited(), end)
        self.check_in_force()
        self.checker.check_none(INEXCUSABLE.get(self.scenario, set()), self.store.shadow)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def awaited(self) -> set[str]:
        return self.driver.awaited({job for node in self.nodes.values() for job in node.jobs})

    def check_trust(self) -> None:
        """Check that no node trusts a claim for longer than the store keeps it, except after a failover."""
        for holding in [one for node in self.nodes.values() for one in node._held]:
            record = self.driver.state.records.get(holding.claim.fire.key)
            is_its = record is not None and (record.state, record.fence) == ("claimed", holding.claim.fence)
            if record and is_its and holding.trusted_by > record.expires and not self.checker.failovers:
                self.checker.fail(f"{record.fire.key} is trusted for longer than it is claimed")

    def check_in_force(self) -> None:
        """Check that the jobs in force are those that living nodes hold, and that each is planned."""
        held = [node.jobs for node in self.nodes.values()]
        in_force = {name: job.revision for name, (job, _) in self.store.shadow.in_force.items()}
        if in_force.keys() != {name for jobs in held for name in jobs}:
            self.checker.fail("the jobs in force are not those that living nodes hold")
        for name, revision in in_force.items():
            if not any(name in jobs and jobs[name].revision == revision for jobs in held):
                self.checker.fail(f"{name} is in force as {revision!r}, which no living node holds")
        for name, watermark in self.driver.watermarks(APP).items():
            if watermark.at < self.now():
                self.checker.fail(f"{name} is not planned since {watermark.at:%H:%M:%S}")

    def run(self) -> Checker:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self.play())
        finally:
            self.loop.close()
            asyncio.set_event_loop(None)
        return self.checker
