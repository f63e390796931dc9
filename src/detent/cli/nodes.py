"""`detent nodes`: which nodes are alive, what they serve, and whether they hold the same jobs.

A node is told by its heartbeat, which it renews every ten seconds and which fades after thirty: one that
was killed is listed until then.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from detent import clock
from detent.cli.context import add_context, open_context
from detent.cli.heartbeats import Heartbeat, living
from detent.cli.names import SCAN_MAX, apps_of
from detent.cli.tables import is_terminal, say, write_json, write_table
from detent.cli.words import duration, iso, relative
from detent.core.fingerprint import fingerprint
from detent.core.text import listed
from detent.model import Query
from detent.stores.base import Store

EXAMPLE = "detent nodes"
HEADS = (
    "node", "up", "heard", "running", "jobs", "fingerprint", "clock", "queues", "pid", "version", "state",
)  # fmt: skip
CLOCK_MAX_S = 2.0  # a clock that is off by more is worth a word


class Alive(NamedTuple):
    """A node, and what else is known of it."""

    app: str
    heartbeat: Heartbeat
    running: int
    holds_others: bool  # than the jobs that are in force


def options(parser: argparse.ArgumentParser) -> None:
    add_context(parser)


def main(given: argparse.Namespace) -> int:
    context, now = open_context(given), clock.now()
    if context.store is None:
        say(context.nothing_yet)
    nodes = find_nodes(context.store, apps_of(context)) if context.store else []
    if given.output == "json":
        write_json([node_record(node) for node in nodes])
        return 0
    if nodes:
        write_table(HEADS, (_row(node, now, nodes) for node in nodes), kept=("node", "up", "heard", "pid"))
        for line in remarks(nodes):
            print(line)
    elif context.store:
        say("no node is alive: start `detent run`")
    return 0


def find_nodes(store: Store, apps: Iterable[str]) -> list[Alive]:
    """The living nodes of these apps, by name."""
    found = []
    for app in apps:
        claimed = store.find(Query(app=app, state="claimed", limit=SCAN_MAX))
        running = Counter(row.node for row in claimed)
        marks = store.look(app).marks
        in_force = fingerprint((name, mark.revision) for name, mark in marks.items())
        for beat in living(store, app):
            others = bool(in_force and beat.fingerprint and beat.fingerprint != in_force)
            found.append(Alive(app, beat, running[beat.life], others))
    return found


def node_record(node: Alive) -> dict[str, Any]:
    beat = node.heartbeat
    return {
        "app": node.app,
        "node": beat.life,
        "host": beat.host,
        "pid": beat.pid,
        "version": beat.version,
        "queues": [*beat.queues],
        "jobs": beat.jobs,
        "fingerprint": beat.fingerprint,
        "in_force": not node.holds_others,
        "up_since": iso(beat.began_at),
        "heard_at": iso(beat.beat_at),
        "running": node.running,
        "clock_offset_ms": None if beat.clock_s is None else round(beat.clock_s * 1000),
    }


def remarks(nodes: Sequence[Alive]) -> list[str]:
    """What a person should know of these nodes, and do about it."""
    said = []
    if others := [node.heartbeat.life for node in nodes if node.holds_others]:
        holds, stands = ("holds", "it stands") if len(others) == 1 else ("hold", "they stand")
        said.append(
            f"{listed(others, 'and')} {holds} other jobs than those in force: {stands} back from planning"
            " those that differ; give every node the same manifest"
        )
    for node in nodes:
        off_s = node.heartbeat.clock_s or 0.0
        if abs(off_s) > CLOCK_MAX_S:
            side = "ahead of" if off_s > 0 else "behind"
            said.append(
                f"the clock of {node.heartbeat.life} is {duration(abs(off_s))} {side} the store's:"
                " jobs go by the store's clock; its log does not"
            )
    return said


def _row(node: Alive, now: datetime, nodes: list[Alive]) -> tuple[str, ...]:
    beat = node.heartbeat
    differ = len({one.heartbeat.fingerprint for one in nodes}) > 1 or node.holds_others
    return (
        beat.life,
        _up(beat, now),
        relative(beat.beat_at, now) if is_terminal() else iso(beat.beat_at) or "",
        str(node.running),
        "" if beat.jobs is None else f"{beat.jobs:,}",
        beat.fingerprint if differ or not is_terminal() else "",
        "" if beat.clock_s is None else f"{beat.clock_s:+.1f} s".replace("-0.0", "+0.0"),
        ",".join(beat.queues),
        "" if beat.pid is None else str(beat.pid),
        beat.version,
        "other jobs" if node.holds_others else "",
    )


def _up(beat: Heartbeat, now: datetime) -> str:
    if beat.began_at is None:
        return ""
    return relative(beat.began_at, now).removesuffix(" ago") if is_terminal() else iso(beat.began_at) or ""
