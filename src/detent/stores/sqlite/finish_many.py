"""Settles many plain reports with a few statements, in the SQLite store.

A report is plain if it ends its fire and nothing follows from it: no retry, no follow-up fires, no grace of a
lane, no late hook to delete, nothing that a breaker counts.  `finish` settles the other reports one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from detent.model import Outcome, Report
from detent.stores.base import BREAKER, app_of
from detent.stores.sqlite.jobs import SET_JOB
from detent.stores.sqlite.rows import outcome_column
from detent.stores.sqlite.transaction import Transaction


def end_batch(transaction: Transaction, reports: Sequence[Report]) -> set[int]:
    """Settle the plain reports.  Returns their places in `reports`."""
    if len({report.claim.fire.key for report in reports}) < len(reports):
        return set()  # the result of the second report of a key depends on the first
    by_outcome: dict[Outcome, dict[int, Report]] = {}
    disposed: dict[int, Report] = {}
    for place, report in enumerate(reports):
        ended, again_in_s, counts = report.verdict
        if again_in_s is None and counts and not report.follow:
            if report.claim.disposition:
                disposed[place] = report
            else:
                by_outcome.setdefault(ended, {})[place] = report
    places = {place for ended, some in by_outcome.items() for place in _end(transaction, ended, some)}
    return places.union(_end_disposed(transaction, disposed) if disposed else ())


def _end(transaction: Transaction, ended: Outcome, reports: Mapping[int, Report]) -> list[int]:
    has_succeeded, outcome = ended.kind == "succeeded", outcome_column(ended)
    rows = _found(transaction, has_succeeded, reports)
    found = [row for row in rows if row[2] == reports[row[0]].claim.fence]
    if not found:
        return []
    settled = [(id, number, reports[place]) for place, id, _, number, _ in found]
    attempts = [(id, report.status, report.took_s) for id, _, report in settled]
    transaction.db.execute(_END, (outcome, outcome, transaction.wall, json.dumps([id for id, *_ in settled])))
    transaction.db.execute(_ADD_ATTEMPTS, (transaction.wall, outcome, json.dumps(attempts)))
    transaction.fires.add_output([(id, number, report.tail, report.result) for id, number, report in settled])
    if has_succeeded:
        transaction.db.execute(_SUCCEED, (transaction.wall, json.dumps(list({row[4] for row in found}))))
    return [row[0] for row in found]


def _end_disposed(transaction: Transaction, reports: Mapping[int, Report]) -> list[int]:
    """End fires that were settled without an attempt."""
    given = [(place, one.claim.fire.key, one.claim.fence) for place, one in reports.items()]
    (text,) = transaction.one(_DISPOSED, json.dumps(given)) or ("[]",)
    found: list[list[int]] = json.loads(text)
    ends = {id: outcome_column(reports[place].verdict.outcome) for place, id in found}
    transaction.db.execute(_END_DISPOSED, (transaction.wall, json.dumps(ends)))
    return [place for place, _ in found]


def _found(transaction: Transaction, has_succeeded: bool, reports: Mapping[int, Report]) -> list[list[Any]]:
    """Place, id, fence, attempt and job of the reports whose fire is plain."""
    apps = {app_of(job) for job in {report.claim.fire.job for report in reports.values()}}
    notes = [name for app in apps for name in transaction.notes.controls(app) if name.startswith(BREAKER)]
    is_uncounted = has_succeeded and not notes  # no breaker counts a success while it has no errors
    keys = json.dumps({place: report.claim.fire.key for place, report in reports.items()})
    row = transaction.one(_FOUND, keys, is_uncounted)
    found: list[list[Any]] = json.loads(row[0]) if row else []
    return found


_FOUND = """
SELECT json_group_array(json_array(CAST(asked.key AS INTEGER), fires.id, fence, attempt, job))
FROM json_each(?) AS asked CROSS JOIN fires ON fires.key = asked.value
WHERE state = 'claimed' AND sentence IS NULL AND ran_fence = fence AND origin <> 'hook'
    AND (? OR instr(policy, '"breaker":') = 0) AND instr(policy, 'on_late') = 0
    AND (lane = '' OR instr(policy, '"grace_s":') = 0)
"""
_END = """
UPDATE fires SET state = 'over', waits = 0, outcome = ?, verdict = ?, again = NULL, counts = 1, over_at = ?
WHERE id IN (SELECT value FROM json_each(?))
"""
_SUCCEED = f"INSERT INTO jobs SELECT value, ?, NULL FROM json_each(?) WHERE true {SET_JOB}"
_DISPOSED = """
SELECT json_group_array(json_array(json_extract(given.value, '$[0]'), fires.id))
FROM json_each(?) AS given CROSS JOIN fires ON fires.key = json_extract(given.value, '$[1]')
WHERE fence = json_extract(given.value, '$[2]') AND state = 'claimed' AND sentence IS NOT NULL AND attempt = 0
    AND origin <> 'hook' AND instr(policy, '"breaker":') = 0 AND instr(policy, 'on_late') = 0
"""
_END_DISPOSED = """
UPDATE fires SET state = 'over', waits = 0, sentence = NULL, outcome = given, verdict = given, again = NULL,
    counts = 1, over_at = ?
FROM (SELECT CAST(key AS INTEGER) AS ended, value AS given FROM json_each(?)) WHERE id = ended
"""
_ADD_ATTEMPTS = """
INSERT OR REPLACE INTO attempts
SELECT fires.id, attempt, ran_node, ran_fence, ran_at, ?, ?,
    json_extract(given.value, '$[1]'), json_extract(given.value, '$[2]')
FROM json_each(?) AS given CROSS JOIN fires ON fires.id = json_extract(given.value, '$[0]')
"""
