"""Claims plain messages in one call, if there is nothing else to decide about: `lua/take.lua` refuses all
else, and the engine answers the ask.  It is for workers: two thirds of what a message costs is its claim."""

from __future__ import annotations

from detent.model import Ask, Grants
from detent.rules.decide import Decision, View
from detent.stores.base import NOTE_PREFIX, PAUSE, RATE
from detent.stores.engine.grouping import apply_decision
from detent.stores.engine.record import Record, claim_of
from detent.stores.redis.driver import live_indexes
from detent.stores.redis.indexes import encoded, indexes_of
from detent.stores.redis.requests import where
from detent.stores.redis.session import Session
from detent.stores.redis.values import Kept, fires_of


def take(session: Session, ask: Ask) -> tuple[Grants, list[Record]] | None:
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
    fence, (look_at, expires), succeeded, facts, texts = said
    header = seen.header
    records, view = list[Record](), View(header.wall, header.steady)
    for place, (fire, fact) in enumerate(zip(fires_of(texts), facts, strict=True)):
        run_at, number = fact.split(b" ")
        one = Kept(fire, float(run_at))
        apply_decision(Decision(fire.key, "run"), one, ask, view, -1 - place)
        one.id, one.version = int(number), seen.version
        one.take_fences(int(fence))
        one.indexes, one.until = indexes_of(one), one.expires
        records.append(one)
    success = {job.decode(): None if at is None else float(at) for job, at in succeeded}
    claims = [claim_of(one, header.wall + one.ttl_s, success[encoded(one.fire.job)]) for one in records]
    next_in_s = min(float(look_at) - header.wall, float(expires) - header.steady)
    return Grants(tuple(claims), view.now_at, next_in_s, header.epoch), records
