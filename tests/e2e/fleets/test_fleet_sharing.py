"""Nodes of a fleet share due fires; a node with older jobs is reported; lost answers lose no fire."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from contextlib import closing

from tests.e2e.fleets.hosts import Hosts, on_redis, wait_until_nodes_know_each_other
from tests.equipment.fleet import NEVER, PATIENCE_S, wait_for

from detent.clock import instant
from detent.loading.config import load_manifest
from detent.model import Query, Row
from detent.rules.planning import manual_fire
from detent.stores.base import Store
from detent.stores.registry import open_store

NODES, ROUNDS, FIRES = 4, 20, 25  # fewer than one node has room for
# In a request that claims a fire.  PostgreSQL: the fire's new state, a value of a prepared statement.
CLAIMS = {"redis": b'"ask":[', "postgresql": b"\0\0\0\7claimed"}


@on_redis
def test_every_node_gets_a_share_of_the_fires(hosts: Hosts) -> None:
    job = {"name": "job", "schedule": NEVER, "command": ["true"], "policy": {"concurrency": "Allow"}}
    hosts.write(job)
    for _ in range(NODES):
        hosts.start()
    wait_until_nodes_know_each_other(hosts, NODES)

    planned = load_manifest(hosts.file, hosts.env).jobs[0]
    with closing(open_store(hosts.url)) as store:
        for _ in range(ROUNDS):
            now = instant(int(time.time()))
            store.put([manual_fire(planned, now, secrets.token_hex(4)) for _ in range(FIRES)])
            wait_for(lambda: not any(_open(store, state) for state in ("pending", "claimed")), what="a round")
    hosts.end()
    rows = hosts.find()
    assert {row.outcome and row.outcome.kind for row in rows} == {"succeeded"}
    shares = Counter(row.attempts[0].node for row in rows)
    assert sum(shares.values()) == ROUNDS * FIRES and len(shares) == NODES
    assert max(shares.values()) <= 4 * min(shares.values()), shares


def _open(store: Store, state: str) -> list[Row]:
    return store.find(Query(app="t", state=state, limit=1))


def test_a_lost_answer_to_a_claim_loses_no_fire_and_no_time(hosts: Hosts) -> None:
    # A fire that was claimed in vain would occupy the lane for longer than the test waits.
    hosts.write(hosts.job("tick", "sleep", "0", policy={"claim_seconds": 10 * PATIENCE_S}))
    hosts.start()
    hosts.witness.wait_start("tick")
    for _ in range(3):
        lost = hosts.proxy.lost
        hosts.proxy.lose(to=CLAIMS[hosts.url.partition(":")[0]])
        wait_for(lambda lost=lost: hosts.proxy.lost > lost, what="a lost answer")
        last = hosts.witness.wait_start("tick", after=len(hosts.witness.starts("tick")))
    hosts.end()

    rows = hosts.due("tick", hosts.row(last.key).fire.due_at)  # the node stopped before later ones
    due = [int(row.fire.due_at.timestamp()) for row in rows]
    assert due == list(range(due[0], due[-1] + 1))
    ends = {(row.outcome and row.outcome.kind, row.attempt) for row in rows}
    assert ("succeeded", 1) in ends
    assert ends <= {("succeeded", 1), ("skipped", 0)}, (
        "a process may take a second to start, but none is lost"
    )
    hosts.witness.assert_launched_once()


@on_redis
def test_nodes_and_status_show_a_node_with_older_definitions(hosts: Hosts) -> None:
    hosts.write(hosts.job("same", "sleep", "0"), hosts.job("other", "sleep", "0"))
    newer, hosts.file = hosts.file, hosts.file.rename(hosts.directory / "older.yaml")
    older = hosts.start()
    hosts.witness.wait_start("other")
    hosts.file = newer
    hosts.write(hosts.job("same", "sleep", "0"), hosts.job("other", "sleep", "0.01"))
    hosts.start()

    assert older.wait("superseded")["jobs"] == ["t.other"]
    marked = {one["node"]: one["in_force"] for one in json.loads(hosts.ask("nodes", "-o", "json"))}
    assert marked == {node.instance: node is not older for node in hosts.nodes}
    warning = f"{older.instance} holds older definitions of jobs"
    assert warning in hosts.ask("nodes").decode() and warning in hosts.ask("status").decode().splitlines()[0]
