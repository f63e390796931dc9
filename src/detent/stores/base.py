"""The store seam: shared truth about fires.

Rules of every store, by its own clock; `detent.testing.check_store` checks them:

1. A key is recorded once.  A job's instants are recorded in one unbroken chain of plans: only a
   plan that starts at or before the job's watermark moves it, nothing at or before the watermark is recorded,
   and a plan whose span of missed instants would cross the watermark is refused.
2. A fire has at most one live claim; a lane has no more live claims to run than its width.
3. A fire that is due and may not run is granted too, with a sentence.  Such a claim takes no lane
   and makes no attempt; the sentence stays with the fire until a node has settled it.
   `rules.lanes` decides; it is pure, and the same for every store.
4. Only the newest claim of a fire renews or finishes it.  An expired one renews nothing.  `finish`
   answers with the verdict that stands, also when repeated.
5. Every call may be repeated, and may arrive late, after its caller has given it up.  Asks are
   numbered within one life of a node: the same number gets the same grants, renewed; an older one
   gets nothing new.
6. A fence is one integer below 2^53 for each app, +1 for every claim.  In a new epoch it first leaps to
   max(fence + 2^22, seconds since 2020 × 2^22), above all that was granted and forgotten even where
   the clock was set back, and nothing is granted until every claim of the old epoch may have expired.
7. An ask is granted its sentences for expired claims first, then what is due queue by queue in the order
   in which it names them, by instant.  A queue with a rate (`RATE`) grants no more in any window than it
   says, and a fire behind a circuit breaker (`BREAKER`) is put off while that is open: `rules.rates`,
   `rules.breakers`.
8. Durations go in, instants come out: no store compares its clock with a node's.  A claim expires by
   a clock that no step of the wall clock moves; a retry that waits moves with such a step.

A call that fails raises `StoreUnavailable`; whether it was carried out is then unknown.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol

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
    Usage,
    Verdict,
    Watermarks,
)

SINCE_2020_S = 1_577_836_800  # 2020-01-01T00:00:00Z
FENCE_SHIFT = 22
DISPOSITIONS_MAX = 200  # granted with one ask, on top of its limit
LOOK_MAX = 20_000  # fires that one `find` examines
REMEMBER_ASKS_S = 86_400.0  # how long the newest number of a silent life is kept
HEARTBEAT_TTL_S = 30.0  # a node that wrote no heartbeat for this long counts as dead
ORPHANS_TTL_S = 30.0  # so long nodes may trust claims of which the store forgot even how long they live
NODE = "node/"  # a note of this name and a life's is that node's heartbeat
PAUSE = "pause/"  # a note of this name and a job's pauses its schedule
RATE = "rate/"  # a note of this name and a queue's is the queue's rate
PROBE, PROBE_TTL_S = "probe", 60.0  # the note of `probe`
HOLDS = "holds/"  # a note of this name and a life's is the digest of the list of jobs that the node holds
JOBS = "jobs/"  # a note of this name and a digest is a list of jobs that nodes hold: `node.holders`
TRIGGERED = "triggered/"  # a note of this name and a job's: a host's scheduler fires the job
GONE = "gone/"  # a note of this name and a job's says up to where the job was planned when it was removed
RETURN_S = 3600.0  # a job that comes back within this time continues its plan instead of starting afresh
BREAKER = "breaker/"  # a note of this name and a breaker's is what it knows; none: closed, no errors


class Store(Protocol):
    # Planning.

    def set_jobs(self, app: str, seen: int, revisions: Mapping[str, str]) -> Watermarks:
        """Make these the app's jobs, if `seen` is still the app's generation.  A new job starts now; one
        that was removed less than `RETURN_S` ago continues where its plan ended.  A changed job takes back
        the planned fires that nobody has attempted, and is planned again from the first of them: work and
        policy of a fire always come from one revision.  It never goes back behind its newest instant ever
        claimed, cancelled or pruned (`resume_at`).  The planned fires of a removed job stay, to be settled
        as cancelled when they are due."""

    def look(self, app: str) -> Watermarks:
        """The app's watermarks, with all its watermarks.  Changes nothing, and waits for no other call."""

    def advance(self, app: str, plans: Sequence[Plan]) -> Watermarks:
        """Record the plans that continue their job's watermark, and move it to where they end.  The
        answer has the watermarks of these jobs only: an app may have a hundred thousand."""

    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        """Record fires of no schedule whose key is new; say which were.  Due in `delay_s`.  A fire with
        `unique_s` takes the place of one that is over and was due that long ago, or had no success."""

    # Running.

    def claim(self, ask: Ask) -> Grants:
        """Claim fires that are due, to run or to settle; for a repeated ask, the same again."""

    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        """Extend claims by their ttl.  None: go on.  An outcome: stop the work, and settle it so."""

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        """Settle the claims' fires and record what follows from them, in one step; the verdict that
        stands, also when repeated, or None where a newer claim has the fire.  A fire that was told
        to stop is not due again."""

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        """`finish`, then `claim`: in one round trip and one write to the disk, where the store can."""

    def cancel(self, key: str, reason: str = "", cause: Cause = "stopped") -> bool:
        """End a pending fire, or tell the claim's node to stop.  False: there is no such open fire."""

    # Queues.

    def charge(self, app: str, name: str, rate: Rate, count: int = 1) -> Usage:
        """Count one more (or, with 0, none) under this name, if the rate allows it now; else nothing is
        counted, and the answer says when it will.  A queue's own charges have its name or, by key, its
        name, a slash and the key."""

    def reset(self, app: str, name: str) -> None:
        """Forget what was charged under this name."""

    def forget(self, keys: Sequence[str]) -> int:
        """Forget those of these fires that are over and were not planned.  Says how many."""

    def count(self, app: str, queues: Sequence[str] = ()) -> dict[str, Size]:
        """How many messages these queues have or, where none is named, all of the app's.  A queue that has
        none may be left out."""

    # Book-keeping.

    def find(self, query: Query) -> Found:
        """Fires, latest due first or, `upcoming`, those that wait, the next one first: by when they are due
        (again), and by key.  Examines `LOOK_MAX` fires at most, and says where to continue; `upcoming`
        examines the whole of the queues that it names."""

    def apps(self) -> list[str]:
        """The apps that have jobs, fires that are not over, or notes, by name.  May include apps that had
        some before."""

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        """Forget fires of the app that were over that long ago, and all but the newest `keep` of a
        job; never an open one, nor an instant after now or its job's watermark.  A message that had no
        success,
        one whose key is unique still, and one whose result is kept and is not older than its `result_s`, are
        no surplus.  Says how many."""

    def note(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        """Leave a note, for `ttl_s` (0: for ever); an empty text takes it back."""

    def notes(self, app: str, prefix: str = "") -> list[Note]:
        """The notes whose name starts so, by name."""

    def wait(self, app: str, seconds: float) -> bool:
        """Block until somebody put, cancelled, stopped, paused or freed a place another waits for
        (True), or the time is up.  A hint: it may be lost, or given for nothing."""

    def close(self) -> None:
        """Let go of connections.  The store may be used again afterwards."""


class Diagnosis(NamedTuple):
    """A row of `detent doctor`.  A store's `promise` tells in such rows what its settings carry of the
    promise, and its `upkeep` what else could make it go away; `stores.opening` knows where they are."""

    what: str
    state: Literal["ok", "weak", "bad"]
    found: str
    consequence: str = ""
    advice: str = ""


def probe(store: Store, app: str) -> None:
    """Raise unless the store accepts writes: a full or read-only store still answers questions."""
    store.note(app, PROBE, "written to see whether the store accepts writes", PROBE_TTL_S)


def find_all(store: Store, query: Query) -> list[Row]:
    """As many rows as the query asks for, however many searches that takes."""
    found = store.find(query)
    rows = [*found]
    while found.before and len(rows) < query.limit:
        found = store.find(query._replace(before=found.before, limit=query.limit - len(rows)))
        rows += found
    return rows


# Rules that every store in Python shares.


def app_of(job: str) -> str:
    return job.partition(".")[0]


def concerns(fire: Fire, ask: Ask) -> bool:
    return app_of(fire.job) == ask.app and fire.queue in ask.queues


def continues(plan: Plan, watermark_at: datetime) -> bool:
    """Does the plan start at or before the watermark, end after it, and need no span cut in two?"""
    cut = any(fire.instants > 1 and fire.first_at and fire.first_at <= watermark_at for fire in plan.fires)
    return plan.since <= watermark_at < plan.until and not cut


def resume_at(
    now: datetime, ended_at: datetime | None, reached_at: datetime | None, first_at: datetime | None
) -> datetime:
    """Where the plan of a new or changed job starts.

    `ended_at`: up to where it was planned before; `reached_at`: its newest instant ever claimed, cancelled or
    pruned, which may be ahead of a clock that was set back; `first_at`: its oldest later instant that is
    recorded and that nobody has attempted.  A job that is new, or was removed long ago, starts now.
    """
    latest = max(now, reached_at or now)
    if ended_at and first_at and first_at <= now:
        before = first_at - timedelta(seconds=1)  # instants are whole seconds
        latest = max(before, reached_at or before)
    return min(latest, ended_at or latest)


def is_hook(fire: Fire) -> bool:
    return fire.origin == "hook"


def is_planned(fire: Fire) -> bool:
    """Was it recorded by a plan: an instant, or the hook that is called if the instant is late?"""
    hook = fire.key.rpartition("/")[2] if is_hook(fire) else ""
    return fire.origin == "schedule" or hook.startswith("on_late")


def is_spent(fire: Fire, old: Fire, ended: Outcome, now: float) -> bool:
    """May this fire take the place of one of its key that ended so?"""
    unique_s = fire.policy.unique_s
    return unique_s > 0 and (ended.kind != "succeeded" or old.due_at.timestamp() + unique_s <= now)


def leap(fence: int, now: float) -> int:
    """Where the fences of a new epoch start: above all that an older one can have counted to."""
    return max(fence + (1 << FENCE_SHIFT), int(now - SINCE_2020_S) << FENCE_SHIFT)
