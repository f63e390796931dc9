"""Renews claims and settles their fires, in the SQLite store."""

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


def renew(transaction: Transaction, claim: Claim) -> Outcome | None:
    entry = transaction.fires.open_entry(claim.fire.key)
    if entry is None or entry.fence != claim.fence or not transaction.fires.is_live(entry):
        return CLAIM_GONE
    entry.expires = transaction.monotonic + claim.ttl_s
    transaction.fires.change(entry)
    return entry.stop


def finish(transaction: Transaction, reports: Sequence[Report]) -> list[Verdict | None]:
    ended = end_batch(transaction, reports)
    transaction.fires.fetch(
        report.claim.fire.key for place, report in enumerate(reports) if place not in ended
    )
    verdicts = [
        report.verdict if place in ended else _finish(transaction, report)
        for place, report in enumerate(reports)
    ]
    transaction.save()
    if _lets_others_in(transaction, reports):
        transaction.wake()
    return verdicts


def _finish(transaction: Transaction, report: Report) -> Verdict | None:
    entry = transaction.fires.entry(report.claim.fire.key)
    if entry is None or entry.fence != report.claim.fence:
        return None
    if entry.state == "claimed":
        _settle(transaction, entry, report)
    return entry.verdict


def _settle(transaction: Transaction, entry: Kept, report: Report) -> None:
    verdict, stop = report.verdict, entry.stop
    if entry.fire.policy.breaker:
        Gates(transaction, app_of(entry.fire.job)).leave(entry.fire, entry.ran[1], verdict.outcome)
    if verdict.counts and entry.attempt and not transaction.fires.has_attempt(entry):
        transaction.fires.add_attempt(entry, attempt_of(entry, report, transaction.now()))
        _keep_lane(transaction, entry)
    if not verdict.counts and entry.disposition is None:
        entry.attempt -= 1
    entry.disposition, entry.waits = None if verdict.counts else entry.disposition, False
    if verdict.again_in_s is None or stop:
        entry.verdict = Verdict(stop) if stop and verdict.again_in_s is not None else verdict
        end(transaction, entry, entry.verdict.outcome)
    else:
        entry.state, entry.verdict = "pending", verdict
        entry.outcome = verdict.outcome if verdict.counts else entry.outcome
        entry.run_at = transaction.now() + verdict.again_in_s
    transaction.fires.change(entry)
    if entry.state == "over" and entry.verdict == verdict:
        for fire in report.follow:  # a follow-up may have the same key
            transaction.fires.record(fire, transaction.now())


def _keep_lane(transaction: Transaction, entry: Kept) -> None:
    fire = entry.fire
    if fire.lane and fire.policy.grace_s and entry.disposition is None:
        ends = transaction.monotonic + fire.policy.grace_s
        transaction.db.execute("INSERT INTO graces VALUES (?, ?)", (fire.lane, ends))


def end(transaction: Transaction, entry: Kept, outcome: Outcome) -> None:
    entry.state, entry.outcome, entry.over_at = "over", outcome, transaction.now()
    if outcome.kind == "succeeded" and entry.fire.origin != "hook":
        transaction.jobs.succeed(entry.fire.job, entry.over_at)
    transaction.fires.drop_late_hooks(entry.fire)


def _lets_others_in(transaction: Transaction, reports: Sequence[Report]) -> bool:
    """Whether these reports freed a place that a fire waits for, or put new fires."""
    lanes = list({report.claim.fire.lane for report in reports} - {""})
    if not lanes or any(report.follow for report in reports):
        return any(report.follow for report in reports)
    return transaction.one(_WAITS, json.dumps(lanes), transaction.now(), transaction.monotonic) is not None


_WAITS = """
SELECT 1 FROM json_each(?) AS lanes JOIN fires ON lane = lanes.value AND lane <> '' AND state <> 'over'
WHERE CASE state WHEN 'pending' THEN run_at <= ? ELSE expires <= ? END LIMIT 1
"""
