"""Simulates triggers beside nodes in virtual time, with the real trigger code.

The trigger is blocking code, so each trigger runs in a greenlet, which alternates with the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, cast

from detent.clock import instant
from detent.errors import StoreUnavailable
from detent.model import Claim, End, Job, Work
from detent.rules.trust import renew_s, trusted_by
from detent.runners.running import TooLate
from detent.testing.sim.fleet import APP, Sim
from detent.testing.sim.virtual_time import Handover, Process
from detent.testing.sim.warden import SimWarden
from detent.trigger.claims import Ports, TriggerClaims
from detent.trigger.locks import TriggerLocks
from detent.trigger.trigger import Trigger, TriggerOptions
from detent.trigger.work import WorkRunner
from detent.warden.signals import Signals

HOSTS = 2
FIRST_S = 60.0  # by then nodes have adopted the jobs
PAUSE_S = 40.0  # the longest time between two triggers of a host
BACK_S = 300  # the oldest instant that a person asks for
LOOK_S = 10.0  # the longest time between two renewals of a trigger


class RemoteStore:
    """The store over the simulated network, for blocking code."""

    def __init__(self, sim: Sim, instance: str, handover: Handover) -> None:
        self._store, self._call, self._handover = sim.store, sim.offload(instance), handover

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        method = getattr(self._store, verb)
        return lambda *args: self._handover.wait_for(self._call("trigger", method, *args))

    def wait(self, app: str, seconds: float) -> bool:
        self._handover.wait_for(asyncio.sleep(seconds))
        return False


class NoLocks:
    """No directory for locks: the death of a trigger is noticed when its claim expires."""

    lock_fd = -1

    def __init__(self, name: str) -> None:
        self.name = name

    def begin(self) -> None: ...

    def find_dead(self) -> tuple[str, ...]:
        return ()

    def remove_dead(self) -> None: ...

    def kill_holder(self, instance: str) -> None: ...


class NoSignals:
    """Triggers get no signals; they may be killed."""

    first = count = 0

    def __init__(self, handover: Handover) -> None:
        self._handover = handover

    def sleep(self, seconds: float) -> bool:
        self._handover.wait_for(asyncio.sleep(max(0.0, seconds)))
        return True

    def wait(self, seconds: float) -> None:
        self.sleep(seconds)


class SimWorkRunner:
    """Runs attempts under a warden and renews their claims."""

    def __init__(self, sim: Sim, job: Job, warden: SimWarden, store: RemoteStore, handover: Handover) -> None:
        self._sim, self._job, self._warden, self._store, self._handover = sim, job, warden, store, handover

    def run(self, work: Work, claim: Claim, sent: float) -> End:
        if claim.fire.job != self._job.name:
            self._sim.checker.fail(f"the command of {self._job.name} was run as {claim.fire.key}")
        running = self._warden.start(work, claim, trusted_by(sent, claim.ttl_s))
        while not running.gone.done():
            self._handover.wait_for(_first(running.gone, min(renew_s(claim.ttl_s), LOOK_S)))
            if not running.gone.done():
                sent = self._sim.loop.time()
                stop = self._store.renew([claim])[0]
                if stop is None or stop.kind != "lost":
                    running.extend(trusted_by(sent, claim.ttl_s))
                if stop:
                    running.stop(stop)
        end = running.gone.result()
        if not isinstance(end, End):
            raise TooLate
        return end


async def _first(future: asyncio.Future[Any], seconds: float) -> None:
    await asyncio.wait([future], timeout=seconds)


class TriggerSim(Sim):
    """Nodes die, hosts trigger the same jobs, and some triggers are killed.  The scenario is `crash`: a
    trigger does not repeat a failed call, so a faulty network could make it lose its fire."""

    claims_type: type[TriggerClaims] = TriggerClaims

    def __init__(self, seed: int, scenario: str = "crash", hours: float = 4.0, **choices: Any) -> None:
        super().__init__(seed, scenario, hours, **choices)
        self.running_triggers: set[asyncio.Task[None]] = set()

    async def inject_faults(self) -> None:
        await asyncio.gather(*(self.host(f"h{number}") for number in range(HOSTS)), super().inject_faults())

    async def host(self, name: str) -> None:
        await asyncio.sleep(FIRST_S)
        number = 0
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, PAUSE_S))
            number += 1
            task = asyncio.create_task(self.trigger_once(f"{name}.{number}"))
            self.running_triggers.add(task)
            task.add_done_callback(self.running_triggers.discard)

    async def trigger_once(self, instance: str) -> None:
        """One trigger, from its start to its end."""
        job = self.rng.choice(list(self.jobs.values()))
        process, warden = Process(), self.warden_type(self.loop, self.rng, self.checker)
        task = process.spawn(self.trigger(instance, job, process, warden))
        is_mortal = self.faults and self.rng.random() < 0.2
        _, unfinished = await asyncio.wait([task], timeout=self.rng.uniform(0, 60) if is_mortal else None)
        if unfinished:
            process.kill()
            self.checker.deaths[instance] = self.loop.time()
            self.rng.choice([warden.hang_up, warden.lose_power])()
            self.checker.emit("sim.trigger-death")
            await asyncio.wait([task])
        elif error := task.exception():
            self.checker.fail(f"the trigger {instance} of {job.name} ended with {error!r}")

    async def trigger(self, instance: str, job: Job, process: Process, warden: SimWarden) -> None:
        def emit(event: str, **fields: Any) -> None:
            if not process.dead:
                self.checker.emit(event, **fields)

        handover = Handover()
        store = RemoteStore(self, instance, handover)
        runner = SimWorkRunner(self, job, warden, store, handover)
        ports = Ports(
            store=cast(Any, store),
            locks=cast(TriggerLocks, NoLocks(instance)),
            signals=cast(Signals, NoSignals(handover)),
            runner=cast(WorkRunner, runner),
            emit=emit,
            boottime=self.loop.time,
        )
        options = TriggerOptions("global", due_at=self.asked_for(job), started_at=self.now())
        claims = self.claims_type(job, "global", ports)
        with suppress(StoreUnavailable):
            await handover.run(Trigger(job, options, cast(Any, store), claims).fire)

    def asked_for(self, job: Job) -> datetime | None:
        """Sometimes, an instant that the schedule does not have, as requested by a person."""
        if not self.faults or self.rng.random() < 0.7:
            return None
        due_at = instant(int(self.wall()) - self.rng.randint(1, BACK_S))
        return due_at if job.schedule.before(due_at + timedelta(seconds=1)) != due_at else None

    def check_in_force(self) -> None:
        """Check only the revisions: triggers plan only up to now, so a job may need a new plan."""
        in_force = {name: job.revision for name, (job, _) in self.store.shadow.in_force.items()}
        if in_force != {name: job.revision for name, job in self.jobs.items()}:
            self.checker.fail(f"the jobs of {APP} in force are not those of its nodes and triggers")
