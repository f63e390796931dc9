"""The store of one host: a SQLite file that its nodes, triggers and people share.

Every verb is one transaction, whatever the size of its batch; the file decides who comes first.  A
claim expires by the monotonic clock of this boot, and at once with the next one.  The rules are those
of `stores.base`, the answers those of `stores.memory`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from detent import clock
from detent.clock import instant
from detent.model import (
    Ask,
    Chart,
    Claim,
    Fire,
    Grants,
    Mark,
    Note,
    Outcome,
    Plan,
    Query,
    Report,
    Row,
    Verdict,
)
from detent.stores.base import PAUSE, REMEMBER_ASKS_S, app_of, continues, is_planned
from detent.stores.entry import attempt_of, row_of
from detent.stores.sqlite_call import Call, Clocks, boot_id
from detent.stores.sqlite_claim import claims_of, grant_again, grant_due, next_in_s
from detent.stores.sqlite_file import File
from detent.stores.sqlite_rows import Kept, attempt_of_row, note_of

LOOK_S, LOOK_MAX_S = 0.05, 0.2  # between two looks of one who waits: less often while nothing changes
PRUNE_MAX = 1000  # rows a transaction: others get their turn in between


class SqliteStore:
    def __init__(
        self,
        path: str | os.PathLike[str],
        wall: Callable[[], float] = clock.wall,
        monotonic: Callable[[], float] = clock.monotonic,
        boot_id: Callable[[], str] = boot_id,
    ) -> None:
        self._file, self._clocks = File(path), Clocks(wall, monotonic, boot_id())
        self._closing, self._heard = threading.Event(), 0  # 0: no ring was heard yet
        self._pause_s = LOOK_S

    # Planning.

    def adopt(self, app: str, seen: int, revisions: Mapping[str, str]) -> Chart:
        with self._writing() as call:
            chart = _chart(call, app, _marks(call, app))
            in_force = {job: mark.revision for job, mark in chart.marks.items()}
            if seen != chart.generation or revisions == in_force:
                return chart
            for job in {**chart.marks, **revisions}:
                _revise(call, job, chart.marks.get(job), revisions.get(job))
            call.db.execute(_SET_GENERATION, (app, seen + 1))
            return _chart(call, app, _marks(call, app))

    def advance(self, app: str, plans: Sequence[Plan]) -> Chart:
        with self._writing() as call:
            marks = {plan.job: mark for plan in plans if (mark := call.mark_of(plan.job))}
            for plan in plans:
                mark = marks.get(plan.job)
                if mark and mark.revision == plan.revision and continues(plan, mark.at):
                    for fire in plan.fires:
                        if (fire.first_at or fire.due_at) > mark.at:
                            call.record(fire, fire.due_at.timestamp())
                    marks[plan.job] = mark._replace(at=plan.until)
                    _set_mark(call, plan.job, marks[plan.job])
            return _chart(call, app, marks)

    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        with self._writing() as call:
            run_at = call.now() + delay_s
            fresh = [call.record(fire, run_at) for fire in fires]
            if any(fresh):
                call.ring()
            return fresh

    # Running.

    def claim(self, ask: Ask) -> Grants:
        with self._writing() as call:
            now = call.now()
            newest = call.one("SELECT number FROM asks WHERE node = ?", ask.node) or (0,)
            if call.is_calm and ask.number > newest[0]:
                seen = (ask.node, ask.number, call.monotonic)
                call.db.execute("INSERT OR REPLACE INTO asks VALUES (?, ?, ?)", seen)
                granted = grant_due(call, ask)
            else:
                granted = grant_again(call, ask)
            return Grants(claims_of(call, granted), instant(now), next_in_s(call, ask), call.world.era)

    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        with self._writing() as call:
            call.fetch(claim.fire.key for claim in claims)
            return [_renew(call, claim) for claim in claims]

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        with self._writing() as call:
            call.now()
            call.fetch(report.claim.fire.key for report in reports)
            verdicts = [_finish(call, report) for report in reports]
            call.save()
            if _lets_others_in(call, reports):
                call.ring()
            return verdicts

    def cancel(self, key: str, reason: str = "") -> bool:
        with self._writing() as call:
            call.now()
            entry = call.open_entry(key)
            if entry is None:
                return False
            entry.stop = Outcome("cancelled", reason)
            call.change(entry)
            if entry.state == "pending":
                _end(call, entry, entry.stop)
            call.ring()
            return True

    # Book-keeping.

    def find(self, query: Query) -> list[Row]:
        with self._file.reading() as link:
            call = Call(link, self._clocks)
            where, values = _condition(query)
            where += " ORDER BY due DESC, key DESC LIMIT ?"
            entries = list(call.select(where, (*values, query.limit)))
            _add_attempts(call, entries, whole=bool(query.key))
            return [row_of(entry, bool(query.key)) for entry in entries]

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        with self._writing() as call:
            now = call.now()
            _forget_the_expired(call)
        with self._file.reading() as link:
            found = iter(link.db.execute(_PRUNABLE, (app, now - older_than_s, keep, now, now)).fetchall())
        gone = 0
        while batch := list(islice(found, PRUNE_MAX)):
            with self._writing() as call:
                gone += sum(_prune(call, id, key, now) for id, key in batch)
        return gone

    def note(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        with self._writing() as call:
            if text:
                ends = (ttl_s, call.monotonic + ttl_s) if ttl_s else (None, None)
                values = (app, name, text, call.now(), *ends)
                call.db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?, ?)", values)
            else:
                call.db.execute("DELETE FROM notes WHERE app = ? AND name = ?", (app, name))
            if name.startswith(PAUSE):
                call.ring()

    def notes(self, app: str, prefix: str = "") -> list[Note]:
        with self._file.reading() as link:
            call = Call(link, self._clocks)
            if call.is_current:
                return _notes(call, app, prefix)
        with self._writing() as call:
            call.now()
            return _notes(call, app, prefix)

    def wait(self, app: str, seconds: float) -> bool:
        closing, until = self._closing, clock.monotonic() + seconds
        version = self._file.look(_VERSION)
        rings, self._heard = self._heard or self._file.look(_RINGS), self._file.look(_RINGS)
        if rings != self._heard:  # it rang after the last wait
            return True
        while (left := until - clock.monotonic()) > 0 and not closing.wait(min(left, self._pause_s)):
            seen, version = version, self._file.look(_VERSION)
            self._pause_s = min(self._pause_s * 1.1, LOOK_MAX_S) if seen == version else LOOK_S
            # Most changes are claims and outcomes that concern nobody who waits.
            if seen != version and (heard := self._file.look(_RINGS)) != rings:
                self._heard = heard
                return True
        return False

    def close(self) -> None:
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        self._file.close()

    @contextmanager
    def _writing(self) -> Iterator[Call]:
        with self._file.writing() as link:
            call = Call(link, self._clocks)
            call.arrive()
            yield call
            call.save()


# How a job's plan changes.


def _chart(call: Call, app: str, marks: Mapping[str, Mark]) -> Chart:
    generation = call.one("SELECT generation FROM apps WHERE app = ?", app) or (0,)
    return Chart(instant(call.now()), call.world.era, generation[0], marks)


def _marks(call: Call, app: str) -> dict[str, Mark]:
    rows = call.db.execute("SELECT job, at, revision FROM marks WHERE app = ?", (app,))
    return {job: Mark(instant(at), revision) for job, at, revision in rows}


def _revise(call: Call, job: str, mark: Mark | None, revision: str | None) -> None:
    if mark and mark.revision == revision:
        return
    now = instant(call.now())
    since = max(now, call.reached_of(job) or now)  # the clock may have been set back
    if mark:
        since = min(mark.at, since)
        # Nobody can have claimed what is planned after that.
        for entry in list(call.select(_NOT_YET_DUE, (job, since.timestamp(), since.timestamp()))):
            if is_planned(entry.fire):
                call.delete(entry.id)
    if revision is None:
        call.db.execute("DELETE FROM marks WHERE job = ?", (job,))
    else:
        _set_mark(call, job, Mark(since, revision))


def _set_mark(call: Call, job: str, mark: Mark) -> None:
    values = (job, app_of(job), mark.at.timestamp(), mark.revision)
    call.db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", values)


# What becomes of a claim.


def _renew(call: Call, claim: Claim) -> Outcome | None:
    entry = call.open_entry(claim.fire.key)
    if entry is None or entry.fence != claim.fence or not call.is_live(entry):
        return Outcome("lost", "no longer ours")
    entry.expires = call.monotonic + claim.ttl_s
    call.change(entry)
    return entry.stop


def _finish(call: Call, report: Report) -> Verdict | None:
    entry = call.entry(report.claim.fire.key)
    if entry is None or entry.fence != report.claim.fence:
        return None
    if entry.state == "claimed":
        _settle(call, entry, report)
    return entry.verdict


def _settle(call: Call, entry: Kept, report: Report) -> None:
    verdict, stop = report.verdict, entry.stop
    if verdict.counts and entry.attempt and not call.has_attempt(entry):
        call.add_attempt(entry, attempt_of(entry, report, call.now()))
        _keep_lane(call, entry)
    if not verdict.counts and entry.sentence is None:
        entry.attempt -= 1
    entry.sentence, entry.waits = None if verdict.counts else entry.sentence, False
    if verdict.again_in_s is None or stop:
        entry.verdict = Verdict(stop) if stop and verdict.again_in_s is not None else verdict
        _end(call, entry, entry.verdict.outcome)
        if entry.verdict == verdict:
            for fire in report.follow:
                call.record(fire, call.now())
    else:
        entry.state, entry.verdict = "pending", verdict
        entry.outcome = verdict.outcome if verdict.counts else entry.outcome
        entry.run_at = call.now() + verdict.again_in_s
    call.change(entry)


def _keep_lane(call: Call, entry: Kept) -> None:
    fire = entry.fire
    if fire.lane and fire.policy.grace_s and entry.sentence is None:
        ends = call.monotonic + fire.policy.grace_s
        call.db.execute("INSERT INTO graces VALUES (?, ?)", (fire.lane, ends))


def _end(call: Call, entry: Kept, outcome: Outcome) -> None:
    entry.state, entry.outcome, entry.over_at = "over", outcome, call.now()
    if outcome.kind == "succeeded" and entry.fire.origin != "hook":
        call.succeed(entry.fire.job, entry.over_at)
    call.drop_late_hooks(entry.fire)


def _lets_others_in(call: Call, reports: Sequence[Report]) -> bool:
    """Does somebody wait for a place that these reports freed, or for what they put?"""
    lanes = list({report.claim.fire.lane for report in reports} - {""})
    values = (json.dumps(lanes), call.now(), call.monotonic)
    return any(report.follow for report in reports) or call.one(_WAITS, *values) is not None


# Book-keeping.


def _condition(query: Query) -> tuple[str, tuple[Any, ...]]:
    """The state is written out, so that SQLite sees which of its indexes are enough."""
    origins = json.dumps(query.origins) if query.origins else ""
    since, until = query.since and query.since.timestamp(), query.until and query.until.timestamp()
    state = query.state if query.state in ("", "pending", "claimed", "over") else "none"
    parts: list[tuple[str, Any]] = [
        ("app = ?", query.app),
        ("job = ?", query.job),
        ("key = ?", query.key),
        (f"state = '{state}' AND state = ?", state),
        ("origin IN (SELECT value FROM json_each(?))", origins),
        ("due >= ?", since),
        ("due <= ?", until),
    ]
    given = [(text, value) for text, value in parts if value not in ("", None)]
    return " AND ".join(["1", *(text for text, _ in given)]), tuple(value for _, value in given)


def _add_attempts(call: Call, entries: Sequence[Kept], whole: bool) -> None:
    by_id = {entry.id: entry for entry in entries}
    statement = _ATTEMPTS_WITH_TAILS if whole else _ATTEMPTS
    for fire, *attempt in call.db.execute(statement, (json.dumps(list(by_id)),)):
        by_id[fire].attempts.append(attempt_of_row(tuple(attempt)))


def _notes(call: Call, app: str, prefix: str) -> list[Note]:
    ahead = call.wall - call.monotonic
    rows = call.db.execute(
        "SELECT name, text, written, expires FROM notes"
        " WHERE app = ? AND substr(name, 1, ?) = ? AND (expires IS NULL OR expires > ?) ORDER BY name",
        (app, len(prefix), prefix, call.monotonic),
    )
    return [note_of(row[:3], None if row[3] is None else row[3] + ahead) for row in rows]


def _prune(call: Call, id: int, key: str, now: float) -> bool:
    """What became of the row since it was found is looked at again: its id may be another's by now."""
    found = call.one(_STILL_PRUNABLE, id, key, now, now)
    if found is None:
        return False
    job, due, origin = found
    call.reach(job, due, origin)
    call.delete(id)
    return True


def _forget_the_expired(call: Call) -> None:
    call.db.execute("DELETE FROM asks WHERE asked_at <= ?", (call.monotonic - REMEMBER_ASKS_S,))
    call.db.execute("DELETE FROM graces WHERE until <= ?", (call.monotonic,))
    call.db.execute("DELETE FROM notes WHERE expires <= ?", (call.monotonic,))


_VERSION = "PRAGMA data_version"
_RINGS = "SELECT coalesce(max(rings), 0) FROM world"
_SET_GENERATION = (
    "INSERT INTO apps (app, generation) VALUES (?, ?)"
    " ON CONFLICT (app) DO UPDATE SET generation = excluded.generation"
)
_NOT_YET_DUE = "job = ? AND due > ? AND coalesce(first, due) > ? AND state = 'pending' AND attempt = 0"
_WAITS = """
SELECT 1 FROM json_each(?) AS lanes JOIN fires ON lane = lanes.value AND lane <> '' AND state <> 'over'
WHERE CASE state WHEN 'pending' THEN run_at <= ? ELSE expires <= ? END LIMIT 1
"""
_IS_TO_COME = "(origin = 'schedule' AND due > min(coalesce(at, ?), ?))"
_PRUNABLE = f"""
WITH ranked AS (
    SELECT id, key, job, due, origin, over_at,
           row_number() OVER (PARTITION BY job ORDER BY due DESC, key DESC) AS place
    FROM fires WHERE app = ? AND state = 'over'
)
SELECT id, key FROM ranked LEFT JOIN marks USING (job)
WHERE (over_at < ? OR place > ?) AND NOT {_IS_TO_COME}
"""
_STILL_PRUNABLE = f"""
SELECT job, due, origin FROM fires LEFT JOIN marks USING (job)
WHERE id = ? AND key = ? AND state = 'over' AND NOT {_IS_TO_COME}
"""
_ATTEMPTS = """
SELECT fire, number, node, fence, started, ended, outcome, status, took, NULL, result
FROM attempts LEFT JOIN results USING (fire, number)
WHERE fire IN (SELECT value FROM json_each(?)) ORDER BY fire, number
"""
_ATTEMPTS_WITH_TAILS = """
SELECT fire, number, node, fence, started, ended, outcome, status, took, tail, result
FROM attempts LEFT JOIN tails USING (fire, number) LEFT JOIN results USING (fire, number)
WHERE fire IN (SELECT value FROM json_each(?)) ORDER BY fire, number
"""
