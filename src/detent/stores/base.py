"""The interface of a store, and the rules that every store keeps.  `detent.testing.check_store` checks them.

Time.  Arguments are durations, results are instants by the store's clock.  A store never compares its clock
with a node's.  Claims expire by a clock that no step of the wall clock moves.  A retry that waits moves with
such a step.

Planning.
1. A key is recorded once.
2. The instants of a job are recorded in one chain of plans without a gap.  A plan moves the job's watermark
   only if it starts at or before it.  Nothing at or before the watermark is recorded, and a plan with a span
   of missed instants that crosses the watermark is refused.

Claims.
3. A fire has at most one live claim.  A lane has at most as many live claims to run as it has places.
4. A due fire that must not run is granted too, with the outcome to settle it with
   (`Claim.disposition`).  Such a claim takes no place in a lane and counts no attempt.  `rules.lanes`
   decides, for every store alike.
5. Only the newest claim of a fire renews or finishes it.  An expired claim renews nothing.
6. A claim call grants fires with expired claims first.  Then it grants due fires queue by queue, in the order
   of `Ask.queues`, the earliest first.  A queue with a rate (`RATE`) grants at most what its rate allows in
   any window.  A fire behind an open circuit breaker (`BREAKER`) is delayed (`rules.rates`,
   `rules.breakers`).

Failures.
7. Every call is idempotent, and stays safe if it arrives after its caller timed out.  A call that fails
   raises `StoreUnavailable`; the caller does not know whether it took effect.
8. Claim calls of one node instance are numbered.  The same number returns the same claims, renewed; a lower
   number grants nothing new.
9. A fence is an integer below 2^53 that grows by one with each claim of an app.  A store that may have lost
   data begins a new epoch: the fence leaps to max(fence + 2^22, seconds since 2020 * 2^22), which is above
   every fence that was ever granted.  Nothing is granted until every claim of the old epoch has expired.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol

from detent.errors import UsageError
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
    Watermarks,
)

SINCE_2020_S = 1_577_836_800  # 2020-01-01T00:00:00Z
FENCE_SHIFT = 22
LOOK_MAX = 20_000  # fires that one `find` examines
NEWEST_JOBS_MAX, NEWEST_EACH_MAX = 1_000, 100  # jobs of one `newest`, and fires of each
REMEMBER_ASKS_S = 86_400.0  # how long the number of an instance's last claim call is kept
HEARTBEAT_TTL_S = 30.0  # a node without a heartbeat for this long counts as dead
ORPHANS_TTL_S = 30.0  # the quarantine of a store that forgot even the longest ttl of its claims
PROBE, PROBE_TTL_S = "probe", 60.0  # the note that `probe` writes
RETURN_S = 3600.0  # a removed job that returns within this time continues its plan

# Prefixes of the names of cells.
NOTE_PREFIX = "note/"
LANE_PREFIX = "lane/"
CHARGE_PREFIX = "charge/"  # + queue or rate key: the charges of a rate

# Prefixes of the names of notes.
NODE = "node/"  # + instance: the node's heartbeat
PAUSE = "pause/"  # + job: the job is paused
RATE = "rate/"  # + queue: the queue's rate
HOLDS = "holds/"  # + instance: the digest of the list of jobs that the node has
JOBS = "jobs/"  # + digest: a list of jobs (`node.holders`)
TRIGGERED = "triggered/"  # + job: a host's scheduler fires the job
GONE = "gone/"  # + job: the watermark of a removed job
ALERT = "alert/"  # + job / hook: what the address of this alert knows of the job (`rules.alerts`)
BREAKER = "breaker/"  # + breaker: its state; no note: closed, without errors


class Store(Protocol):
    # Planning.

    def set_jobs(self, app: str, seen: int, revisions: Mapping[str, str]) -> Watermarks:
        """Replace the app's jobs, unless its generation is no longer `seen`.

        A new job starts now.  A job that was removed less than `RETURN_S` ago continues its plan.  A changed
        job withdraws its planned fires that were never claimed, and is planned again from the first of them:
        the work and the policy of a fire come from one revision.  It never goes back behind the newest
        instant that was claimed, cancelled or pruned (`resume_at`).  The planned fires of a removed job stay,
        and are cancelled when they are due."""

    def look(self, app: str) -> Watermarks:
        """Read the watermarks of all jobs.  Changes nothing, and waits for no other call."""

    def advance(self, app: str, plans: Sequence[Plan]) -> Watermarks:
        """Record the plans that continue their job's watermark, and move the watermark to their end.

        Returns the watermarks of these jobs only, because an app may have a hundred thousand."""

    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        """Record unscheduled fires, due in `delay_s`.  Returns for each whether its key was new.

        A fire with `unique_s` replaces a finished fire of its key that was due that long ago or did not
        succeed."""

    # Running.

    def claim(self, ask: Ask) -> Grants:
        """Claim due fires, to run or to settle.  A repeated ask returns the same claims."""

    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        """Extend each claim by its ttl.  Returns None to continue, or the outcome to stop the work with."""

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        """Settle the fires of these claims and record their follow-up fires, in one step.

        Returns the verdict that stands, also when repeated; None if a newer claim has the fire.  A fire that
        was cancelled is not retried."""

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        """`finish`, then `claim`; in one round trip and one commit if the store can."""

    def cancel(self, key: str, reason: str = "", cause: Cause = "stopped") -> bool:
        """End a pending fire, or ask the node that claimed it to stop.  False: no such open fire."""

    # Queues.

    def charge(self, app: str, name: str, rate: Rate, count: int = 1) -> Usage:
        """Count one use under this name if the rate allows it; with `count` 0, only report the usage.

        A refused use is not counted, and the result says when one is allowed.  The name of a queue's own
        uses is the queue, followed by a slash and the key if its rate is per key."""

    def reset(self, app: str, name: str) -> None:
        """Forget the uses that were counted under this name."""

    def forget(self, keys: Sequence[str]) -> int:
        """Delete those of these fires that are finished and unscheduled.  Returns how many."""

    def count(self, app: str, queues: Sequence[str] = ()) -> dict[str, Size]:
        """Count the messages of these queues, or of all queues of the app.  May leave out an empty queue."""

    # Records.

    def find(self, query: Query) -> Found:
        """Find fires, the latest due first; with `upcoming`, the waiting ones, the next first.

        Examines at most `LOOK_MAX` fires and returns where to continue.  With `upcoming` it examines all
        fires of the queues that the query names."""

    def newest(self, app: str, jobs: Sequence[str], each: int = 20) -> dict[str, list[Row]]:
        """Read the newest fires of each of these jobs that are due now or earlier, the latest due first.

        Rows have no attempts.  A job of another app, or without fires, has an empty list.  At most
        `NEWEST_JOBS_MAX` jobs, and `NEWEST_EACH_MAX` fires of each."""

    def tally(self, app: str, since: datetime, until: datetime, step_s: int = 60) -> list[Tally]:
        """Count the fires that ended in each interval of `step_s`, a multiple of 60 (`rules.tallies`).

        Fires that were pruned may be missing; Redis keeps the numbers of 48 hours."""

    def apps(self) -> list[str]:
        """The names of the apps that have jobs, unfinished fires or notes, sorted.  May include apps that
        once had some."""

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        """Delete finished fires that ended that long ago, and all but the newest `keep` of each job.

        Never deletes an unfinished fire, nor an instant after now or after its job's watermark.  `keep` does
        not apply to messages that failed, whose key is still unique, or whose result is still kept
        (`result_s`).  Returns how many were deleted."""

    def note(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        """Write a note that expires after `ttl_s` (0: never).  An empty text deletes it."""

    def notes(self, app: str, prefix: str = "") -> list[Note]:
        """The notes whose name starts with the prefix, sorted by name."""

    def wait(self, app: str, seconds: float) -> bool:
        """Block until a node should call `claim`: a fire was put or cancelled, a job was paused, or a place
        in a lane became free.  Returns False after `seconds`.  A hint only: wake-ups can be lost or
        spurious."""

    def close(self) -> None:
        """Close the connections.  A later call opens new ones."""


class Diagnosis(NamedTuple):
    """One row of `detent doctor`.  `stores.registry` finds the checks of each kind of store."""

    what: str
    state: Literal["ok", "weak", "bad"]
    found: str
    consequence: str = ""
    advice: str = ""


def probe(store: Store, app: str) -> None:
    """Raise if the store accepts no writes.  A full or read-only store still answers reads."""
    store.note(app, PROBE, "written to see whether the store accepts writes", PROBE_TTL_S)


def find_all(store: Store, query: Query) -> list[Row]:
    """Repeat `find` until the query's limit is reached or nothing is left."""
    found = store.find(query)
    rows = [*found]
    while found.before and len(rows) < query.limit:
        found = store.find(query._replace(before=found.before, limit=query.limit - len(rows)))
        rows += found
    return rows


# Rules that the stores written in Python share.


def app_of(job: str) -> str:
    return job.partition(".")[0]


def check_newest(jobs: Sequence[str], each: int) -> None:
    """Raise if `Store.newest` does not allow so many."""
    if len(jobs) > NEWEST_JOBS_MAX or not 1 <= each <= NEWEST_EACH_MAX:
        raise UsageError(
            f"cannot read the newest {each:,} fires of {len(jobs):,} jobs in one call: at most "
            f"{NEWEST_JOBS_MAX:,} jobs, and 1 to {NEWEST_EACH_MAX} fires of each; use several calls"
        )


def concerns(fire: Fire, ask: Ask) -> bool:
    return app_of(fire.job) == ask.app and fire.queue in ask.queues


def continues(plan: Plan, watermark_at: datetime) -> bool:
    """Whether the plan starts at or before the watermark, ends after it, and cuts no span in two."""
    cut = any(fire.instants > 1 and fire.first_at and fire.first_at <= watermark_at for fire in plan.fires)
    return plan.since <= watermark_at < plan.until and not cut


def resume_at(
    now: datetime, ended_at: datetime | None, reached_at: datetime | None, first_at: datetime | None
) -> datetime:
    """Where the plan of a new or changed job starts.

    `ended_at`: its watermark before; None for a job that is new or was removed long ago, which starts now.
    `reached_at`: its newest instant that was claimed, cancelled or pruned; it may be in the future if the
    clock was set back.  `first_at`: its oldest recorded instant after that which was never claimed.
    """
    latest = max(now, reached_at or now)
    if ended_at and first_at and first_at <= now:
        before = first_at - timedelta(seconds=1)  # instants are whole seconds
        latest = max(before, reached_at or before)
    return min(latest, ended_at or latest)


def is_hook(fire: Fire) -> bool:
    return fire.origin == "hook"


def is_repeated_alert(fire: Fire) -> bool:
    """Whether it is an alert that is not sent for each fire."""
    return is_hook(fire) and fire.policy.remind_s > 0


def alert_note(hook: Fire) -> str:
    """The name of the note with the state of this alert."""
    return f"{ALERT}{hook.job}/{hook.key.rpartition('/')[2]}"


def is_planned(fire: Fire) -> bool:
    """Whether a plan recorded it: a scheduled instant, or the `on_late` hook of one."""
    hook = fire.key.rpartition("/")[2] if is_hook(fire) else ""
    return fire.origin == "schedule" or hook.startswith("on_late")


def is_spent(fire: Fire, old: Fire, ended: Outcome, now: float) -> bool:
    """Whether this fire may replace a fire of its key with this outcome."""
    unique_s = fire.policy.unique_s
    return unique_s > 0 and (ended.kind != "succeeded" or old.due_at.timestamp() + unique_s <= now)


def leap(fence: int, now: float) -> int:
    """Where the fences of a new epoch start: above every fence of an earlier one."""
    return max(fence + (1 << FENCE_SHIFT), int(now - SINCE_2020_S) << FENCE_SHIFT)
