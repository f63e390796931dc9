"""Runs a job's function for a fire and, with receipts, only once for each fire.

| the fire | the answer |
| --- | --- |
| is new | the function runs; a 2xx or 4xx answer is final and is recorded |
| was handled | the recorded answer |
| is running | `AlreadyRunning`: try again after the lease |
| has an older fence than the newest one seen | `StaleFence`: give up |

If the function fails, the fire may be sent again at once.  If its process is killed, the fire may be sent
again when its lease ends.  If finished work cannot be recorded, the caller still gets the success.
"""

import logging
import math
import os
import threading
from functools import partial

from detent.errors import DetentError
from detent.receive.exchange import Perform, Step
from detent.receive.fire import ReceivedFire
from detent.receive.jobs import DeclaredJob
from detent.receive.messages import Refusal, Reject, Reply, fail, reject, reply_of
from detent.receive.receipts.base import Arrival, BeginResult, ReceiptOptions, Receipts, encode_reply, replay

TRIES = 2  # to record finished work
RENEWALS_PER_LEASE = 3  # two of them may fail

log = logging.getLogger("detent.receive")


async def run(job: DeclaredJob, fire: ReceivedFire, perform: Perform) -> Reply:
    """Run the function; what it returns, rejects or raises becomes the reply."""
    try:
        value = await perform(Step(partial(job.call, fire), job.is_async))
    except Reject as error:
        log.warning("%s rejected: %s", fire.key, error)
        return reject(error)
    except Exception as error:
        log.exception("%s failed in attempt %d", fire.key, fire.attempt)
        return fail(error)
    reply = reply_of(value)
    if reply is None:
        kind = type(value).__name__
        log.warning("%s returned a %s that cannot be sent: answered without it", fire.key, kind)
        return Reply(204)
    return reply


class Dedupe:
    def __init__(self, receipts: Receipts, options: ReceiptOptions) -> None:
        self._receipts, self._options = receipts, options
        self._renewals = Renewals(receipts, options)

    async def run(self, job: DeclaredJob, fire: ReceivedFire, signed_key: str, perform: Perform) -> Reply:
        """Run the function unless a request with the same `signed_key` was handled or is running."""
        arrival = Arrival(fire.app, job.name, signed_key, fire.fence, os.urandom(8).hex())
        try:
            found = await perform(Step(partial(self._receipts.begin, arrival, self._options)))
        except DetentError as error:
            raise Refusal("NotRecorded", f"nothing was run: {error}") from error
        if found.kind != "ours":
            return _answer(found, fire)
        self._renewals.hold(arrival)
        try:
            reply = await run(job, fire, perform)
        except BaseException:  # the process is ending: release the fire at once
            self._renewals.drop(arrival)
            await perform(Step(partial(self._record, arrival, Reply(500))))
            raise
        await perform(Step(partial(self._record, arrival, reply)))
        self._renewals.drop(arrival)
        return reply

    def _record(self, arrival: Arrival, reply: Reply) -> None:
        for number in range(1, TRIES + 1):
            try:
                if reply.is_final:
                    return self._receipts.finish(arrival, encode_reply(reply), self._options)
                return self._receipts.release(arrival)
            except DetentError as error:
                if number == TRIES:
                    log.error("%s is not recorded, and may run again: %s", arrival.key, error)
        return None


def _answer(found: BeginResult, fire: ReceivedFire) -> Reply:
    match found.kind:
        case "handled":
            log.info("%s was handled before: attempt %d gets the same answer", fire.key, fire.attempt)
            return replay(found.answer)
        case "stale":
            raise Refusal(
                "StaleFence", f"fence {fire.fence} is old: {found.newest} was seen for the job {fire.job}"
            )
    raise Refusal("AlreadyRunning", f"{fire.key} is running: try again", max(1, math.ceil(found.left_s)))


class Renewals:
    """Renews the leases of running fires, from a thread that exists only while there are any."""

    def __init__(self, receipts: Receipts, options: ReceiptOptions) -> None:
        self._receipts, self._options = receipts, options
        self._lock = threading.Lock()
        self._held: set[Arrival] = set()
        self._thread: threading.Thread | None = None

    def hold(self, arrival: Arrival) -> None:
        with self._lock:
            self._held.add(arrival)
            # A thread does not survive a fork: the child process starts its own.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._renew, name="detent-receive", daemon=True)
                self._thread.start()

    def drop(self, arrival: Arrival) -> None:
        with self._lock:
            self._held.discard(arrival)

    def _renew(self) -> None:
        while True:
            threading.Event().wait(self._options.lease_s / RENEWALS_PER_LEASE)
            with self._lock:
                held = list(self._held)
                if not held:
                    self._thread = None
                    return
            try:
                self._receipts.renew(held, self._options)
            except DetentError as error:
                log.warning("%d running fires could not be renewed: %s", len(held), error)
