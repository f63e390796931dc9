"""The reference: decides about every due fire, without bounds, in one process.

`wall` decides what is due, `monotonic` when a claim expires.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from detent import clock
from detent.clock import instant
from detent.model import (
    Ask,
    Cause,
    Claim,
    Fire,
    Found,
    Grants,
    Note,
    Outcome,
    Plan,
    Query,
    Rate,
    Report,
    Row,
    Size,
    Tally,
    Usage,
    Verdict,
    Watermark,
    Watermarks,
)
from detent.rules.decide import SETTLED_MAX
from detent.rules.lanes import Facts, Judgement, OpenFire, judge
from detent.rules.outcomes import CLAIM_GONE, replaced_by
from detent.rules.pings import ping_delay_s, start_ping_of
from detent.rules.tallies import counted, in_order, intervals
from detent.rules.trust import STEP_S
from detent.stores.base import (
    BREAKER,
    GONE,
    ORPHANS_TTL_S,
    PAUSE,
    RATE,
    REMEMBER_ASKS_S,
    RETURN_S,
    app_of,
    check_newest,
    concerns,
    continues,
    is_hook,
    is_planned,
    is_spent,
    leap,
    resume_at,
)
from detent.stores.search import newest, sizes
from detent.testing.reference.index import Graces, Index, Wakeups
from detent.testing.reference.limits import Gates
from detent.testing.reference.notes import Notes
from detent.testing.reference.record import (
    Entry,
    attempt_of,
    claim_of,
    found,
    is_nominal,
    open_fire,
    prunable,
    row_of,
    sort_key,
)


class ReferenceStore:
    def __init__(
        self, wall: Callable[[], float] = clock.wall, monotonic: Callable[[], float] = clock.monotonic
    ) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._wakeups, self._index = Wakeups(), Index()
        self._changed, self._wake = self._wakeups.lock, self._wakeups.wake
        self._entries, self._open, self._lanes = self._index.entries, self._index.open, self._index.lanes
        self._watermarks: dict[str, Watermark] = {}
        self._reached: dict[str, datetime] = {}  # job -> newest instant claimed, cancelled or pruned
        self._generations: dict[str, int] = {}
        self._successes: dict[str, float] = {}
        self._graces = Graces(monotonic)
        self._asks: dict[str, tuple[int, float]] = {}  # instance -> its newest ask, and when
        self._notes = Notes(wall, monotonic)
        self._gates = Gates(self._notes, wall, monotonic)
        self._fences: dict[str, int] = {}
        self._epoch = 1
        self._longest_ttl_s = self._quarantined_until = 0.0
        self._offset = wall() - monotonic()

    # Planning.

    def set_jobs(self, app: str, seen: int, revisions: Mapping[str, str]) -> Watermarks:
        with self._changed:
            by_job = self._read_watermarks(app).by_job
            in_force = {job: watermark.revision for job, watermark in by_job.items()}
            if seen == self._generations.get(app, 0) and revisions != in_force:
                for job in {**by_job, **revisions}:
                    self._revise(job, revisions.get(job))
                self._generations[app] = seen + 1
                self._wake()
            return self._read_watermarks(app)

    def look(self, app: str) -> Watermarks:
        with self._changed:
            return self._read_watermarks(app)

    def advance(self, app: str, plans: Sequence[Plan]) -> Watermarks:
        with self._changed:
            for plan in plans:
                watermark = self._watermarks.get(plan.job)
                if watermark and watermark.revision == plan.revision and continues(plan, watermark.at):
                    for fire in plan.fires:
                        if (fire.first_at or fire.due_at) > watermark.at:
                            self._record(fire, fire.due_at.timestamp())
                    self._watermarks[plan.job] = watermark._replace(at=plan.until)
            known = [plan.job for plan in plans if plan.job in self._watermarks]
            by_job = {job: self._watermark_of(job) for job in known}
            return self._read_watermarks(app)._replace(by_job=by_job)

    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        with self._changed:
            fresh = [self._record(fire, self._now() + delay_s) for fire in fires]
            self._wake()
            return fresh

    # Running.

    def claim(self, ask: Ask) -> Grants:
        with self._changed:
            now, is_quarantined = self._now(), self._monotonic() < self._quarantined_until
            if not is_quarantined and ask.number > self._asks.get(ask.node, (0, 0.0))[0]:
                self._asks[ask.node] = ask.number, self._monotonic()
                self._declare_dead(ask.dead)
                self._grant_due(ask, now)
            claims = []
            for entry in self._open.values():
                if entry.node == ask.node and entry.ask == ask.number and self._live(entry):
                    entry.expires = self._monotonic() + entry.ttl_s
                    success = self._successes.get(entry.fire.job)
                    claims.append(claim_of(entry, now + entry.ttl_s, success))
            return Grants(tuple(claims), instant(now), self._next_in_s(ask, now), str(self._epoch))

    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        with self._changed:
            return [self._renew(claim) for claim in claims]

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        with self._changed:
            return [self._finish(report) for report in reports]

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        return self.finish(reports), self.claim(ask)

    def charge(self, app: str, name: str, rate: Rate, count: int = 1) -> Usage:
        with self._changed:
            return self._gates.charge(app, name, rate, count)

    def reset(self, app: str, name: str) -> None:
        with self._changed:
            self._gates.reset(app, name)
            self._wake()

    def forget(self, keys: Sequence[str]) -> int:
        with self._changed:
            those = [entry for key in keys if (entry := self._entries.get(key))]
            return self._drop([e for e in those if e.state == "over" and e.fire.origin != "schedule"])

    def count(self, app: str, queues: Sequence[str] = ()) -> dict[str, Size]:
        with self._changed:
            return sizes(self._entries.values(), app, queues, self._now())

    def cancel(self, key: str, reason: str = "", cause: Cause = "stopped") -> bool:
        with self._changed:
            if not (entry := self._open.get(key)):
                return False
            entry.stop = Outcome("cancelled", reason, cause)
            if entry.state == "pending":
                self._reach(entry.fire)
                self._end(entry, entry.stop)
            self._wake()
            return True

    # Records.

    def find(self, query: Query) -> Found:
        with self._changed:
            return found(self._entries.values(), query)

    def newest(self, app: str, jobs: Sequence[str], each: int = 20) -> dict[str, list[Row]]:
        check_newest(jobs, each)
        with self._changed:
            ours = [job for job in jobs if app_of(job) == app]
            some = newest(self._entries.values(), ours, each, self._now())
            rows = {job: [row_of(entry, False)._replace(attempts=()) for entry in some[job]] for job in ours}
            return {job: rows.get(job, []) for job in jobs}

    def tally(self, app: str, since: datetime, until: datetime, step_s: int = 60) -> list[Tally]:
        with self._changed:
            ours = [entry for entry in self._entries.values() if app_of(entry.fire.job) == app]
            over = [entry for entry in ours if entry.state == "over"]
            return in_order(counted(over, intervals(since, until, step_s)))

    def apps(self) -> list[str]:
        with self._changed:
            jobs = (*self._watermarks, *(entry.fire.job for entry in self._entries.values()))
            return sorted({*map(app_of, jobs), *self._notes.apps()})

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        with self._changed:
            ours = [entry for entry in self._entries.values() if app_of(entry.fire.job) == app]
            gone = prunable(ours, self._watermarks, self._now(), (older_than_s, keep))
            since = self._monotonic() - REMEMBER_ASKS_S
            self._asks = {node: ask for node, ask in self._asks.items() if ask[1] > since}
            return self._drop(gone)

    def note(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        with self._changed:
            self._notes.write(app, name, text, ttl_s)
            if name.startswith((PAUSE, RATE, BREAKER)):
                self._wake()

    def notes(self, app: str, prefix: str = "") -> list[Note]:
        with self._changed:
            return self._notes.under(app, prefix)

    def wait(self, app: str, seconds: float) -> bool:
        return self._wakeups.wait(seconds)

    def close(self) -> None: ...

    # Time.

    def _now(self) -> float:
        """The wall clock.  If it was set, retries and delays move with it, because they are durations."""
        now = self._wall()
        step = now - self._monotonic() - self._offset
        self._offset += step
        if abs(step) > STEP_S:
            for entry in self._open.values():
                if entry.state == "pending" and not is_nominal(entry):
                    entry.run_at += step
        return now

    # Changing a plan.

    def _read_watermarks(self, app: str) -> Watermarks:
        ours = [job for job in self._watermarks if app_of(job) == app]
        by_job = {job: self._watermark_of(job) for job in ours}
        now, left_s = self._now(), self._quarantined_until - self._monotonic()
        quarantine = instant(now + left_s) if left_s > 0 else None
        return Watermarks(instant(now), str(self._epoch), self._generations.get(app, 0), by_job, quarantine)

    def _watermark_of(self, job: str) -> Watermark:
        success = self._successes.get(job)
        return self._watermarks[job]._replace(succeeded_at=None if success is None else instant(success))

    def _revise(self, job: str, revision: str | None) -> None:
        watermark, app = self._watermarks.get(job), app_of(job)
        if watermark and watermark.revision == revision:
            return
        if revision is None:
            self._notes.write(app, GONE + job, str(self._watermarks.pop(job).at.timestamp()), RETURN_S)
            return
        gone, reached = self._notes.read(app, GONE + job), self._reached.get(job)
        ended_at = watermark.at if watermark else instant(float(gone)) if gone else None
        planned = self._unattempted(job)
        starts = [e.fire.first_at or e.fire.due_at for e in planned if e.fire.origin == "schedule"]
        first_at = min((at for at in starts if not reached or at > reached), default=None)
        since = resume_at(instant(self._now()), ended_at, reached, first_at)
        self._withdraw(planned, since if ended_at else None)
        self._watermarks[job] = Watermark(since, revision)
        self._notes.write(app, GONE + job, "")

    def _withdraw(self, planned: Sequence[Entry], since: datetime | None) -> None:
        """Delete the fires that were planned after this instant; None: all, because the job is new."""
        for entry in planned:
            if since is None or (entry.fire.first_at or entry.fire.due_at) > since:
                self._index.remove(entry)

    def _unattempted(self, job: str) -> list[Entry]:
        """The planned fires of this job that were never claimed."""
        ours = (entry for entry in self._open.values() if entry.fire.job == job)
        return [e for e in ours if e.state == "pending" and not e.attempt and is_planned(e.fire)]

    def _record(self, fire: Fire, run_at: float) -> bool:
        if old := self._entries.get(fire.key):
            ended = old.outcome if old.state == "over" else None
            if not ended or not is_spent(fire, old.fire, ended, self._now()):
                return False
        self._longest_ttl_s = max(self._longest_ttl_s, fire.policy.claim_s)
        self._index.add(Entry(fire, run_at))
        return True

    # Granting.

    def _declare_dead(self, instances: Sequence[str]) -> None:
        for entry in self._open.values():
            if entry.node in instances and self._live(entry):
                entry.expires = self._monotonic()
                self._wake()

    def _grant_due(self, ask: Ask, now: float) -> None:
        left, dispositions = {False: ask.limit, True: ask.hooks}, SETTLED_MAX
        lanes: dict[str, list[OpenFire]] = {}  # what was read of each lane, until one of its fires changes
        for entry in self._due_entries(ask, now):
            if entry.fire.key not in self._open:
                continue  # a late hook that was deleted when its fire started
            kind, decision = is_hook(entry.fire), self._decide(entry, now, lanes)
            for key in decision.stop:
                self._open[key].stop = replaced_by(entry.fire.key)
                self._wake()
            if decision.step == "wait":
                entry.waits = True
            elif decision.step == "settle" and dispositions:
                entry.disposition, dispositions = decision.disposition, dispositions - 1
                self._grant(entry, ask)
            elif decision.step == "run" and left[kind] and entry.fire.job not in ask.without:
                left[kind] -= self._let_in(entry, ask, now)
            elif not decision.stop:
                continue
            lanes.pop(entry.fire.lane, None)

    def _let_in(self, entry: Entry, ask: Ask, now: float) -> bool:
        """Grant it to run if its queue's rate and its breaker allow it.  Hooks have neither."""
        if not is_hook(entry.fire):
            if self._gates.closed_s(ask.app, entry.fire.queue):
                return False
            if wait_s := self._gates.wait_s(entry.fire, self._runs):
                entry.run_at = now + wait_s
                return False
        self._grant(entry, ask)
        return True

    def _runs(self, key: str) -> bool:
        entry = self._open.get(key)
        return entry is not None and self._live(entry) and entry.disposition is None

    def _due_entries(self, ask: Ask, now: float) -> list[Entry]:
        due = [e for e in self._open.values() if concerns(e.fire, ask) and self._due(e, now)]
        places = {queue: place for place, queue in enumerate(ask.queues)}
        return sorted(due, key=lambda e: sort_key(e, places))

    def _decide(self, entry: Entry, now: float, lanes: dict[str, list[OpenFire]]) -> Judgement:
        fire, watermark = entry.fire, self._watermarks.get(entry.fire.job)
        rivals = reversed(self._index.jobs.get(fire.job, {}).values())  # newest first
        facts = Facts(
            now=instant(now),
            planned_until=watermark.at if watermark else None,
            paused=self._notes.read(app_of(fire.job), PAUSE + fire.job),
            newer_due=any(e.fire.due_at > fire.due_at and e.fire.due_at.timestamp() <= now for e in rivals),
            graces=len(self._graces.ends(fire.lane)),
        )
        monotonic = self._monotonic()
        if fire.lane not in lanes:
            lanes[fire.lane] = [open_fire(e, now, monotonic) for e in self._lanes.get(fire.lane, {}).values()]
        return judge(open_fire(entry, now, monotonic), lanes[fire.lane], facts)

    def _live(self, entry: Entry) -> bool:
        return entry.state == "claimed" and entry.expires > self._monotonic()

    def _due(self, entry: Entry, now: float) -> bool:
        return entry.expires <= self._monotonic() if entry.state == "claimed" else entry.run_at <= now

    def _next_in_s(self, ask: Ask, now: float) -> float:
        monotonic = self._monotonic()
        if monotonic < self._quarantined_until:
            return self._quarantined_until - monotonic
        ours = (e for e in self._open.values() if concerns(e.fire, ask))
        waits = (e.expires - monotonic if e.state == "claimed" else e.run_at - now for e in ours)
        rates = (self._gates.closed_s(ask.app, queue) for queue in ask.queues)
        lanes = {e.fire.lane for e in self._open.values() if concerns(e.fire, ask) and e.waits}
        graces = (until - monotonic for lane in lanes for until in self._graces.ends(lane))
        soon = [wait for wait in (*waits, *graces, *rates) if wait > 0]
        return min(soon, default=float("inf"))

    # Claims.

    def _grant(self, entry: Entry, ask: Ask) -> None:
        app = app_of(entry.fire.job)
        if app not in self._fences:
            self._fences[app] = leap(0, self._now())
        self._fences[app] += 1
        entry.state, entry.node, entry.ask, entry.fence = "claimed", ask.node, ask.number, self._fences[app]
        entry.ttl_s = ask.ttl_s or entry.fire.policy.claim_s
        entry.expires = self._monotonic() + entry.ttl_s
        self._longest_ttl_s = max(self._longest_ttl_s, entry.ttl_s)
        self._reach(entry.fire)
        if entry.disposition is None:
            entry.attempt += 1
            entry.ran = entry.node, entry.fence, self._now()
            if not is_hook(entry.fire):
                self._gates.enter(entry.fire)
            self._index.drop_late_hooks(entry.fire)

    def _reach(self, fire: Fire) -> None:
        """Remember this instant, so that it is not recorded again if the clock is set back."""
        if fire.origin == "schedule":
            self._reached[fire.job] = max(fire.due_at, self._reached.get(fire.job, fire.due_at))

    def _drop(self, gone: Sequence[Entry]) -> int:
        for entry in gone:
            self._reach(self._entries.pop(entry.fire.key).fire)
        return len(gone)

    def _renew(self, claim: Claim) -> Outcome | None:
        entry = self._open.get(claim.fire.key)
        if entry is None or entry.fence != claim.fence or not self._live(entry):
            return CLAIM_GONE
        entry.expires = self._monotonic() + claim.ttl_s
        return entry.stop

    def _finish(self, report: Report) -> Verdict | None:
        entry = self._entries.get(report.claim.fire.key)
        if entry is None or entry.fence != report.claim.fence:
            return None
        if entry.state == "claimed":
            self._settle(entry, report)
        return entry.verdict

    def _settle(self, entry: Entry, report: Report) -> None:
        verdict, stop = report.verdict, entry.stop
        self._gates.leave(entry.fire, verdict.outcome)
        if verdict.counts and entry.attempt > len(entry.attempts):
            entry.attempts.append(attempt_of(entry, report, self._now()))
            if entry.fire.lane and entry.fire.policy.grace_s and entry.disposition is None:
                self._graces.keep(entry.fire.lane, entry.fire.policy.grace_s)
        if not verdict.counts and entry.disposition is None:
            entry.attempt -= 1
        entry.disposition, entry.waits = entry.disposition if not verdict.counts else None, False
        if verdict.again_in_s is None or stop:
            entry.verdict = Verdict(stop) if stop and verdict.again_in_s is not None else verdict
            self._end(entry, entry.verdict.outcome)
            self._gates.leave_alert(entry.fire, entry.verdict.outcome)
            self._follow(report.claim.fire, report.follow if entry.verdict == verdict else ())
        else:
            entry.state, entry.verdict = "pending", verdict
            entry.outcome = verdict.outcome if verdict.counts else entry.outcome
            entry.run_at = self._now() + verdict.again_in_s
        lane, now = self._lanes.get(entry.fire.lane, {}), self._now()
        if report.follow or any(self._due(e, now) for e in lane.values()):
            self._wake()

    def _follow(self, fire: Fire, follow: Sequence[Fire]) -> None:
        start = self._open.get(start_ping_of(fire))
        if start and start.state == "pending":
            self._index.remove(start)
        is_being_sent = start is not None and start.state == "claimed"
        for one in follow:
            if hook := self._gates.alert(one):
                self._record(hook, self._now() + ping_delay_s(hook, is_being_sent))

    def _end(self, entry: Entry, outcome: Outcome) -> None:
        entry.state, entry.outcome, entry.over_at = "over", outcome, self._now()
        if outcome.kind == "succeeded" and entry.fire.origin != "hook":
            self._successes[entry.fire.job] = entry.over_at
        self._index.close(entry)
        self._index.drop_late_hooks(entry.fire)

    def _new_epoch(self) -> None:
        """The store may have lost data: raise the fences, and grant nothing while an old claim may live."""
        self._epoch += 1
        now = self._now()
        self._fences = {app: leap(fence, now) for app, fence in self._fences.items()}
        least_s = 0.0 if self._fences else ORPHANS_TTL_S
        self._quarantined_until = self._monotonic() + max(self._longest_ttl_s, least_s)
