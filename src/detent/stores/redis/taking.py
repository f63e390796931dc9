"""Claims plain messages in one call, if there is nothing else to decide about: `lua/take.lua` refuses all
else, and the engine answers the ask.  It is for workers: two thirds of what a message costs is its claim."""

from __future__ import annotations

from collections.abc import Sequence

from detent.clock import instant
from detent.model import Ask, Grants
from detent.stores.base import NOTE_PREFIX, PAUSE, RATE
from detent.stores.engine.record import Record, claim_of
from detent.stores.redis.driver import live_indexes
from detent.stores.redis.indexes import encoded
from detent.stores.redis.requests import where
from detent.stores.redis.session import Session
from detent.stores.redis.values import records_of


def take(session: Session, ask: Ask) -> tuple[Grants, Sequence[Record]] | None:
    """None: the engine has to answer.  The ask must neither name dead nodes nor leave out jobs."""
    queues = [encoded(queue) for queue in dict.fromkeys(ask.queues)]
    judged = [f"due:{tier}:{queue}" for queue in queues for tier in "jh"]
    claimed = live_indexes(ask.queues)
    others = [(index, " wall") for index in judged] + [(index, " steady") for index in (*claimed, "laned")]
    nothing: list[list[str | int]] = [["HKEYS", where(NOTE_PREFIX + kind)[0]] for kind in (PAUSE, RATE)]
    nothing += [["ZRANGEBYSCORE", index, "-inf", until, "LIMIT", 0, 1] for index, until in others]
    due = [*judged, *(f"due:p:{queue}" for queue in queues)]
    request = [ask.node, ask.number, ask.ttl_s, ask.limit, queues, nothing, due, claimed]
    seen, said = session.run(ask.app, "take", request)
    if not said:
        return None
    (look_at, expires), succeeded, words = said
    header, records = seen.header, records_of(words)
    times = [None if at is None else float(at) for at in succeeded]
    ends = [header.wall + one.ttl_s for one in records]
    claims = map(claim_of, records, ends, times)
    next_in_s = min(float(look_at) - header.wall, float(expires) - header.steady)
    return Grants(tuple(claims), instant(header.wall), next_in_s, header.epoch), records
