"""Runs the work of one attempt of a trigger, and waits for its end.

The warden runs commands and calls.  A call always has its own process here, whatever its isolation, because
there is no node to run it in.  The trigger sends requests itself, and holds the lane lock meanwhile.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from detent import clock
from detent.events import Emit
from detent.model import Alert, Call, Claim, Command, End, Outcome, Push, Request, Work
from detent.node.claim_session import RenewalThread
from detent.rules.trust import trusted_by
from detent.runners.lifeline import Lifeline
from detent.runners.running import LaneHeld
from detent.stores.base import Store
from detent.trigger.locks import TriggerLocks
from detent.warden.signals import Signals

if TYPE_CHECKING:
    from detent.manifest.secret_refs import Secret
    from detent.runners.call.spec import CallSpec
    from detent.runners.call.store import NodeStore
    from detent.runners.command import Spec
    from detent.warden.blocking_client import BlockingTask, BlockingWardenClient

BRIEF_S = 1.0  # an attempt that is over by then needs no renewal
WAIT_S = 3600.0  # one wait for the warden


class WorkSettings(NamedTuple):
    env: Mapping[str, str]
    secrets: Mapping[str, str]  # from the spec and the machine's configuration
    hidden: Collection[str]  # variables that hold secrets: commands do not get them
    trace: Callable[[Claim], Mapping[str, str]]  # the W3C trace context of an attempt, as variables
    store: Callable[[], "NodeStore"]  # the store that calls push to and lock in


class RequestLifeline(Lifeline):
    """A lifeline of a request: a signal ends it, too, and it calls `renew` once if the request is not brief.
    A request asks its lifeline before each of its short waits."""

    def __init__(
        self, trusted_by: float, signals: Signals, ignored: int, renew: Callable[[Lifeline], None]
    ) -> None:
        super().__init__(trusted_by)
        self._signals, self._ignored = signals, ignored
        self._renew, self._renew_at = renew, clock.boottime() + BRIEF_S

    def ended(self, now: float) -> Outcome | None:
        if now >= self._renew_at:
            self._renew_at = float("inf")
            self._renew(self)
        if self._signals.count > self._ignored:
            self.stop(stopped_by(self._signals))
        return super().ended(now)


def stopped_by(signals: Signals) -> Outcome:
    return Outcome("lost", f"its trigger was ended by {signals.name}", "shutdown")


class WorkRunner:
    def __init__(
        self, store: Store, locks: TriggerLocks, signals: Signals, settings: WorkSettings, emit: Emit
    ) -> None:
        self._store, self._locks, self._signals = store, locks, signals
        self._settings, self._emit = settings, emit
        self._warden: BlockingWardenClient | None = None
        self._renewal: RenewalThread | None = None

    def run(self, work: Work, claim: Claim, sent: float) -> End:
        """Run the work of a claim.  `sent` is when the ask that granted it was sent."""
        until = trusted_by(sent, claim.ttl_s)
        try:
            if isinstance(work, Request):
                return self._send(work, claim, until)
            if isinstance(work, Push):
                from detent.runners.push import push

                trace = self._settings.trace(claim).get("TRACEPARENT", "")
                return push(work, claim, self._secrets(work.secret_refs, claim), trace)
            if isinstance(work, Alert):
                from detent.manifest.alerts import alert_text
                from detent.runners.alert import send_alert

                text = alert_text(work, claim.fire)
                return send_alert(work, text, self._settings.secrets, self._settings.env)
            return self._run_process(work, claim, until)
        finally:
            if self._renewal:
                self._renewal.close()

    def close(self) -> None:
        if self._warden:
            self._warden.close()

    # Processes.

    def _run_process(self, work: Command | Call, claim: Claim, trusted_by: float) -> End:
        seen = self._ignored_signals(claim)
        spec = self._command(work, claim) if isinstance(work, Command) else self._call(work, claim)
        running = self._warden_up().start(spec, trusted_by)
        end = running.wait(BRIEF_S, seen)
        while end is None:
            if self._signals.count > seen:
                running.stop(stopped_by(self._signals), 0.0 if self._signals.count > 1 else None)
                seen = self._signals.count
            elif self._renewal is None or self._renewal.is_over:
                self._warden_up().start_reaper()
                self._renew(claim, running)
            end = running.wait(WAIT_S, seen)
        return end

    def _ignored_signals(self, claim: Claim) -> int:
        """Return how many signals this claim ignores: hooks are called after a signal, too."""
        return self._signals.count if claim.fire.origin == "hook" else 0

    def _renew(self, claim: Claim, running: "BlockingTask | Lifeline") -> None:
        import gc

        gc.enable()  # disabled at the start, because a short process does not need it
        self._renewal = RenewalThread(self._store, claim, running, after_s=0.0)

    def _warden_up(self) -> "BlockingWardenClient":
        """Fork the warden when it is first needed, while this process has no other thread."""
        if self._warden is None:
            from detent.warden.blocking_client import BlockingWardenClient

            if self._renewal:
                self._renewal.join()
            self._warden = BlockingWardenClient(self._locks.name, self._locks.lock_fd, self._signals)
            self._locks.record_warden(self._warden.pid)
        return self._warden

    def _command(self, command: Command, claim: Claim) -> "Spec":
        from detent.runners.command import BaseEnv, fire_env, inherited_env, spec_of

        env = {**fire_env(claim, command), **self._settings.trace(claim)}
        steady = inherited_env(self._settings.env, self._settings.hidden, is_other=bool(command.user))
        spec = spec_of(claim, command, env, lane=self._locks.lane(claim.fire.lane))
        return spec._replace(base=BaseEnv(claim.fire.key, steady))

    def _call(self, call: Call, claim: Claim) -> "CallSpec":
        from detent.runners.call.spec import call_spec, pool_spec, setup_of
        from detent.runners.command import inherited_env

        env = inherited_env(self._settings.env, self._settings.hidden, is_other=bool(call.user))
        trace = self._settings.trace(claim)
        pool = pool_spec(call, {**env, **dict(call.env), **trace}, claim.node)
        pool = pool._replace(setup=setup_of(self._settings.store(), call.user))
        spec = call_spec(claim, call, pool, trace.get("TRACEPARENT", ""))
        return spec._replace(lane=self._locks.lane(claim.fire.lane))

    # Requests.

    def _send(self, request: Request, claim: Claim, trusted_by: float) -> End:
        from detent.runners.http.request import send

        if claim.fire.origin == "hook":
            from detent.manifest.webhooks import hook_request

            request = hook_request(request, claim.fire)
        secrets, trace = self._secrets(request.secret_refs, claim), self._settings.trace(claim)
        if trace:
            from detent.messages.trace_context import traced_request

            request = traced_request(request, trace.get("TRACEPARENT", ""), trace.get("TRACESTATE", ""))
        ignored, renew = self._ignored_signals(claim), partial(self._renew, claim)
        lifeline = RequestLifeline(trusted_by, self._signals, ignored, renew)
        timeout_s = claim.fire.policy.timeout_s
        with self._lane_taken(claim):
            return send(request, claim, secrets=secrets, timeout_s=timeout_s, lifeline=lifeline)

    def _secrets(self, refs: Sequence[str], claim: Claim) -> Sequence["Secret"]:
        if not refs:
            return ()
        from detent.node.reporting import fields_of
        from detent.runners.secrets import resolve

        found = resolve(refs, self._settings.secrets, self._settings.env)
        for warning in found.warnings:
            self._emit("secret-unresolved", **fields_of(claim), reason=warning)
        return found.secrets

    @contextmanager
    def _lane_taken(self, claim: Claim) -> Iterator[None]:
        """Hold the lane lock that a command would inherit."""
        from detent.warden.program.host_locks import NO_LANE, holders, release_lane, take_lane

        path, places = self._locks.lane(claim.fire.lane), claim.fire.policy.max_running
        fd = take_lane(path, places) if path else NO_LANE
        if fd is None:
            raise LaneHeld(holders(path, places))
        try:
            yield
        finally:
            release_lane(fd)
