"""`detent run`: a node as a process, from the first call to the store to the last event.

- SIGTERM, SIGINT and SIGQUIT drain the node: it claims no more, returns what has not started, waits for
  running attempts for `drain_seconds`, stops the others, and settles all of them.  A second signal stops them
  at once.
- SIGHUP, or a change of a manifest file, loads the jobs again.  A manifest with errors changes nothing.
- The planning loop feeds the systemd watchdog after each round, so that systemd notices a loop that hangs.
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
from detent.manifest.secret_refs import refs_of, secret_variables
from detent.messages.trace_context import carried_trace
from detent.model import Claim, Job, Plan, Push, Request
from detent.node.at_reboot import jobs_at_boot, put_boot_fires, read_boot_id
from detent.node.node import Node
from detent.node.ports import Ports, ThreadPools, Tuning
from detent.node.runners import Runners, RunnerSettings
from detent.rules.fingerprint import fingerprint
from detent.rules.rates import with_priorities
from detent.runners.call.store import NodeStore
from detent.stores.base import HOLDS, NODE, Store, probe
from detent.warden.client import WardenClient
from detent.warden.instances import DeadInstances, Instance, make_lanes
from detent.warden.program.cgroups import find_cgroup
from detent.warden.program.sweep import sweep
from detent.worker.inbox import Inbox

BEAT_S = 10.0  # between two heartbeats
BUSY_BEAT_S = 1.0  # the same, while there is much work to share
FIRST_BEATS_S = (1.0, 3.0)  # the first pauses: nodes that start together must find each other soon
RUNNING_LOGGED_MAX = 100  # fires that the event "draining" names
WATCH_S = 0.5  # between two checks of the clock, the manifest files and dead instances
SWEEP_S = 5.0  # the time of one try to end the processes of a dead instance
WAIT_S = 5.0  # one wait for a wake-up of the store
PRUNE_S, PRUNE_AFTER, PRUNE_LOOK_S = 600.0, 20_000, 5.0
STEP_S = 2.0  # a wall clock that moved by more than this was set
SYSTEMD = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")  # for the node, not for its commands
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class WorkerOptions(NamedTuple):
    """How a node processes messages."""

    inbox: Inbox
    plans: bool = True  # False for a worker: other nodes plan the jobs
    concurrency: int = 0  # messages and fires that run at once; 0: the manifest's `max_running`
    processes: int = 0  # limit of child processes; 0: as many as run at once
    cooldown_s: float = Tuning().cooldown_s  # between two asks, after several that failed


class ServiceOptions(NamedTuple):
    load: Callable[[], Manifest]
    files: tuple[Path, ...]  # a change of one of them loads the manifest again
    store: Store
    directory: Path  # with the locks of this host's instances
    env: Mapping[str, str]
    emit: Emit
    queues: tuple[str, ...] = ("default",)
    waits: bool = True  # for a store that is not available at the start
    worker: WorkerOptions | None = None  # None: processes no messages
    call_store: NodeStore | None = None  # the same store, for child processes
    trace: Callable[[Claim], str] = carried_trace  # the W3C `traceparent` of an attempt, or ""


class Notify:
    """Reports the state of the service to systemd (sd_notify), if `NOTIFY_SOCKET` is set."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._address = env.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        usec = env.get("WATCHDOG_USEC", "")
        self.watchdog_s = int(usec) / 1e6 if usec.isdecimal() else 0.0  # 0: no watchdog

    def __call__(self, *lines: str) -> None:
        """Send the lines.  Errors are ignored: the node works without systemd."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.connect(self._address)
                sender.send("\n".join(lines).encode())


class Service:
    def __init__(self, options: ServiceOptions, manifest: Manifest) -> None:
        self._options, self._manifest = options, manifest
        self._emit, self._store, self._worker = options.emit, options.store, options.worker
        self._host, self._began = socket.gethostname(), clock.wall()
        self._instance = Instance(options.directory, manifest.node.id or self._host)
        self._dead_instances = DeadInstances(options.directory, self._instance.name)
        width = {"request": manifest.node.max_running + Tuning().max_hooks, "alert": Tuning().max_hooks}
        self._thread_pools = ThreadPools(width)
        self._notify = Notify(options.env)
        self._stop, self._code = asyncio.Event(), 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._files_stamp = stamp_of(options.files)
        self._instance.begin()
        self._processes = self._new_processes()
        self._processes.replaced = lambda why: self._report("child-replaced", reason=why)
        self._processes.outdated = lambda why: self._report("node-outdated", reason=why)
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
        refs = refs_of(manifest.jobs)
        settings = RunnerSettings(
            env=self._options.env,
            secrets=manifest.secrets,
            hidden=secret_variables([*refs, *manifest.secrets], manifest.secrets) | set(SYSTEMD),
            outputs=self._instance.outputs,
            lanes=self._instance.lanes,
            store=self._options.call_store,
            trace=self._options.trace,
        )
        if self._worker is None:
            return settings
        running_max, processes = self._max_running(), self._worker.processes
        at_once = -(-running_max // (processes or os.cpu_count() or 1))  # async messages share the children
        return settings._replace(processes=processes or running_max, at_once=at_once, running_max=running_max)

    def _new_processes(self) -> WardenClient:
        return WardenClient(
            self._instance.name,
            cgroup=find_cgroup(),
            lock_fd=self._instance.lock_fd,
            launched=self._instance.record_warden,
            died=lambda: self._report("warden-died"),
        )

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
        self._report("started", jobs=len(self._node.jobs), version=__version__, **served)
        steps = (self._node.run, self._listen, self._watch, self._beat, self._prune, self._boot)
        for step in steps:
            self._spawn(step())
        self._notify("READY=1", f"STATUS={len(self._node.jobs)} jobs")
        await self._stop.wait()
        self._notify("STOPPING=1")
        running = self._node.running()[:RUNNING_LOGGED_MAX]
        self._report("draining", drain_s=self._manifest.node.drain_s, running=running)
        await self._node.drain(self._manifest.node.drain_s)

    async def _leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._processes.close()
        with suppress(DetentError):
            for name in (HOLDS, NODE):  # other nodes read HOLDS when they miss NODE
                await self._thread_pools(
                    "renew", self._store.note, self._manifest.app, name + self._instance.name, ""
                )
        self._store.close()
        self._thread_pools.close()
        self._dead_instances.close()
        self._instance.end()
        self._report("stopped")

    # Signals.

    def _signalled(self) -> None:
        if self._stop.is_set():
            self._node.hurry()
        self._stop.set()

    async def _reload(self) -> None:
        """Load the manifest again.  Running attempts go on, and a manifest with errors changes nothing."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={int(clock.monotonic() * 1e6)}")
        try:
            manifest = await self._thread_pools("load", self._options.load)
            _check_same(self._manifest, manifest)
        except DetentError as error:
            self._report("reload-refused", error=str(error))
        else:
            self._take_over(manifest)
        self._notify("READY=1", f"STATUS={len(self._node.jobs)} jobs")

    def _take_over(self, manifest: Manifest) -> None:
        before, jobs = self._node.jobs, {job.name: job for job in jobs_on(manifest, self._host)}
        self._manifest = manifest
        self._runners.reload(self._runner_settings(manifest))
        self._node.tuning = self._node.tuning._replace(max_running=self._max_running())
        self._node.reload(jobs)
        self._fingerprint = _fingerprint(jobs)
        self._report("reloaded", **_difference(before, jobs))

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
            self._report("internal-error", error=text)
            self._code = 1
            self._stop.set()

    async def _listen(self) -> None:
        """Wake the node when another process pushes, cancels or pauses something."""
        while True:
            try:
                if await self._thread_pools("listen", self._store.wait, self._manifest.app, WAIT_S):
                    self._node.wake()
            except DetentError:
                await self._node.wait_for_store()

    async def _boot(self) -> None:
        """Record the `@reboot` fires of this boot.  Try again while the store is away."""
        now, boot = clock.now(), read_boot_id()
        jobs = jobs_at_boot(self._node.jobs.values(), self._options.queues, now)
        if jobs and not boot:
            error = (
                f"@reboot of {jobs[0].name} does not fire: this system does not tell one boot from another"
            )
            self._report("manifest-warning", error=error)
        while jobs and boot:
            try:
                await self._thread_pools("boot", put_boot_fires, self._store, self._host, boot, jobs, now)
                return
            except DetentError:  # the node reports it
                await asyncio.sleep(1.0)

    async def _watch(self) -> None:
        offset, looked = clock.wall() - clock.boottime(), 0
        while True:
            await asyncio.sleep(WATCH_S)
            moved = clock.wall() - clock.boottime() - offset
            if abs(moved) > STEP_S:
                self._report("clock-stepped", by_s=round(moved, 1))
                self._node.wake()
            offset += moved
            looked += 1
            if looked % 2 == 0 and self._files_stamp != (stamp := stamp_of(self._options.files)):
                self._files_stamp = stamp
                await self._reload()
            for instance in self._dead_instances.find():
                self._spawn(self._declare_dead(instance))
            for instance in self._dead_instances.find_frozen():
                await self._thread_pools("sweep", sweep, instance, SWEEP_S)

    async def _declare_dead(self, instance: str) -> None:
        """Free the claims of a dead instance, once all of its processes are gone."""
        while not await self._thread_pools("sweep", sweep, instance, SWEEP_S):
            await asyncio.sleep(WATCH_S)
        self._node.declare_dead(instance)
        while not self._node.is_declared_dead(instance):
            await asyncio.sleep(WATCH_S)
        with suppress(DetentError):  # otherwise its notes expire
            await self._thread_pools("renew", self._remove_notes, instance)
        self._dead_instances.remove(instance)

    def _remove_notes(self, instance: str) -> None:
        """Remove the notes of a dead instance, which may have been of another app."""
        for app in self._store.apps():
            for name in (HOLDS + instance, NODE + instance):
                self._store.note(app, name, "")

    async def _beat(self) -> None:
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
        """Create the lock files of lanes before their first fire is due, because that is slow."""
        lanes = [fire.lane for plan in plans for fire in plan.fires if fire.lane and self._is_ours(plan.job)]
        if lanes:
            self._spawn(self._thread_pools("lanes", make_lanes, self._instance.lanes, lanes))

    def _is_ours(self, name: str) -> bool:
        """Return whether this node can run the job in processes of this host."""
        job = self._node.jobs.get(name)
        return bool(job and job.queue in self._options.queues and not isinstance(job.work, Request | Push))

    async def _prune(self) -> None:
        """Delete old fires every `PRUNE_S`, or after `PRUNE_AFTER` settled fires."""
        while True:
            node, settled = self._manifest.node, self._node.settled
            older_than_s = timedelta(days=node.keep_days).total_seconds()
            with suppress(DetentError):  # the node reports it
                await self._thread_pools(
                    "prune", self._store.prune, self._manifest.app, older_than_s, node.keep_fires
                )
            until = clock.monotonic() + PRUNE_S
            while clock.monotonic() < until and self._node.settled < settled + PRUNE_AFTER:
                await asyncio.sleep(PRUNE_LOOK_S)

    def _feed_watchdog(self) -> None:
        if self._notify.watchdog_s:
            self._notify("WATCHDOG=1")

    def _report(self, event: str, **fields: Any) -> None:
        self._emit(event, app=self._manifest.app, node=self._instance.name, **fields)


def reach(options: ServiceOptions, app: str) -> None:
    """Wait until the store answers.  Nothing runs yet, so a signal simply ends the process."""
    is_reported = False
    while True:
        try:
            probe(options.store, app)
        except StoreUnavailable as error:
            if not options.waits:
                raise
            if not is_reported:
                text = f"{str(error).rstrip('.')}; the node starts when it answers"
                options.emit("store-unavailable", app=app, error=text)
            is_reported = True
            threading.Event().wait(1.0)
        else:
            if is_reported:
                options.emit("store-back", app=app)
            return


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


def stamp_of(files: tuple[Path, ...]) -> list[tuple[int, int, int]]:
    """Return a value that differs after a change of one of these files, or of a file in one of these
    folders."""
    stamps = []
    for file in [
        *files,
        *(inner for folder in files if folder.is_dir() for inner in sorted(folder.iterdir())),
    ]:
        with suppress(OSError):
            found = file.stat()
            stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return stamps
