"""`detent nodes`: lists the nodes of the last half minute, and warns if they hold different jobs."""

import argparse
from datetime import datetime

from detent import clock
from detent.cli.context import add_store_options, open_context
from detent.cli.tables import Table, is_terminal, relative_cell, say, write_json, write_table
from detent.views.lookup import apps_of
from detent.views.nodes import NodeStatus, find_nodes, node_record, node_state, remarks

EXAMPLE = "detent nodes"

HEADS = (
    "node", "up", "heard", "running", "jobs", "fingerprint", "clock", "queues", "pid", "version", "state",
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context, now = open_context(args), clock.now()
    nodes: list[NodeStatus] = []
    if store := context.store:
        nodes = find_nodes(store, {app: store.look(app) for app in apps_of(context)})
    else:
        say(context.no_store_yet)
    if args.output == "json":
        write_json([node_record(node) for node in nodes])
        return 0
    if nodes:
        rows = [_row(node, now, nodes) for node in nodes]
        write_table(Table(HEADS, rows, kept=("node", "up", "heard", "pid")))
        for line in remarks(nodes):
            print(line)
    if store and all(node.is_dead for node in nodes):
        say("no node is alive: start `detent run`")
    return 0


def _row(node: NodeStatus, now: datetime, nodes: list[NodeStatus]) -> tuple[str, ...]:
    beat = node.heartbeat
    differ = len({one.heartbeat.fingerprint for one in nodes}) > 1 or node.is_superseded
    return (
        beat.instance,
        relative_cell(beat.began_at, now).removesuffix(" ago"),
        relative_cell(beat.heard_at, now),
        str(node.running),
        "" if beat.jobs is None else f"{beat.jobs:,}",
        beat.fingerprint if differ or not is_terminal() else "",
        "" if beat.clock_s is None else f"{beat.clock_s:+.1f} s".replace("-0.0", "+0.0"),
        ",".join(beat.queues),
        "" if beat.pid is None else str(beat.pid),
        beat.version,
        node_state(node),
    )
