"""`detent run`: a node as a process, from its first look at the store to its last goodbye.

- It ends by SIGTERM, SIGINT or SIGQUIT: it takes no more work, gives back what it has not started,
  lets the rest end for `drain_seconds`, ends what is left, and has it all settled.  A second signal
  hurries.
- SIGHUP, or a change of the manifest's file, reads the jobs again.  A wrong file changes nothing.
- The watchdog is fed by the planning loop after each round, so that a loop that hangs is noticed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain, repeat
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from detent import __version__, clock
from detent.errors import DetentError, StoreUnavailable, UsageError
from detent.events import Emit
from detent.manifest.check import Manifest, jobs_on
from detent.manifest.secret_refs import secret_variables
from detent.model import Job, Plan, Push, Request
from detent.node.at_reboot import jobs_at_boot, put_boot_fires, read_boot_id
from detent.node.node import Node
from detent.node.ports import Ports, ThreadPools, Tuning
from detent.node.runners import Runners, RunnerSettings
from detent.rules.fingerprint import fingerprint
from detent.rules.rates import with_priorities
from detent.runners.call.store import NodeStore
from detent.stores.base import HOLDS, NODE, Store, probe
from detent.warden.client import WardenClient, find_cgroup, sweep
from detent.warden.instances import DeadInstances, Instance, make_lanes
from detent.worker.inbox import Inbox

BEAT_S = 10.0  # between two heartbeats
BUSY_BEAT_S = 1.0  # where there was much to share
FIRST_BEATS_S = (1.0, 3.0)  # sooner at first, so that nodes that start together soon know of each other
RUNNING_LOGGED_MAX = 100  # fires by name, when it stops
WATCH_S = 0.5  # between two looks at the clock, the file and the dead
SWEEP_S = 5.0  # how long one try to end what a dead life left may take
WAIT_S = 5.0  # one wait for the store's bell
PRUNE_S, PRUNE_AFTER, PRUNE_LOOK_S = 600.0, 20_000, 5.0
STEP_S = 2.0  # the wall clock moved by more than this against the other: it was set
SYSTEMD = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")  # for us, not for our commands
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class WorkerOptions(NamedTuple):
    """How a node serves the messages of an app's tasks."""

    inbox: Inbox
    plans: bool = True  # a worker does not: others plan the app's jobs
    concurrency: int = 0  # messages and fires at once; 0: as the manifest's `max_running` says
    processes: int = 0  # that calls run in, at most; 0: as many as may run at once
    cooldown_s: float = Tuning().cooldown_s  # between two asks, after some that failed


class ServiceOptions(NamedTuple):
    """What `detent run` was given."""

    load: Callable[[], Manifest]
    files: tuple[Path, ...]  # of the manifest: when one of them changes, it is loaded again
    store: Store
    directory: Path  # of this host's lives
    env: Mapping[str, str]
    emit: Emit
    queues: tuple[str, ...] = ("default",)
    waits: bool = True  # for a store that is away when the node starts
    worker: WorkerOptions | None = None  # messages; None: none of them
    call_store: NodeStore | None = None  # for its children: the same store


class Notify:
    """Reports the state of the service to systemd (sd_notify), where `NOTIFY_SOCKET` is set."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._address = env.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self.watchdog_s = _watchdog_s(env)

    def __call__(self, *pools: str) -> None:
        """Send the lines; errors are ignored, as the node can work without systemd."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.connect(self._address)
                sender.send("\n".join(pools).encode())


def _watchdog_s(env: Mapping[str, str]) -> float:
    """The interval that systemd asks for; 0: no watchdog."""
    text = env.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isdecimal() else 0.0


class Service:
    def __init__(self, options: ServiceOptions, manifest: Manifest) -> None:
        self._options, self._manifest = options, manifest
        self._emit, self._store, self._worker = options.emit, options.store, options.worker
        self._host, self._began = socket.gethostname(), clock.wall()
        self._instance = Instance(options.directory, manifest.node.id or self._host)
        self._dead_instances = DeadInstances(options.directory, self._instance.name)
        self._thread_pools = ThreadPools({"request": manifest.node.max_running + Tuning().max_hooks})
        self._notify = Notify(options.env)
        self._stop, self._code = asyncio.Event(), 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen = _signature(options.files)
        self._instance.begin()
        self._processes = self._new_processes()
        self._processes.replaced = self._child_replaced
        settings = self._runner_settings(manifest)
        self._runners = Runners(self._processes, self._thread_pools, settings, self._emit)
        self._node = self._new_node()
        self._fingerprint = _fingerprint(self._node.jobs)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in STOPS:
            loop.add_signal_handler(number, self._signalled)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._spawn(self._reload()))
        try:
            await self._processes.start()
            await self._work()
        finally:
            await self._leave()
        return self._code

    def _max_running(self) -> int:
        return (self._worker and self._worker.concurrency) or self._manifest.node.max_running

    def _runner_settings(self, manifest: Manifest) -> RunnerSettings:
        settings, most = _runner_settings(manifest, self._options.env, self._instance), self._max_running()
        settings = settings._replace(store=self._options.call_store)
        if self._worker is None:
            return settings
        shared_by = self._worker.processes or os.cpu_count() or 1  # async ones share what there is
        at_once = -(-most // shared_by)
        return settings._replace(processes=self._worker.processes or most, at_once=at_once, most=most)

    def _new_processes(self) -> WardenClient:
        return WardenClient(
            self._instance.name,
            cgroup=find_cgroup(),
            lock_fd=self._instance.lock_fd,
            launched=self._instance.record_warden,
            died=lambda: self._emit("warden-died", **self._who()),
        )

    def _child_replaced(self, why: str) -> None:
        self._emit("child-replaced", **self._who(), reason=why)

    def _new_node(self) -> Node:
        ports = Ports(
            store=self._store,
            starter=self._runners,
            offload=self._thread_pools,
            spawn=self._spawn,
            monotonic=clock.boottime,
            rng=Random(),
            emit=self._emit,
            heartbeat=lambda: self._heartbeat(),
            on_round=self._feed_watchdog,
            on_planned=self._make_lanes,
            inbox=self._worker.inbox if self._worker else None,
            prefetch_factor=lambda: self._runners.batches.batch_size.prefetch_factor() if self._worker else 1,
            return_unstarted=lambda: self._runners.return_unstarted(),
        )
        jobs = {job.name: job for job in jobs_on(self._manifest, self._host)}
        idle_s = self._notify.watchdog_s / 3 or Tuning().idle_s
        tuning = Tuning(
            max_running=self._max_running(),
            idle_s=min(idle_s, Tuning().idle_s),
            queues=with_priorities(self._options.queues) if self._worker else self._options.queues,
            plans=self._worker is None or self._worker.plans,
            cooldown_s=self._worker.cooldown_s if self._worker else Tuning().cooldown_s,
        )
        return Node(self._instance.name, self._manifest.app, jobs, ports, tuning)

    async def _work(self) -> None:
        served = {"queues": [*self._options.queues]} if self._worker else {}
        self._emit("started", **self._who(), jobs=len(self._node.jobs), version=__version__, **served)
        steps = (self._node.run, self._listen, self._watch, self._beat, self._prune, self._boot)
        for step in steps:
            self._spawn(step())
        self._notify("READY=1", f"STATUS={len(self._node.jobs)} jobs")
        await self._stop.wait()
        self._notify("STOPPING=1")
        running = self._node.running()[:RUNNING_LOGGED_MAX]
        self._emit("draining", **self._who(), drain_s=self._manifest.node.drain_s, running=running)
        await self._node.drain(self._manifest.node.drain_s)

    async def _leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._processes.close()
        with suppress(DetentError):
            for name in (HOLDS, NODE):  # the other nodes look at the first when they miss the second
                await self._thread_pools(
                    "renew", self._store.note, self._manifest.app, name + self._instance.name, ""
                )
        self._store.close()
        self._thread_pools.close()
        self._dead_instances.close()
        self._instance.end()
        self._emit("stopped", **self._who())

    # Signals.

    def _signalled(self) -> None:
        if self._stop.is_set():
            self._node.hurry()
        self._stop.set()

    async def _reload(self) -> None:
        """Take over what changed.  What runs goes on; a wrong file changes nothing."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={int(clock.monotonic() * 1e6)}")
        try:
            manifest = await self._thread_pools("load", self._options.load)
            _check_same(self._manifest, manifest)
        except DetentError as error:
            self._emit("reload-refused", **self._who(), error=str(error))
        else:
            self._take_over(manifest)
        self._notify("READY=1", f"STATUS={len(self._node.jobs)} jobs")

    def _take_over(self, manifest: Manifest) -> None:
        before, jobs = self._node.jobs, {job.name: job for job in jobs_on(manifest, self._host)}
        self._manifest = manifest
        self._runners.settings = self._runner_settings(manifest)
        self._node.tuning = self._node.tuning._replace(max_running=manifest.node.max_running)
        self._node.reload(jobs)
        self._fingerprint = _fingerprint(jobs)
        self._emit("reloaded", **self._who(), **_difference(before, jobs))

    # What goes on beside the node.

    def _spawn(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coro)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            text = str(error) if isinstance(error, DetentError) else f"{type(error).__name__}: {error}"
            self._emit("internal-error", **self._who(), error=text)
            self._code = 1
            self._stop.set()

    async def _listen(self) -> None:
        """Somebody pushed, cancelled or paused: the node hears of it at once."""
        while True:
            try:
                if await self._thread_pools("listen", self._store.wait, self._manifest.app, WAIT_S):
                    self._node.wake()
            except DetentError:
                await self._node.wait_for_store()

    async def _boot(self) -> None:
        """Fire what is to be fired once a boot; however long the store is away."""
        now, boot = clock.now(), read_boot_id()
        jobs = jobs_at_boot(self._node.jobs.values(), self._options.queues, now)
        if jobs and not boot:
            told = f"@reboot of {jobs[0].name} does not fire: this system does not tell one boot from another"
            self._emit("manifest-warning", **self._who(), error=told)
        is_put = not (jobs and boot)
        while not is_put:
            try:
                await self._thread_pools("boot", put_boot_fires, self._store, self._host, boot, jobs, now)
                is_put = True
            except DetentError:  # the node says so
                await asyncio.sleep(1.0)

    async def _watch(self) -> None:
        offset, looked = clock.wall() - clock.boottime(), 0
        while True:
            await asyncio.sleep(WATCH_S)
            moved = clock.wall() - clock.boottime() - offset
            if abs(moved) > STEP_S:
                self._emit("clock-stepped", **self._who(), by_s=round(moved, 1))
                self._node.wake()
            offset += moved
            looked += 1
            if looked % 2 == 0:
                await self._look_at_file()
            for instance in self._dead_instances.find():
                self._spawn(self._declare_dead(instance))
            for instance in self._dead_instances.find_frozen():
                await self._thread_pools("sweep", sweep, instance, SWEEP_S)

    async def _look_at_file(self) -> None:
        seen = _signature(self._options.files)
        if seen != self._seen:
            self._seen = seen
            await self._reload()

    async def _declare_dead(self, instance: str) -> None:
        """Its claims are free when nothing that it left behind is alive any more."""
        while not await self._thread_pools("sweep", sweep, instance, SWEEP_S):
            await asyncio.sleep(WATCH_S)
        self._node.declare_dead(instance)
        while not self._node.is_declared_dead(instance):
            await asyncio.sleep(WATCH_S)
        with suppress(DetentError):  # else its notes expire
            await self._thread_pools("renew", self._take_back_notes, instance)
        self._dead_instances.remove(instance)

    def _take_back_notes(self, instance: str) -> None:
        """Of a dead life, which may have been of another app: its lock, which proves its death, goes now."""
        for app in self._store.apps():
            for name in (HOLDS + instance, NODE + instance):
                self._store.note(app, name, "")

    async def _beat(self) -> None:
        """Say that we live, and hear who else does: what is due is shared with them."""
        for pause_s in chain(FIRST_BEATS_S, repeat(BEAT_S)):
            with suppress(DetentError):
                await self._node.send_heartbeat()
            await asyncio.sleep(BUSY_BEAT_S)
            await self._node.fair_share.compare_soon.sleep(pause_s - BUSY_BEAT_S)

    def _heartbeat(self) -> dict[str, object]:
        about = {"host": self._host, "pid": os.getpid(), "version": __version__, "jobs": len(self._node.jobs)}
        tasks = self._worker.inbox.tasks if self._worker else []
        serves = {"queues": self._options.queues, "tasks": tasks, "outputs": self._instance.outputs}
        now = {"began": self._began, "wall": clock.wall(), "fingerprint": self._fingerprint}
        return about | serves | now

    def _make_lanes(self, plans: Sequence[Plan]) -> None:
        """What is slow at a lane's first fire is done before that is due."""
        lanes = [fire.lane for plan in plans for fire in plan.fires if fire.lane and self._is_ours(plan.job)]
        if lanes:
            self._spawn(self._thread_pools("lanes", make_lanes, self._instance.lanes, lanes))

    def _is_ours(self, name: str) -> bool:
        """Is it ours to run, and in processes of this host?"""
        job = self._node.jobs.get(name)
        is_ours = job is not None and job.queue in self._options.queues
        return is_ours and job is not None and not isinstance(job.work, Request | Push)

    async def _prune(self) -> None:
        """From time to time, and sooner where much was settled: messages come in thousands a second."""
        while True:
            node, settled = self._manifest.node, self._node.settled
            older_than_s = timedelta(days=node.keep_days).total_seconds()
            with suppress(DetentError):  # the node says so
                await self._thread_pools(
                    "prune", self._store.prune, self._manifest.app, older_than_s, node.keep_fires
                )
            until = clock.monotonic() + PRUNE_S
            while clock.monotonic() < until and self._node.settled < settled + PRUNE_AFTER:
                await asyncio.sleep(PRUNE_LOOK_S)

    def _feed_watchdog(self) -> None:
        if self._notify.watchdog_s:
            self._notify("WATCHDOG=1")

    def _who(self) -> dict[str, str]:
        return {"app": self._manifest.app, "node": self._instance.name}


def reach(options: ServiceOptions, app: str) -> None:
    """Wait for the store, and say so once.  Nothing runs yet: a signal ends it as it ends any program."""
    said = False
    while True:
        try:
            probe(options.store, app)
        except StoreUnavailable as error:
            if not options.waits:
                raise
            if not said:
                told = f"{str(error).rstrip('.')}; the node starts when it answers"
                options.emit("store-unavailable", app=app, error=told)
            said = True
            threading.Event().wait(1.0)
        else:
            if said:
                options.emit("store-back", app=app)
            return


def _runner_settings(manifest: Manifest, env: Mapping[str, str], instance: Instance) -> RunnerSettings:
    works = [work for job in manifest.jobs for work in (job.work, *job.hooks.values())]
    refs = {ref for work in works if isinstance(work, Request | Push) for ref in work.secret_refs}
    hidden = secret_variables([*refs, *manifest.secrets], manifest.secrets) | set(SYSTEMD)
    return RunnerSettings(env, manifest.secrets, hidden, instance.outputs, instance.lanes)


def _check_same(old: Manifest, new: Manifest) -> None:
    for what, before, now in (("app", old.app, new.app), ("store", old.store, new.store)):
        if before != now:
            raise UsageError(f"{what} changed from {before} to {now}: restart the node for that")


def _difference(before: Mapping[str, Job], after: Mapping[str, Job]) -> dict[str, list[str]]:
    same = before.keys() & after.keys()
    return {
        "added": sorted(after.keys() - before.keys()),
        "changed": sorted(name for name in same if before[name].revision != after[name].revision),
        "removed": sorted(before.keys() - after.keys()),
    }


def _fingerprint(jobs: Mapping[str, Job]) -> str:
    return fingerprint((name, job.revision) for name, job in jobs.items())


def _signature(files: tuple[Path, ...]) -> list[tuple[int, int, int]]:
    """Another one of these: a file was changed or replaced, or one of a folder."""
    inside = [one for file in files if file.is_dir() for one in sorted(file.iterdir())]
    return [_stamp(file) for file in (*files, *inside)]


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size
