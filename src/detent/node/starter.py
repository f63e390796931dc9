"""Starts the work of an attempt with the runner for its kind: commands by the warden, requests here."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, assert_never

from detent import clock
from detent.events import Emit
from detent.model import Claim, Command, End, Outcome, Request, Work
from detent.node.attempt import Running
from detent.node.lives import forget_output, output_path
from detent.node.offload import Threads
from detent.node.processes import Processes
from detent.node.telling import fields_of
from detent.runners.base import Lifeline
from detent.runners.command import command_env, spec_of
from detent.runners.http import send
from detent.runners.secrets import resolve


class Surroundings(NamedTuple):
    """What work gets from its node."""

    env: Mapping[str, str]
    secrets: Mapping[str, str]  # the manifest's and the operator's table
    hidden: Collection[str]  # variables that hold secrets: no command sees them
    outputs: Path  # the folder for the output of what runs


class Sent:
    """A request under way in a thread."""

    def __init__(self, gone: asyncio.Task[End], lifeline: Lifeline) -> None:
        self.gone, self._lifeline = gone, lifeline

    def extend(self, trusted_by: float) -> None:
        self._lifeline.extend(trusted_by)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        self._lifeline.stop(why)


class Runners:
    def __init__(self, processes: Processes, threads: Threads, around: Surroundings, emit: Emit) -> None:
        self._processes, self._threads, self._emit = processes, threads, emit
        self.around = around

    async def start(self, work: Work, claim: Claim, trusted_by: float) -> Running | None:
        match work:
            case Command():
                return await self._spawn(work, claim, trusted_by)
            case Request():
                return self._send(work, claim, trusted_by)
        assert_never(work)

    async def _spawn(self, command: Command, claim: Claim, trusted_by: float) -> Running | None:
        env = command_env(self.around.env, claim, command, self.around.hidden)
        path = output_path(self.around.outputs, claim.fire.run_id, claim.attempt)
        running = await self._processes.spawn(spec_of(claim, command, env, str(path)), trusted_by)
        if running is not None:
            running.gone.add_done_callback(lambda _: forget_output(path))
        return running

    def _send(self, request: Request, claim: Claim, trusted_by: float) -> Running | None:
        lifeline = Lifeline(trusted_by)
        if lifeline.ended(clock.boottime()):
            return None
        if claim.fire.origin == "hook":
            headers = (*request.headers, ("Content-Type", "application/json"))
            request = request._replace(headers=headers, body=claim.fire.payload)
        sending = self._threads("request", self._exchange, request, claim, lifeline)
        return Sent(asyncio.ensure_future(sending), lifeline)

    def _exchange(self, request: Request, claim: Claim, lifeline: Lifeline) -> End:
        found = resolve(request.secret_refs, self.around.secrets, self.around.env)
        for warning in found.warnings:
            self._emit("secret-unresolved", **fields_of(claim), reason=warning)
        timeout_s = claim.fire.policy.timeout_s
        return send(request, claim, secrets=found.secrets, timeout_s=timeout_s, lifeline=lifeline)
