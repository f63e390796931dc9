"""Reads the heartbeats of nodes, and finds nodes with superseded jobs or a wrong clock.

A node renews its heartbeat every 10 seconds, and the heartbeat expires after 30.  A dead node of this host is
recognised at once, as its lock is free; one of another host counts as alive until its heartbeat expires.
"""

import json
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from detent import clock
from detent.errors import UsageError
from detent.model import Job, Note, Query, Watermarks
from detent.node.holders import jobs_in
from detent.stores.base import JOBS, NODE, Store, find_all
from detent.text import listed, quote
from detent.views.context import Context
from detent.views.formatting import duration, iso
from detent.views.lookup import SCAN_MAX
from detent.warden.instances import is_dead

CLOCK_MAX_S = 2.0  # a larger clock offset is reported


class Heartbeat(NamedTuple):
    """What a node writes about itself."""

    instance: str
    host: str
    queues: tuple[str, ...]
    outputs: Path  # on its host
    heard_at: datetime  # by the store's clock
    pid: int | None = None
    version: str = ""
    jobs: int | None = None
    fingerprint: str = ""  # of its jobs
    jobs_list: str = ""  # digest of the list of its jobs
    began_at: datetime | None = None  # by its own clock
    clock_s: float | None = None  # its clock minus the store's
    is_embedded: bool = False  # in a process of the application

    @property
    def is_dead(self) -> bool:
        return self.host == socket.gethostname() and is_dead(self.outputs)


class NodeStatus(NamedTuple):
    app: str
    heartbeat: Heartbeat
    running: int
    is_superseded: bool  # a newer deploy replaced definitions that it holds
    is_dead: bool = False


def find_heartbeats(store: Store, app: str) -> list[Heartbeat]:
    return [heartbeat_of(note) for note in store.notes(app, NODE)]


def live_nodes(store: Store, app: str) -> list[Heartbeat]:
    """The heartbeats of nodes that are not known to be dead."""
    return [beat for beat in find_heartbeats(store, app) if not beat.is_dead]


def require_served(context: Context, job: Job) -> Store:
    """The store; raises UsageError unless a live node serves the queue of the job."""
    nodes = live_nodes(context.store, context.app) if context.store else []
    if not context.store or not nodes:
        raise UsageError(f"{job.name} was not fired: no node of {context.app} is alive; start `detent run`")
    if not any(job.queue in node.queues for node in nodes):
        raise UsageError(
            f"{job.name} was not fired: no live node serves its queue {quote(job.queue)};"
            f" start `detent run --queues {job.queue}`"
        )
    return context.store


def heartbeat_of(note: Note) -> Heartbeat:
    """Read a heartbeat; a node of another version may write more or fewer fields."""
    try:
        found = json.loads(note.text)
    except ValueError:
        found = {}
    fields: dict[str, Any] = found if isinstance(found, dict) else {}
    wall, began, pid, jobs = (_number(fields, name) for name in ("wall", "began", "pid", "jobs"))
    return Heartbeat(
        instance=note.name.removeprefix(NODE),
        host=str(fields.get("host", "")),
        queues=tuple(str(queue) for queue in fields.get("queues") or ()),
        outputs=Path(str(fields.get("outputs", ""))),
        heard_at=note.written_at,
        pid=None if pid is None else int(pid),
        version=str(fields.get("version", "")),
        jobs=None if jobs is None else int(jobs),
        fingerprint=str(fields.get("fingerprint", "")),
        jobs_list=str(fields.get("list") or ""),
        began_at=None if began is None else clock.instant(began),
        clock_s=None if wall is None else wall - note.written_at.timestamp(),
        is_embedded=fields.get("embedded") is True,
    )


def _number(fields: dict[str, Any], name: str) -> float | None:
    value = fields.get(name)
    return float(value) if isinstance(value, int | float) and abs(value) < 2**40 else None


def find_nodes(store: Store, by_app: Mapping[str, Watermarks]) -> list[NodeStatus]:
    found: list[NodeStatus] = []
    for app, watermarks in by_app.items():
        claimed = find_all(store, Query(app=app, state="claimed", limit=SCAN_MAX))
        lists, beats = lists_of(store.notes(app, JOBS)), find_heartbeats(store, app)
        found += node_statuses(app, beats, lists, watermarks, Counter(row.node for row in claimed))
    return found


def lists_of(notes: Sequence[Note]) -> dict[str, dict[str, str]]:
    """The lists of jobs that nodes hold, by their digest: the revision of each job by its name."""
    return {note.name.removeprefix(JOBS): jobs_in(note.text) for note in notes}


def node_statuses(
    app: str,
    beats: Sequence[Heartbeat],
    lists: Mapping[str, Mapping[str, str]],
    watermarks: Watermarks,
    running: Mapping[str, int],
) -> list[NodeStatus]:
    """`running`: the number of claims by node."""
    by_job, found = watermarks.by_job, []
    for beat in beats:
        held = lists.get(beat.jobs_list, {})
        is_superseded = any(name in by_job and by_job[name].revision != held[name] for name in held)
        found.append(NodeStatus(app, beat, running.get(beat.instance, 0), is_superseded, beat.is_dead))
    return found


def node_record(node: NodeStatus) -> dict[str, Any]:
    beat = node.heartbeat
    return {
        "app": node.app,
        "node": beat.instance,
        "alive": not node.is_dead,
        "host": beat.host,
        "pid": beat.pid,
        "version": beat.version,
        "queues": [*beat.queues],
        "jobs": beat.jobs,
        "fingerprint": beat.fingerprint,
        "in_force": not node.is_superseded,
        "up_since": iso(beat.began_at),
        "heard_at": iso(beat.heard_at),
        "running": node.running,
        "clock_offset_ms": None if beat.clock_s is None else round(beat.clock_s * 1000),
    }


def remarks(nodes: Sequence[NodeStatus]) -> list[str]:
    """Sentences about live nodes with superseded jobs or a wrong clock."""
    found, nodes = [], [node for node in nodes if not node.is_dead]
    if old := [node.heartbeat.instance for node in nodes if node.is_superseded]:
        verbs = ("holds", "runs") if len(old) == 1 else ("hold", "run")
        found.append(
            f"{listed(old, 'and')} {verbs[0]} older definitions of jobs than the newest deploy, and no longer"
            f" {verbs[1]} them: deploy the same manifest to every node"
        )
    for node in nodes:
        offset_s = node.heartbeat.clock_s or 0.0
        if abs(offset_s) > CLOCK_MAX_S:
            side = "ahead of" if offset_s > 0 else "behind"
            found.append(
                f"the clock of {node.heartbeat.instance} is {duration(abs(offset_s))} {side} the store's:"
                " jobs follow the store's clock, but the times in its log are wrong"
            )
    return found


def node_state(node: NodeStatus) -> str:
    return "dead" if node.is_dead else "superseded" if node.is_superseded else ""
