"""Why does the store have no record of an instant at which a job was due?  In plain words."""

from __future__ import annotations

from datetime import datetime, timedelta

from detent import clock
from detent.cli.act.pauses import find_pauses, pause_text
from detent.cli.context import Context
from detent.cli.formatting import iso, relative
from detent.cli.look.heartbeats import live_nodes
from detent.cli.lookup import SCAN_MAX
from detent.manifest.check import NodeSettings
from detent.model import Job, Query, Row, Watermark
from detent.stores.base import Store, app_of, find_all


def why_absent(context: Context, name: str, job: Job, instant: datetime) -> list[str]:
    now, store = clock.now(), context.store
    if instant > now:
        return [f"it is due {relative(instant, now)}", *_kept_from(store, name, instant, now)]
    if store is None:
        return ["it was due then, but nothing has run: there is no store yet"]
    watermark = store.look(app_of(name)).by_job.get(name)
    if watermark is None:
        return ["it was due then, but no node has taken the job over yet: none has run with this manifest"]
    if watermark.at < instant:
        return ["it was due then, but no node has planned it yet", *_nobody(store, name), _made_good(job)]
    settings = context.manifest.node if context.manifest else NodeSettings()
    rows = find_all(store, Query(job=name, origins=("schedule",), until=now, limit=SCAN_MAX))
    return [_unrecorded(job, watermark), *_forgotten(rows, settings, instant, now)]


def _kept_from(store: Store | None, name: str, instant: datetime, now: datetime) -> list[str]:
    """What may keep an instant that is still to come from running."""
    if store is None:
        return ["no node is alive: start `detent run`"]
    pause = find_pauses(store, app_of(name)).get(name)
    if pause and pause.holds_at(instant):
        return [f"but the job is {pause_text(pause, now)}: it will be skipped unless it is resumed before"]
    return _nobody(store, name)


def _nobody(store: Store, name: str) -> list[str]:
    return [] if live_nodes(store, app_of(name)) else ["no node is alive: start `detent run`"]


def _made_good(job: Job) -> str:
    policy = job.policy.catch_up
    made_good = {
        "skip": "it is recorded as missed by the next node",
        "latest": "the next node runs the newest instant that was missed, and records the others as missed",
        "all": "the next node makes good the newest hundred instants that were missed, in order",
    }
    return f"under catch_up: {policy} {made_good[policy]}"


def _unrecorded(job: Job, watermark: Watermark) -> str:
    if watermark.revision != job.revision:
        return "it would be due then by the manifest here, but another one is in force: no fire is on record"
    return "it is due then by the manifest of today, but no fire is on record"


def _forgotten(rows: list[Row], settings: NodeSettings, instant: datetime, now: datetime) -> list[str]:
    if instant < now - timedelta(days=settings.keep_days):
        return [f"history is kept for {settings.keep_days} days (node.keep_days): what was then is forgotten"]
    older = [row for row in rows if row.fire.due_at < instant]
    if older:
        return [
            "the job was changed, disabled or removed around that time: what is planned is then taken back"
        ]
    if len(rows) >= settings.keep_fires:
        kept = f"only the newest {settings.keep_fires:,} fires of a job are kept (node.keep_fires)"
        return [f"{kept}: what was then is forgotten"]
    first = f"; the first fire on record was due at {iso(rows[-1].fire.due_at)}" if rows else ""
    return [f"the job was added, enabled or changed after that, or its history was pruned{first}"]
