"""The nouns: plain values without behaviour.  Imports nothing but types.

Instants are aware UTC and end in `_at` or `_by`; durations are seconds and end in `_s`.
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
    "lane": "another fire has the lane, waits for it, or took the place of this one",
    "paused": "the job was paused",
    "deadline": "the fire did not start by its deadline",
    "newer-instant": "a newer instant of the job was due (`catch_up: latest`)",
    "removed": "the job, or its hook, no longer exists",
    "stopped": "a person or a program cancelled the fire",
    "shutdown": "the node or trigger that ran the fire was stopped",
    "node-lost": "the node or trigger that ran the fire, or its warden, died",
    "claim-lost": "the node could not renew its claim in time, or started too late",
    "no-secret": "no secret reference resolves: there is nothing to sign with",
    "refused": "a message that may not run: forged, stale, malformed or of an unknown task",
    "not-here": "this node cannot run the fire; another node can",
    "internal": "a bug in detent",
}
DEAD: tuple[Kind, ...] = ("failed", "rejected", "timed-out", "lost", "missed")  # a message that ended so


# What a job is.


class Retries(NamedTuple):
    """How often and how soon a failed fire is attempted again."""

    max_attempts: int = 1  # the first one included
    min_s: float = 1.0
    max_s: float = 60.0
    jitter: float = 0.0  # a fraction of the wait, 0 to 1
    on_status: tuple[int, ...] = ()  # further HTTP statuses that are worth another attempt
    on_exit_codes: tuple[int, ...] = ()  # only these exit codes are; none named: all but 0


class Policy(NamedTuple):
    """Everything that governs a job's fires besides when and what.  It travels with each fire."""

    concurrency: Concurrency = "Forbid"
    max_running: int = 1  # the width of the lane; `Allow` has no lane
    timeout_s: float = 0.0  # for one attempt; 0: none
    retries: Retries = Retries()
    catch_up: CatchUp = "latest"
    start_deadline_s: float = 0.0  # later than this a fire is missed; 0: no such limit
    on_lost: OnLost = "skip"
    claim_s: float = 30.0  # how long a claim lives unless it is renewed
    grace_s: float = 0.0  # how long the lane stays taken after the fire is over
    late_after_s: float = 0.0  # not started by then: the hook `on_late`; 0: no such hook
    hooks: tuple[str, ...] = ()  # names of the hooks there are: on_failure, on_failure.1, …
    rate_key: str = ""  # what its queue's rate counts by, where that is by key
    breaker: str = ""  # the name of the circuit breaker that it goes through; "": none
    breaker_threshold: int = 5  # so many backend errors in a row open it
    breaker_cooldown_s: float = 60.0  # before one fire may probe whether the backend is back
    unique_s: float = 0.0  # once over with success, its key is not taken again for this long; 0: never
    drop_result: bool = False  # what the call returned is not kept
    result_s: float = 3600.0  # for this long, no limit on the number of fires removes a message's kept result


class Rate(NamedTuple):
    """A queue's limit: in any window, no more attempts begin than this."""

    most: int
    window_s: float = 60.0
    smooth: bool = False  # evenly spaced
    by_key: bool = False  # counted for each `rate_key` by itself


class Usage(NamedTuple):
    """How far a rate is used up."""

    used: int  # in the window that ends now
    free_in_s: float  # when one more may begin; 0: now


class Size(NamedTuple):
    """How many messages a queue has."""

    pending: int = 0  # due
    delayed: int = 0
    running: int = 0
    dead: int = 0


class Command(NamedTuple):
    """Work: a program with its words; a shell only where the manifest asked for one."""

    words: tuple[str, ...]
    work_dir: str = ""
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    kill_after_s: float = 10.0
    children: Literal["end", "leave"] = "end"


class Request(NamedTuple):
    """Work: an HTTP request, signed afresh for each attempt."""

    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    secret_refs: tuple[str, ...] = ()
    scheme: Literal["cron", "standard-webhooks"] = "cron"  # of its signature
    hosts: tuple[str, ...] | None = None  # where one that a message describes may lead; None: anywhere


class Call(NamedTuple):
    """Work: a Python function, in a process of its own unless the manifest chose otherwise."""

    function: str  # package.module:function
    args: str = "[]"  # JSON: a list for its positions, or an object for its names
    isolation: Isolation = "process"
    work_dir: str = ""
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    kill_after_s: float = 10.0
    is_async: bool = False  # messages of it may share a process while they run


class Push(NamedTuple):
    """Work: a message for a queue, put when its fire is settled, in the same step."""

    task: str
    args: str = "[]"  # JSON, as for a call
    queue: str = "default"
    priority: str = "normal"
    expires_s: float = 0.0  # not begun so long after it was put, it is missed; 0: no such limit
    secret_refs: tuple[str, ...] = ()  # that sign it, and open it


Work = Command | Request | Call | Push


class Schedule(Protocol):
    """When: strictly growing instants, the same for every node that asks."""

    def after(self, instant: datetime) -> datetime | None:
        """The first instant later than this one; None: there is none any more."""

    def before(self, instant: datetime) -> datetime | None:
        """The last instant earlier than this one."""

    def between(self, since: datetime, until: datetime) -> Iterator[datetime]:
        """Every instant in (since, until]."""


class Job(NamedTuple):
    """A named definition: when, what, and the policy for its fires."""

    name: str  # app.job; with `run_on: every` app.job/host
    schedule: Schedule
    work: Work
    policy: Policy = Policy()
    queue: str = "default"
    revision: str = ""  # a hash of the canonical job
    hooks: Mapping[str, Work] = {}  # read only: on_failure, on_failure.1, …
    description: str = ""
    tags: tuple[str, ...] = ()
    after: tuple[str, ...] = ()  # jobs of its app, as app.job: the success of each puts a fire of this one


# What happens to it.


class Outcome(NamedTuple):
    """How an attempt or a fire ended.  Programs read the cause, people the reason."""

    kind: Kind
    reason: str = ""
    cause: Cause = "work"
    by: str = ""  # cause "lane": the key of the other fire; "node-lost": the node


class Fire(NamedTuple):
    """One occurrence of a job, with its policy as it was when the fire was recorded."""

    key: str  # the identity that every node computes alike
    job: str
    due_at: datetime
    run_id: str = ""
    queue: str = "default"
    lane: str = ""  # "": it has no lane
    start_by: datetime | None = None  # a first attempt later than this is missed
    policy: Policy = Policy()
    origin: Origin = "schedule"
    revision: str = ""  # of the job that planned it
    payload: str = ""  # JSON, for a hook: what it is told; for a message: its task; else what put it
    first_at: datetime | None = None  # a span of missed instants: the first; due_at is the last
    instants: int = 1  # how many this row stands for


class Claim(NamedTuple):
    """The right of one node to attempt one fire or, with a sentence, only to settle it so."""

    fire: Fire
    node: str  # one life of a node
    fence: int
    attempt: int  # the attempt that this claim is for; with a sentence, the last one made
    ttl_s: float
    expires_at: datetime  # by the store's clock
    disposition: Outcome | None = None
    previous_success_at: datetime | None = None


class Ask(NamedTuple):
    """What a node asks of `Store.claim`.  Asked again with its number, it is the same ask."""

    app: str
    node: str  # one life of a node: a restarted one has another name
    number: int  # grows with every new ask
    limit: int = 1  # claims to run; hooks and sentences come on top
    queues: tuple[str, ...] = ("default",)  # what is due on one named earlier goes first
    ttl_s: float = 0.0  # 0: each fire's own claim_s
    dead: tuple[str, ...] = ()  # lives proven dead: their claims are over now
    without: tuple[str, ...] = ()  # jobs that this node cannot run; it settles their sentences
    hooks: int = 8  # hooks to run: a node that is full of work must still be able to say so


class Grants(NamedTuple):
    """The answer to an ask: what is claimed under it, and when asking again may pay."""

    claims: tuple[Claim, ...]
    now: datetime
    next_in_s: float
    epoch: str  # as in `Watermarks`


class Verdict(NamedTuple):
    """What becomes of a fire after an attempt: over, or due again."""

    outcome: Outcome
    again_in_s: float | None = None
    counts: bool = True  # False: the attempt was never started, and is given back


class End(NamedTuple):
    """How a runner saw an attempt end."""

    outcome: Outcome
    status: int | None = None  # the exit code (negative: a signal) or the HTTP status
    took_s: float = 0.0
    tail: bytes = b""  # the last of its output
    again_after_s: float | None = None  # what Retry-After asked for
    result: str = ""  # what a call returned, as JSON; "": nothing, or nothing that is kept
    follow: tuple[Fire, ...] = ()  # what it put, if that was its work


class Report(NamedTuple):
    """What a node tells `Store.finish` of a claim."""

    claim: Claim
    verdict: Verdict
    status: int | None = None
    took_s: float = 0.0
    tail: bytes = b""
    follow: tuple[Fire, ...] = ()  # recorded with it, if this verdict ends the fire
    result: str = ""


class Attempt(NamedTuple):
    """One try of a fire, as history keeps it."""

    number: int
    node: str
    fence: int
    started_at: datetime  # when it was claimed, by the store's clock
    ended_at: datetime
    outcome: Outcome
    status: int | None = None
    took_s: float = 0.0
    tail: bytes = b""
    result: str = ""


# What the store knows.


class Watermark(NamedTuple):
    """Up to where a job's instants are accounted for, and by which revision of the job."""

    at: datetime
    revision: str


class Plan(NamedTuple):
    """All that is to be recorded of a job's instants in (since, until], with no gap before."""

    job: str
    revision: str
    since: datetime
    until: datetime
    fires: tuple[Fire, ...]


class Watermarks(NamedTuple):
    """The watermarks of an app's jobs as the store has them now: all of them, or those of the jobs that a
    call named."""

    now: datetime
    epoch: str  # another epoch: the store may have forgotten something
    generation: int  # grows whenever the app's jobs change
    by_job: Mapping[str, Watermark]
    quarantined_until: datetime | None = None  # after a new epoch nothing is granted before; None: it is over


Place = tuple[datetime, str]  # of a fire in history: when it was due, and its key


class Query(NamedTuple):
    """Which fires to find.  Empty fields do not restrict."""

    app: str = ""
    job: str = ""
    key: str = ""  # exact; with it, the rows have their attempts' output
    state: str = ""
    origins: tuple[Origin, ...] = ()
    queues: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()  # of the last outcome
    since: datetime | None = None  # due at or after
    until: datetime | None = None  # due at or before; a span counts by its last instant
    limit: int = 50
    upcoming: bool = False  # only those that wait, the next one first; else the latest due
    keys: tuple[str, ...] = ()  # any of these
    jobs: tuple[str, ...] = ()  # any of these
    before: Place | None = None  # only what comes after this place, the latest due first; not with `upcoming`


class Row(NamedTuple):
    """A fire as the store remembers it."""

    fire: Fire
    state: State
    attempt: int = 0
    node: str = ""
    fence: int = 0
    run_at: datetime | None = None  # when it is due (again)
    claimed_at: datetime | None = None
    over_at: datetime | None = None
    outcome: Outcome | None = None
    stop: Outcome | None = None  # its node was told to stop, and why
    attempts: tuple[Attempt, ...] = ()


class Found(list[Row]):
    """The rows of one search.  A search stops after a bounded number of fires; `before` is then the place to
    continue from, as in `Query.before`.  None: there is nothing more."""

    def __init__(self, rows: Iterable[Row] = (), before: Place | None = None) -> None:
        super().__init__(rows)
        self.before = before


class Note(NamedTuple):
    """A small text that nodes and people leave for each other: heartbeats, pauses."""

    name: str
    text: str
    written_at: datetime
    expires_at: datetime | None = None
