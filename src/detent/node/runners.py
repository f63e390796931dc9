"""Starts the work of an attempt with the runner for its kind.

The warden runs commands and calls.  The node itself sends requests, and runs calls that ask for it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, assert_never

from detent import clock
from detent.events import Emit
from detent.manifest.secret_refs import Secret
from detent.manifest.webhooks import hook_request
from detent.messages.trace_context import VARIABLE, carried_trace, traced_request
from detent.model import Alert, Call, Claim, Command, End, Outcome, Push, Request, Work
from detent.node.ports import ThreadPools
from detent.node.reporting import fields_of
from detent.runners.call.spec import CallSpec, PoolSpec, call_spec, guard_spec, pool_spec, setup_of
from detent.runners.call.store import NodeStore
from detent.runners.command import BaseEnv, Spec, fire_env, inherited_env, spec_of
from detent.runners.http.request import send
from detent.runners.lifeline import Lifeline
from detent.runners.running import AttemptEnd, Running
from detent.runners.secrets import resolve
from detent.warden.client import WardenClient
from detent.warden.instances import forget_output, lane_path, output_path

if TYPE_CHECKING:
    from detent.messages.addresses import Reach
    from detent.worker.batches import Batches
    from detent.worker.in_process import InProcessCalls
    from detent.worker.in_process_queue import InProcessQueue


class RunnerSettings(NamedTuple):
    env: Mapping[str, str]
    secrets: Mapping[str, str]  # from the manifest and the machine's configuration
    hidden: Collection[str]  # variables that hold secrets: commands do not get them
    outputs: str  # the folder for the output of running work
    lanes: str  # the folder of this host's lane locks
    processes: int = 1000  # limit of child processes of one pool
    at_once: int = 16  # async messages in one child
    running_max: int = 32  # messages that run at once in the node's own process
    store: NodeStore | None = None  # the store that calls push to and lock in
    trace: Callable[[Claim], str] = carried_trace  # the W3C `traceparent` of an attempt, or ""


class RunningRequest(Lifeline):
    """A request that a thread sends."""

    gone: asyncio.Future[AttemptEnd]


class Runners:
    def __init__(
        self, processes: WardenClient, threads: ThreadPools, settings: RunnerSettings, emit: Emit
    ) -> None:
        self._processes, self._thread_pools, self._emit = processes, threads, emit
        self.settings = settings
        self._pools: dict[tuple[object, ...], PoolSpec] = {}
        self._bases: dict[bool, BaseEnv] = {}  # for our own user's commands, and for others'

    def reload(self, settings: RunnerSettings) -> None:
        """Replace the settings.  Running work goes on, and idle children of the old pools end."""
        self.settings = settings
        self._pools.clear()
        self._bases.clear()
        self._processes.protocol.close_pools()

    def start(self, work: Work, claim: Claim, trusted_by: float) -> Running:
        match work:
            case Command():
                return self._spawn(work, claim, trusted_by)
            case Request():
                return self._send(work, claim, trusted_by)
            case Call():
                return self._call(work, claim, trusted_by)
            case Push():
                return self._push(work, claim, trusted_by)
            case Alert():
                return self._alert(work, claim, trusted_by)
        assert_never(work)

    def _push(self, work: Push, claim: Claim, trusted_by: float) -> Running:
        """Create the messages.  The store records them together with the verdict, so nothing runs."""
        from detent.runners.push import push

        found = self._resolve(work.secret_refs, claim)
        running = RunningRequest(trusted_by)
        running.gone = asyncio.get_running_loop().create_future()
        running.gone.set_result(push(work, claim, found, self.settings.trace(claim)))
        return running

    def _resolve(self, refs: Sequence[str], claim: Claim) -> Sequence[Secret]:
        found = resolve(refs, self.settings.secrets, self.settings.env)
        for warning in found.warnings:
            self._emit("secret-unresolved", **fields_of(claim), reason=warning)
        return found.secrets

    def _spawn(self, command: Command, claim: Claim, trusted_by: float) -> Running:
        output = output_path(self.settings.outputs, claim.fire.run_id, claim.attempt)
        trace = self.settings.trace(claim)
        env = fire_env(claim, command) | ({VARIABLE: trace} if trace else {})
        spec = spec_of(claim, command, env, output, lane_path(self.settings.lanes, claim.fire.lane))
        return self._begin(spec._replace(base=self._base(command)), trusted_by)

    def _begin(self, spec: Spec | CallSpec, trusted_by: float) -> Running:
        running = self._processes.begin(spec, trusted_by)
        running.gone.add_done_callback(partial(_forget_output, spec.output_path))
        return running

    def _base(self, command: Command) -> BaseEnv:
        is_other = bool(command.user)
        if is_other not in self._bases:
            env = inherited_env(self.settings.env, self.settings.hidden, is_other=is_other)
            self._bases[is_other] = BaseEnv("another's" if is_other else "ours", env)
        return self._bases[is_other]

    def _call(self, call: Call, claim: Claim, trusted_by: float) -> Running:
        is_light, trace = claim.fire.origin == "push" and not claim.fire.lane, self.settings.trace(claim)
        if is_light and call.isolation == "process":
            return self.batches.add(call, claim, self._pool(call, claim), trusted_by, trace)
        lane = lane_path(self.settings.lanes, claim.fire.lane)
        if call.isolation != "process":
            guarded = self._in_process_calls.start(call, claim, guard_spec(claim, lane), trusted_by, trace)
            if is_light:
                self._in_process_queue.add(guarded)
            return guarded
        pool = self._pool(call, claim)
        path = output_path(self.settings.outputs, claim.fire.run_id, claim.attempt)
        spec = call_spec(claim, call, pool, trace)
        return self._begin(spec._replace(output_path=path, lane=lane), trusted_by)

    @functools.cached_property
    def batches(self) -> Batches:
        from detent.worker.batches import Batches  # late: only workers have messages

        return Batches(self._processes, self.settings.at_once, self.settings.processes)

    @functools.cached_property
    def _in_process_queue(self) -> InProcessQueue:
        from detent.worker.in_process_queue import InProcessQueue

        return InProcessQueue(self.settings.running_max, self.batches.batch_size)

    def return_unstarted(self) -> None:
        """Return the messages that have not started."""
        self.batches.recall_all()
        self._in_process_queue.recall()

    @functools.cached_property
    def _in_process_calls(self) -> InProcessCalls:
        from detent.worker.in_process import InProcessCalls  # late: few have such calls

        return InProcessCalls(self._processes)

    def _pool(self, call: Call, claim: Claim) -> PoolSpec:
        key = (call.work_dir, call.env, call.user)
        known = self._pools.get(key)
        if known is None:
            env = inherited_env(self.settings.env, self.settings.hidden, is_other=bool(call.user))
            pool = pool_spec(call, env | dict(call.env), claim.node)
            setup = setup_of(self.settings.store, call.user) if self.settings.store else ""
            known = pool._replace(size_max=self.settings.processes, setup=setup)
            self._pools[key] = known
        return known

    def _send(self, request: Request, claim: Claim, trusted_by: float) -> Running:
        running = RunningRequest(trusted_by)
        if claim.fire.origin == "hook":
            request = hook_request(request, claim.fire)
        request = traced_request(request, self.settings.trace(claim))
        sending = self._thread_pools("request", self._exchange, request, claim, running)
        running.gone = asyncio.ensure_future(sending)
        return running

    def _exchange(self, request: Request, claim: Claim, lifeline: Lifeline) -> AttemptEnd:
        if lifeline.ended(clock.boottime()):
            return None
        secrets = self._resolve(request.secret_refs, claim)
        timeout_s, reach = claim.fire.policy.timeout_s, _reach(request)
        return send(request, claim, secrets=secrets, timeout_s=timeout_s, lifeline=lifeline, reach=reach)

    def _alert(self, alert: Alert, claim: Claim, trusted_by: float) -> Running:
        running = RunningRequest(trusted_by)
        sending = self._thread_pools("alert", self._notify, alert, claim, running)
        running.gone = asyncio.ensure_future(sending)
        return running

    def _notify(self, alert: Alert, claim: Claim, lifeline: Lifeline) -> AttemptEnd:
        if lifeline.ended(clock.boottime()):
            return None
        from detent.manifest.alerts import alert_text  # late: few jobs have alerts
        from detent.runners.alert import send_alert

        text, settings = alert_text(alert, claim.fire), self.settings
        stopped = partial(_stopped, lifeline)
        return send_alert(alert, text, settings.secrets, settings.env, stopped)


def _stopped(lifeline: Lifeline) -> Outcome | None:
    return lifeline.ended(clock.boottime())


def _reach(request: Request) -> Reach | None:
    """Return the hosts that the request of a message may reach.  `*` stands for every public host."""
    if request.hosts is None:
        return None
    from detent.messages.addresses import Reach

    return Reach(tuple(host for host in request.hosts if host != "*"))


def _forget_output(path: str, gone: asyncio.Future[AttemptEnd]) -> None:
    """Delete the output file.  It exists only if the work wrote something, which is unknown of lost work."""
    end = gone.result()
    if isinstance(end, End) and (end.tail or end.outcome.kind == "lost"):
        forget_output(path)
