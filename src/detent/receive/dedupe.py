"""Runs a job's function for a fire; with receipts, once for each fire.

| the fire | its answer |
| --- | --- |
| is new | the function runs; 2xx and 4xx are final, and recorded |
| was handled | the recorded answer |
| runs now | `AlreadyRunning`: try again after the lease |
| has an older fence than one that was seen | `StaleFence`: give up |

A function that fails gives the fire back.  One whose process is killed gives it back when its lease ends.
What was done stays done: where it cannot be recorded, the caller is told of its success all the same.
"""

from __future__ import annotations

import logging
import math
import os
from functools import partial

from detent.errors import DetentError
from detent.receive.exchange import Exchange, Step
from detent.receive.fire import ReceivedFire
from detent.receive.jobs import DeclaredJob
from detent.receive.messages import (
    AlreadyRunning,
    NotRecorded,
    Reject,
    Reply,
    StaleFence,
    fail,
    reject,
    reply_of,
)
from detent.receive.receipts.base import Arrival, BeginResult, ReceiptOptions, Receipts, encode_reply, replay
from detent.receive.renewals import Renewals

TRIES = 2  # to record what is done

log = logging.getLogger("detent.receive")


def run(job: DeclaredJob, fire: ReceivedFire) -> Exchange:
    """Run it; what it returns, rejects or raises is a reply."""
    try:
        value = yield Step(partial(job.call, fire), job.is_async)
    except Reject as error:
        log.warning("%s rejected: %s", fire.key, error)
        return reject(error)
    except Exception as error:
        log.exception("%s failed in attempt %d", fire.key, fire.attempt)
        return fail(error)
    reply = reply_of(value)
    if reply is None:
        log.warning(
            "%s returned a %s that cannot be sent: answered without it", fire.key, type(value).__name__
        )
        return Reply(204)
    return reply


class Dedupe:
    def __init__(self, receipts: Receipts, options: ReceiptOptions) -> None:
        self._receipts, self._options = receipts, options
        self._renewals = Renewals(receipts, options)

    def run(self, job: DeclaredJob, fire: ReceivedFire, signed_key: str) -> Exchange:
        """Run it unless a request with the same `signed_key` was handled or runs now."""
        arrival = Arrival(fire.app, job.name, signed_key, fire.fence, os.urandom(8).hex())
        try:
            found = yield Step(partial(self._receipts.begin, arrival, self._options))
        except DetentError as error:
            raise NotRecorded(f"nothing was run: {error}") from error
        if found.kind != "ours":
            return _answer(found, fire)
        self._renewals.hold(arrival)
        try:
            reply = yield from run(job, fire)
        except BaseException:  # the process is being ended: whoever is next may have it at once
            self._renewals.drop(arrival)
            yield Step(partial(self._record, arrival, Reply(500)))
            raise
        yield Step(partial(self._record, arrival, reply))
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
            raise StaleFence(f"fence {fire.fence} is old: {found.newest} was seen for the job {fire.job}")
    wait_s = math.ceil(found.left_s)
    raise AlreadyRunning(f"{fire.key} runs now: ask again", max(1, wait_s))
