"""`detent nodes`: which nodes are alive, what they serve, and whether they hold the same jobs.

A node renews its heartbeat every ten seconds, and it expires after thirty.  A node of this host that was
killed is listed as dead until then, as its lock is free; a node of another host is listed as alive.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from detent import clock
from detent.cli.context import add_store_options, open_context
from detent.cli.formatting import duration, iso, relative
from detent.cli.look.heartbeats import Heartbeat, find_heartbeats
from detent.cli.lookup import SCAN_MAX, apps_of
from detent.cli.tables import is_terminal, say, write_json, write_table
from detent.model import Query, Watermarks
from detent.node.holders import jobs_in
from detent.stores.base import JOBS, Store, find_all
from detent.text import listed

EXAMPLE = "detent nodes"
HEADS = (
    "node", "up", "heard", "running", "jobs", "fingerprint", "clock", "queues", "pid", "version", "state",
)  # fmt: skip
CLOCK_MAX_S = 2.0  # a clock that is off by more is worth a word


class NodeStatus(NamedTuple):
    """A node that was heard of lately, and what else is known of it."""

    app: str
    heartbeat: Heartbeat
    running: int
    is_superseded: bool  # a newer deploy replaced definitions that it holds
    is_dead: bool = False  # for certain


def add_options(parser: argparse.ArgumentParser) -> None:
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context, now = open_context(args), clock.now()
    if context.store is None:
        say(context.no_store_yet)
    nodes: list[NodeStatus] = []
    if store := context.store:
        nodes = find_nodes(store, {app: store.look(app) for app in apps_of(context)})
    if args.output == "json":
        write_json([node_record(node) for node in nodes])
        return 0
    if nodes:
        write_table(HEADS, (_row(node, now, nodes) for node in nodes), kept=("node", "up", "heard", "pid"))
        for line in remarks(nodes):
            print(line)
    if context.store and all(node.is_dead for node in nodes):
        say("no node is alive: start `detent run`")
    return 0


def find_nodes(store: Store, by_app: Mapping[str, Watermarks]) -> list[NodeStatus]:
    """The nodes of these apps that were heard of lately, by name."""
    found = []
    for app, watermarks in by_app.items():
        claimed = find_all(store, Query(app=app, state="claimed", limit=SCAN_MAX))
        running = Counter(row.node for row in claimed)
        by_job = watermarks.by_job
        lists = {note.name.removeprefix(JOBS): jobs_in(note.text) for note in store.notes(app, JOBS)}
        for beat in find_heartbeats(store, app):
            held = lists.get(beat.jobs_list, {})
            is_superseded = any(name in by_job and by_job[name].revision != held[name] for name in held)
            found.append(NodeStatus(app, beat, running[beat.instance], is_superseded, beat.is_dead))
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
    """What a person should know of these nodes, and do about it."""
    said, nodes = [], [node for node in nodes if not node.is_dead]
    if others := [node.heartbeat.instance for node in nodes if node.is_superseded]:
        holds = "holds" if len(others) == 1 else "hold"
        said.append(
            f"{listed(others, 'and')} {holds} older definitions of jobs than those in force, and no longer"
            f" {'runs' if len(others) == 1 else 'run'} them: deploy the same manifest to every node"
        )
    for node in nodes:
        off_s = node.heartbeat.clock_s or 0.0
        if abs(off_s) > CLOCK_MAX_S:
            side = "ahead of" if off_s > 0 else "behind"
            said.append(
                f"the clock of {node.heartbeat.instance} is {duration(abs(off_s))} {side} the store's:"
                " jobs go by the store's clock; its log does not"
            )
    return said


def _row(node: NodeStatus, now: datetime, nodes: list[NodeStatus]) -> tuple[str, ...]:
    beat = node.heartbeat
    differ = len({one.heartbeat.fingerprint for one in nodes}) > 1 or node.is_superseded
    return (
        beat.instance,
        _up(beat, now),
        relative(beat.heard_at, now) if is_terminal() else iso(beat.heard_at) or "",
        str(node.running),
        "" if beat.jobs is None else f"{beat.jobs:,}",
        beat.fingerprint if differ or not is_terminal() else "",
        "" if beat.clock_s is None else f"{beat.clock_s:+.1f} s".replace("-0.0", "+0.0"),
        ",".join(beat.queues),
        "" if beat.pid is None else str(beat.pid),
        beat.version,
        state_text(node),
    )


def state_text(node: NodeStatus) -> str:
    """What is to be said of it in one or two words."""
    return "dead" if node.is_dead else "superseded" if node.is_superseded else ""


def _up(beat: Heartbeat, now: datetime) -> str:
    if beat.began_at is None:
        return ""
    return relative(beat.began_at, now).removesuffix(" ago") if is_terminal() else iso(beat.began_at) or ""
