"""The values that every other module passes around: jobs, fires, claims, outcomes.  They have no behaviour.

Instants are aware UTC datetimes and end in `_at` or `_by`.  Durations are seconds and end in `_s`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

Concurrency = Literal["Allow", "Forbid", "Replace", "Queue"]
CatchUp = Literal["skip", "latest", "all"]
OnLost = Literal["skip", "rerun"]
Isolation = Literal["process", "thread", "loop"]
Origin = Literal["schedule", "manual", "hook", "push"]
State = Literal["pending", "claimed", "over"]
Kind = Literal[
    "succeeded", "failed", "rejected", "timed-out", "skipped", "replaced", "lost", "missed", "cancelled"
]
Cause = Literal[
    "work", "backend", "lane", "paused", "deadline", "newer-instant", "removed", "stopped", "shutdown",
    "node-lost", "claim-lost", "no-secret", "refused", "not-here", "internal",
]  # fmt: skip
CAUSES: Mapping[Cause, str] = {
    "work": "the work itself: its exit code, HTTP status, exception, timeout or success",
    "backend": "the work raised BackendError; counts for its circuit breaker",
    "lane": "another fire holds the lane, already waits for it, or replaced this one",
    "paused": "the job was paused",
    "deadline": "the fire did not start by its deadline",
    "newer-instant": "a newer instant of the job was due (`catch_up: latest`)",
    "removed": "the job, or its hook, no longer exists",
    "stopped": "a person or a program cancelled the fire",
    "shutdown": "the node or trigger that ran the fire was stopped",
    "node-lost": "the node or trigger that ran the fire, or its warden, died",
    "claim-lost": "the node could not renew its claim in time, or started too late",
    "no-secret": "none of the secret references resolves, so the request cannot be signed",
    "refused": "the message was rejected: forged, stale, malformed or for an unknown task",
    "not-here": "this node cannot run the fire; another node can",
    "internal": "a bug in detent",
}
DEAD: tuple[Kind, ...] = ("failed", "rejected", "timed-out", "lost", "missed")  # of dead letters


# Jobs: what to run, when, and under which policy.


class Retries(NamedTuple):
    max_attempts: int = 1  # includes the first attempt
    min_s: float = 1.0  # delay before the second attempt; it doubles up to max_s
    max_s: float = 60.0
    jitter: float = 0.0  # fraction of the delay, 0 to 1
    on_status: tuple[int, ...] = ()  # HTTP statuses to retry besides the usual ones
    on_exit_codes: tuple[int, ...] = ()  # retry only these exit codes; empty: every code but 0


class Policy(NamedTuple):
    """How the fires of a job run.  Each fire keeps a copy of the policy it was recorded with."""

    concurrency: Concurrency = "Forbid"
    max_running: int = 1  # fires that may hold the lane at once; `Allow` has no lane
    timeout_s: float = 0.0  # per attempt; 0: no timeout
    retries: Retries = Retries()
    catch_up: CatchUp = "latest"
    start_deadline_s: float = 0.0  # a fire that has not started by then is missed; 0: no limit
    on_lost: OnLost = "skip"
    claim_s: float = 30.0  # lifetime of a claim that is not renewed
    grace_s: float = 0.0  # the lane stays taken for this long after the fire ended
    late_after_s: float = 0.0  # calls the hook `on_late` if the fire has not started by then; 0: never
    hooks: tuple[str, ...] = ()  # names of the hooks: on_failure, on_failure.1, …
    rate_key: str = ""  # groups messages for a rate that counts by key
    breaker: str = ""  # name of its circuit breaker; "": none
    breaker_threshold: int = 5  # consecutive backend errors that open the breaker
    breaker_cooldown_s: float = 60.0  # time before one fire probes the backend again
    unique_s: float = 0.0  # after success, the key stays taken for this long; 0: it does not
    drop_result: bool = False  # do not store what the call returned
    result_s: float = 3600.0  # a kept result is not pruned before this age
    remind_s: float = 0.0  # time between two alerts while a job keeps failing; 0 in a hook: it is always sent


class Rate(NamedTuple):
    """A queue's rate limit: at most `most` attempts are granted in any window."""

    most: int
    window_s: float = 60.0
    smooth: bool = False  # starts are spaced evenly
    by_key: bool = False  # each `rate_key` has its own limit


class Usage(NamedTuple):
    """How much of a rate is used."""

    used: int  # attempts in the window that ends now
    free_in_s: float  # time until another attempt may start; 0: now


class Size(NamedTuple):
    """Numbers of messages on a queue."""

    pending: int = 0  # due
    delayed: int = 0
    running: int = 0
    dead: int = 0


class Command(NamedTuple):
    """Work: a program and its arguments.  It runs in a shell only if the manifest asks for one."""

    words: tuple[str, ...]
    work_dir: str = ""
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    kill_after_s: float = 10.0
    children: Literal["end", "leave"] = "end"


class Request(NamedTuple):
    """Work: an HTTP request.  Each attempt has its own signature."""

    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    secret_refs: tuple[str, ...] = ()
    scheme: Literal["cron", "standard-webhooks"] = "cron"  # signature scheme
    hosts: tuple[str, ...] | None = None  # hosts that the request of a message may go to; None: any


class Call(NamedTuple):
    """Work: a call of a Python function."""

    function: str  # package.module:function
    args: str = "[]"  # JSON: a list of positional or an object of keyword arguments
    isolation: Isolation = "process"
    work_dir: str = ""
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    kill_after_s: float = 10.0
    is_async: bool = False  # several calls may run in one process at the same time


class Push(NamedTuple):
    """Work: put a message on a queue, in the same transaction that settles the fire."""

    task: str
    args: str = "[]"  # JSON, as for a call
    queue: str = "default"
    priority: str = "normal"
    expires_s: float = 0.0  # a message that has not started after this time is missed; 0: no limit
    secret_refs: tuple[str, ...] = ()  # sign and verify the message


class Alert(NamedTuple):
    """Work of a hook: a message to an address of a chat, a mail server or another service (Apprise)."""

    address: str  # with {{references}} to secrets
    title: str = ""  # with {{placeholders}}; "": the default text
    body: str = ""
    dashboard_url: str = ""  # for a link to the fire
    secret_refs: tuple[str, ...] = ()  # that the address names


Work = Command | Request | Call | Push | Alert


class Schedule(Protocol):
    """The instants at which a job is due.  Every node computes the same ones, in strictly growing order."""

    def after(self, instant: datetime) -> datetime | None:
        """Return the first instant later than this one, or None."""

    def before(self, instant: datetime) -> datetime | None:
        """Return the last instant earlier than this one, or None."""

    def between(self, since: datetime, until: datetime) -> Iterator[datetime]:
        """Yield every instant in (since, until]."""


class Job(NamedTuple):
    """A named schedule and work, with the policy for its fires."""

    name: str  # app.job, or app.job/host with `run_on: every`
    schedule: Schedule
    work: Work
    policy: Policy = Policy()
    queue: str = "default"
    revision: str = ""  # hash of the canonical job
    hooks: Mapping[str, Work] = {}  # on_failure, on_failure.1, …; never changed
    description: str = ""
    tags: tuple[str, ...] = ()
    after: tuple[str, ...] = ()  # app.job names: each success of one of them creates a fire of this job


# Fires: what happens to a job.


class Outcome(NamedTuple):
    """How an attempt or a fire ended.  The reason is for people; code reads the cause."""

    kind: Kind
    reason: str = ""
    cause: Cause = "work"
    by: str = ""  # for cause "lane" the key of the other fire, for "node-lost" the node


class Fire(NamedTuple):
    """One occurrence of a job, with the policy of the job when the fire was recorded."""

    key: str  # identity; every node computes the same key
    job: str
    due_at: datetime
    run_id: str = ""
    queue: str = "default"
    lane: str = ""  # "": no lane
    start_by: datetime | None = None  # the fire is missed if the first attempt has not started by then
    policy: Policy = Policy()
    origin: Origin = "schedule"
    revision: str = ""  # of the job when the fire was planned
    payload: str = ""  # JSON: input of a hook, envelope of a message, predecessor of a chained fire
    first_at: datetime | None = None  # for a span of missed instants the first one; due_at is the last
    instants: int = 1  # number of instants in the span


class Claim(NamedTuple):
    """The right of one node to attempt one fire or, with a disposition, to settle it without running it."""

    fire: Fire
    node: str  # instance of a node
    fence: int
    attempt: int  # number of this attempt; with a disposition, of the last one
    ttl_s: float
    expires_at: datetime  # by the store's clock
    disposition: Outcome | None = None
    previous_success_at: datetime | None = None


class Ask(NamedTuple):
    """A request to `Store.claim`.  A repeated request has the same number and gets the same claims."""

    app: str
    node: str  # instance of a node: a restarted node has another name
    number: int  # grows with each new request
    limit: int = 1  # claims to run; hooks and dispositions are extra
    queues: tuple[str, ...] = ("default",)  # earlier queues go first
    ttl_s: float = 0.0  # 0: the claim_s of each fire
    dead: tuple[str, ...] = ()  # instances known to be dead: their claims end now
    without: tuple[str, ...] = ()  # jobs that this node cannot run; it may still settle their fires
    hooks: int = 8  # extra claims for hooks, so that a busy node can still report failures


class Grants(NamedTuple):
    """The answer to an `Ask`: its claims, and how long to wait before the next request."""

    claims: tuple[Claim, ...]
    now: datetime
    next_in_s: float
    epoch: str  # as in `Watermarks`


class Verdict(NamedTuple):
    """What happens to a fire after an attempt: it is over, or due again."""

    outcome: Outcome
    again_in_s: float | None = None  # None: the fire is over
    counts: bool = True  # False: the claim is returned unused and no attempt is counted


class End(NamedTuple):
    """The result of an attempt, as the runner reports it."""

    outcome: Outcome
    status: int | None = None  # exit code (negative: signal) or HTTP status
    took_s: float = 0.0
    tail: bytes = b""  # end of the output
    again_after_s: float | None = None  # from the header Retry-After
    result: str = ""  # JSON of what a call returned; "": nothing to keep
    follow: tuple[Fire, ...] = ()  # messages to record with the outcome


class Report(NamedTuple):
    """What a node passes to `Store.finish` for a claim."""

    claim: Claim
    verdict: Verdict
    status: int | None = None
    took_s: float = 0.0
    tail: bytes = b""
    follow: tuple[Fire, ...] = ()  # recorded in the same transaction if the fire is over
    result: str = ""


class Attempt(NamedTuple):
    """One finished attempt of a fire, as history keeps it."""

    number: int
    node: str
    fence: int
    started_at: datetime  # time of the claim, by the store's clock
    ended_at: datetime
    outcome: Outcome
    status: int | None = None
    took_s: float = 0.0
    tail: bytes = b""
    result: str = ""


# Contents of a store.


class Watermark(NamedTuple):
    """The instant up to which a job is planned, and the revision of the job that was planned."""

    at: datetime
    revision: str
    succeeded_at: datetime | None = None  # when one of its fires last succeeded; hooks do not count


class Plan(NamedTuple):
    """The fires of a job in (since, until].  `since` must be the current watermark or earlier."""

    job: str
    revision: str
    since: datetime
    until: datetime
    fires: tuple[Fire, ...]


class Watermarks(NamedTuple):
    """Watermarks of an app's jobs: of all jobs, or of those that a plan changed."""

    now: datetime
    epoch: str  # changes when the store may have lost data
    generation: int  # grows when the jobs of the app change
    by_job: Mapping[str, Watermark]
    quarantined_until: datetime | None = None  # no claims are granted before; None: no quarantine


Place = tuple[datetime, str]  # position of a fire in history: due instant and key


class Query(NamedTuple):
    """A search for fires.  Empty fields match everything."""

    app: str = ""
    job: str = ""
    key: str = ""  # an exact key; rows then include the output of attempts
    state: str = ""
    origins: tuple[Origin, ...] = ()
    queues: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()  # of the outcome
    since: datetime | None = None  # due then or later
    until: datetime | None = None  # due then or earlier; a span counts by its last instant
    limit: int = 50
    upcoming: bool = False  # pending fires only, next one first; otherwise latest due first
    keys: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    before: Place | None = None  # continue after this place; not with `upcoming`


class Row(NamedTuple):
    """A fire as stored."""

    fire: Fire
    state: State
    attempt: int = 0
    node: str = ""
    fence: int = 0
    run_at: datetime | None = None  # when it is due, or due again
    claimed_at: datetime | None = None
    over_at: datetime | None = None
    outcome: Outcome | None = None
    stop: Outcome | None = None  # the node was asked to stop it, for this reason
    attempts: tuple[Attempt, ...] = ()


class Found(list[Row]):
    """The rows of one search.  A search reads a bounded number of fires; pass `before` as `Query.before` to
    continue.  None: there are no more."""

    def __init__(self, rows: Iterable[Row] = (), before: Place | None = None) -> None:
        super().__init__(rows)
        self.before = before


class Tally(NamedTuple):
    """How many fires ended in an interval, of those that are alike.  A bound is the smallest of
    `rules.tallies.BOUNDS_S` that they do not exceed; None: they never ran."""

    at: datetime  # the start of the interval
    job: str
    queue: str
    kind: Kind
    late_le_s: float | None  # how late the last attempt started
    took_le_s: float | None  # from the start of the last attempt to the end of the fire
    fires: int


class Note(NamedTuple):
    """A small text that nodes and people share through the store: heartbeats, pauses, rates."""

    name: str
    text: str
    written_at: datetime
    expires_at: datetime | None = None
