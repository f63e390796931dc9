"""The sentences of `detent why`: what happened to a fire, or why a due instant has no fire."""

from datetime import datetime, timedelta

from detent import clock
from detent.manifest.check import NodeSettings
from detent.model import Job, Outcome, Query, Row
from detent.rules.chains import predecessor_of
from detent.stores.base import Store, app_of, find_all
from detent.views.context import Context
from detent.views.formatting import duration, iso, relative
from detent.views.json_records import started_at
from detent.views.lookup import SCAN_MAX
from detent.views.nodes import live_nodes
from detent.views.pauses import find_pauses, pause_text

ON_TIME_S = 1.0
NO_NODE = "no node is alive: start `detent run`"
CATCH_UP = {
    "skip": "the next node records it as missed",
    "latest": "the next node runs the newest missed instant and records the others as missed",
    "all": "the next node runs the newest 100 missed instants in order",
}


def fire_sentences(row: Row, now: datetime) -> list[str]:
    """What caused the fire, if another fire did, and what happened to it."""
    before = predecessor_of(row.fire)
    cause = [f"it was started by the success of {before}"] if before else []
    return [*cause, *outcome_sentences(row, now)]


def outcome_sentences(row: Row, now: datetime) -> list[str]:
    """How the fire ended or what it waits for, and how late it started."""
    if row.state == "claimed":
        sentence = _running(row, now)
    elif row.state == "pending":
        sentence = _pending(row, now)
    elif row.fire.instants > 1:
        sentence = _outage(row)
    else:
        sentence = _ended(row, row.outcome) if row.outcome else "it is over"
    first_at = started_at(row)
    if first_at is None:
        return [sentence]
    late_s = (first_at - row.fire.due_at).total_seconds()
    when = "on time" if late_s < ON_TIME_S else f"{duration(late_s)} late"
    return [sentence, f"it started {when}, on node {row.attempts[0].node if row.attempts else row.node}"]


def _running(row: Row, now: datetime) -> str:
    so_far = f" for {duration((now - row.claimed_at).total_seconds())}" if row.claimed_at else ""
    stop = f"; it is being stopped: {row.stop.reason or row.stop.kind}" if row.stop else ""
    return f"it has been running{so_far}: attempt {row.attempt} on node {row.node}{stop}"


def _pending(row: Row, now: datetime) -> str:
    if row.attempt and row.outcome:
        retry = f"; attempt {row.attempt + 1} is due {relative(row.run_at, now)}" if row.run_at else ""
        return f"attempt {row.attempt} {row.outcome.kind}: {row.outcome.reason}{retry}"
    if row.fire.due_at > now:
        return f"it is planned and due {relative(row.fire.due_at, now)}"
    lane = "for its lane, or " if row.fire.lane else ""
    return f"it was due {relative(row.fire.due_at, now)} and is waiting {lane}for a node with a free slot"


def _outage(row: Row) -> str:
    fire = row.fire
    return (
        f"it was missed: it is one of {fire.instants:,} instants from {iso(fire.first_at)} to"
        f" {iso(fire.due_at)} while no node was alive, and catch_up: {fire.policy.catch_up} does not run them"
    )


def _ended(row: Row, outcome: Outcome) -> str:
    """One sentence for each kind of outcome, by its cause."""
    policy, reason, other = row.fire.policy, outcome.reason, outcome.by
    match outcome.kind, outcome.cause:
        case "succeeded", _:
            return f"it succeeded on attempt {row.attempt}" if row.attempt > 1 else "it succeeded"
        case "failed", "lane":
            return f"it failed and was not retried: {other} was running when the retry was due (Forbid)"
        case "failed", _:
            attempts = f" after {row.attempt} attempts" if row.attempt > 1 else ""
            return f"it failed{attempts}: {reason}" if reason else f"it failed{attempts}"
        case "rejected", _:
            return f"the app rejected it: {reason}; a rejected request is not retried"
        case "timed-out", _:
            return f"it ran longer than policy.timeout_seconds and was stopped: {reason}"
        case "skipped", "paused":
            return f"it was skipped: the job was {reason}"
        case "skipped", "lane" if other and policy.concurrency == "Queue":
            return f"it was skipped: {other} was already waiting for the lane, and Queue lets only one wait"
        case "skipped", "lane" if other:
            width = "one fire" if policy.max_running == 1 else f"{policy.max_running} fires"
            allows = f"{policy.concurrency} allows {width} at a time"
            return f"it was skipped: {other} was still running, and {allows}"
        case "replaced", _:
            return f"it was stopped to make room for a newer fire, {other} (concurrency: Replace)"
        case "lost", _:
            again = "it was not run again" if policy.on_lost == "skip" else "no attempt was left"
            return f"it was lost: {reason or 'its claim expired'}; {again} (on_lost: {policy.on_lost})"
        case "missed", "newer-instant":
            return (
                "it was missed: no node could run it in time, and by then a newer instant was due;"
                f" catch_up: {policy.catch_up} runs only the newest"
            )
        case "missed", _ if row.fire.start_by:
            return (
                f"it was missed: it had to start by {iso(row.fire.start_by)}, and until then"
                " no node was alive or had a free slot, or its lane was taken"
            )
        case _:
            return f"it was {outcome.kind}: {reason}"


def absence_sentences(context: Context, name: str, job: Job, instant: datetime) -> list[str]:
    """Why the store has no fire of a job for an instant at which it is due."""
    now, store = clock.now(), context.store
    if instant > now:
        return [f"it is due {relative(instant, now)}", *_obstacles(store, name, instant, now)]
    if store is None:
        return ["it was due, but nothing has run yet: there is no store"]
    watermark = store.look(app_of(name)).by_job.get(name)
    if watermark is None:
        return ["it was due, but no node has run with this manifest yet: the job is not known to the store"]
    if watermark.at < instant:
        catch_up = job.policy.catch_up
        no_node = [] if live_nodes(store, app_of(name)) else [NO_NODE]
        return [
            "it was due, but no node has planned it yet",
            *no_node,
            f"with catch_up: {catch_up}, {CATCH_UP[catch_up]}",
        ]
    if watermark.revision != job.revision:
        recorded = "it is due by this manifest, but the nodes run another version of it: there is no fire"
    else:
        recorded = "it is due by the current manifest, but there is no fire in the store"
    settings = context.manifest.node if context.manifest else NodeSettings()
    rows = find_all(store, Query(job=name, origins=("schedule",), until=now, limit=SCAN_MAX))
    return [recorded, _why_unrecorded(rows, settings, instant, now)]


def _obstacles(store: Store | None, name: str, instant: datetime, now: datetime) -> list[str]:
    """What can keep a future instant from running."""
    if store is None:
        return [NO_NODE]
    pause = find_pauses(store, [app_of(name)]).get(name)
    if pause and pause.holds_at(instant):
        return [f"but the job is {pause_text(pause, now)}: it will be skipped unless the job is resumed"]
    return [] if live_nodes(store, app_of(name)) else [NO_NODE]


def _why_unrecorded(rows: list[Row], settings: NodeSettings, instant: datetime, now: datetime) -> str:
    if instant < now - timedelta(days=settings.keep_days):
        return f"history is kept for {settings.keep_days} days (node.keep_days): older fires are deleted"
    if any(row.fire.due_at < instant for row in rows):
        return "the job was changed, disabled or removed at that time, which cancels its planned fires"
    if len(rows) >= settings.keep_fires:
        return f"only the newest {settings.keep_fires:,} fires of a job are kept (node.keep_fires)"
    first = f"; the oldest fire in the store was due at {iso(rows[-1].fire.due_at)}" if rows else ""
    return f"the job was added, enabled or changed later, or its history was pruned{first}"
