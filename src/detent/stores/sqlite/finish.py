"""What becomes of claims in the SQLite store: renewed, or their fires settled."""

from __future__ import annotations

import json
from collections.abc import Sequence

from detent.model import Claim, Outcome, Report, Verdict
from detent.rules.outcomes import CLAIM_GONE
from detent.stores.base import app_of
from detent.stores.record import attempt_of
from detent.stores.sqlite.finish_many import end_batch
from detent.stores.sqlite.limits import Gates
from detent.stores.sqlite.rows import Kept
from detent.stores.sqlite.transaction import Transaction


def renew(call: Transaction, claim: Claim) -> Outcome | None:
    entry = call.open_entry(claim.fire.key)
    if entry is None or entry.fence != claim.fence or not call.is_live(entry):
        return CLAIM_GONE
    entry.expires = call.monotonic + claim.ttl_s
    call.change(entry)
    return entry.stop


def finish(call: Transaction, reports: Sequence[Report]) -> list[Verdict | None]:
    ended = end_batch(call, reports)
    call.fetch(report.claim.fire.key for place, report in enumerate(reports) if place not in ended)
    verdicts = [
        report.verdict if place in ended else _finish(call, report) for place, report in enumerate(reports)
    ]
    call.save()
    if _lets_others_in(call, reports):
        call.wake()
    return verdicts


def _finish(call: Transaction, report: Report) -> Verdict | None:
    entry = call.entry(report.claim.fire.key)
    if entry is None or entry.fence != report.claim.fence:
        return None
    if entry.state == "claimed":
        _settle(call, entry, report)
    return entry.verdict


def _settle(call: Transaction, entry: Kept, report: Report) -> None:
    verdict, stop = report.verdict, entry.stop
    if entry.fire.policy.breaker:
        Gates(call, app_of(entry.fire.job)).leave(entry.fire, entry.ran[1], verdict.outcome)
    if verdict.counts and entry.attempt and not call.has_attempt(entry):
        call.add_attempt(entry, attempt_of(entry, report, call.now()))
        _keep_lane(call, entry)
    if not verdict.counts and entry.disposition is None:
        entry.attempt -= 1
    entry.disposition, entry.waits = None if verdict.counts else entry.disposition, False
    if verdict.again_in_s is None or stop:
        entry.verdict = Verdict(stop) if stop and verdict.again_in_s is not None else verdict
        end(call, entry, entry.verdict.outcome)
    else:
        entry.state, entry.verdict = "pending", verdict
        entry.outcome = verdict.outcome if verdict.counts else entry.outcome
        entry.run_at = call.now() + verdict.again_in_s
    call.change(entry)
    if entry.state == "over" and entry.verdict == verdict:
        for fire in report.follow:  # which may even take its place
            call.record(fire, call.now())


def _keep_lane(call: Transaction, entry: Kept) -> None:
    fire = entry.fire
    if fire.lane and fire.policy.grace_s and entry.disposition is None:
        ends = call.monotonic + fire.policy.grace_s
        call.db.execute("INSERT INTO graces VALUES (?, ?)", (fire.lane, ends))


def end(call: Transaction, entry: Kept, outcome: Outcome) -> None:
    entry.state, entry.outcome, entry.over_at = "over", outcome, call.now()
    if outcome.kind == "succeeded" and entry.fire.origin != "hook":
        call.succeed(entry.fire.job, entry.over_at)
    call.drop_late_hooks(entry.fire)


def _lets_others_in(call: Transaction, reports: Sequence[Report]) -> bool:
    """Does somebody wait for a place that these reports freed, or for what they put?"""
    lanes = list({report.claim.fire.lane for report in reports} - {""})
    if not lanes or any(report.follow for report in reports):
        return any(report.follow for report in reports)
    return call.one(_WAITS, json.dumps(lanes), call.now(), call.monotonic) is not None


_WAITS = """
SELECT 1 FROM json_each(?) AS lanes JOIN fires ON lane = lanes.value AND lane <> '' AND state <> 'over'
WHERE CASE state WHEN 'pending' THEN run_at <= ? ELSE expires <= ? END LIMIT 1
"""
