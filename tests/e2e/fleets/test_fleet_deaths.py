"""A node of a fleet dies or is stopped: other hosts cannot prove it, and work continues within one claim."""

from __future__ import annotations

import signal
import time
from contextlib import closing

from tests.e2e.fleets.hosts import Hosts, on_postgres
from tests.equipment.fleet import NEVER, Seen, wait_for

from detent.stores.registry import open_store

CLAIM_S = 3
SLACK_S = 3.0  # room for a busy machine: the guarantee is one claim
BACKOFF_S = 1.0  # before another attempt


def test_the_next_fire_and_the_interrupted_one_run_elsewhere_within_one_claim_of_a_kill(hosts: Hosts) -> None:
    policy = {"claim_seconds": CLAIM_S}
    hosts.write(
        hosts.job("next", "daemon", "100", policy=policy | {"concurrency": "Queue"}),
        hosts.job("again", "daemon", "100", schedule=NEVER, policy=policy | {"on_lost": "rerun"}),
        hosts.job("once", "daemon", "100", schedule=NEVER, policy=policy),
        node={"drain_seconds": 0},
    )
    killed = hosts.start()
    again, once = hosts.fire("again"), hosts.fire("once")
    before = {name: hosts.witness.wait_start(name) for name in ("next", "again", "once")}
    wait_for(lambda: len(hosts.witness.seen("daemon")) == 3, what="three grandchildren")
    hosts.start(), hosts.start()

    killed_at = time.clock_gettime(time.CLOCK_MONOTONIC)
    killed.kill()
    following, rerun = (hosts.witness.wait_start(name, after=1) for name in ("next", "again"))

    for one, wait_s in ((following, 0.0), (rerun, BACKOFF_S)):
        assert one.free and one.node != killed.instance
        assert one.at - killed_at < CLAIM_S + wait_s + SLACK_S
    first = before["again"]
    assert (rerun.key, rerun.run_id, rerun.attempt) == (again, first.run_id, 2)
    assert rerun.fence > first.fence and following.fence > before["next"].fence
    assert following.key != before["next"].key
    lost = hosts.wait_over(once)
    assert lost.outcome is not None and lost.outcome.kind == "lost"
    assert [one for one in before.values() if one.alive()] == []
    hosts.end()
    hosts.witness.assert_launched_once()
    hosts.assert_nothing_is_held()


@on_postgres
def test_replace_and_kill_reach_another_host_and_end_its_work_even_if_its_node_is_stopped(
    hosts: Hosts,
) -> None:
    policy = {"claim_seconds": CLAIM_S, "concurrency": "Replace"}
    hosts.write(hosts.job("job", "deaf", "100", schedule=NEVER, kill_after_seconds=0.3, policy=policy))
    hosts.start(), hosts.start()

    first, second = _fire(hosts), _fire(hosts)
    _assert_ended(hosts, first, second, ("replaced", f"replaced by {second.key}"))

    hosts.node_of(second.node).send(signal.SIGSTOP)
    third = _fire(hosts)
    assert third.node != second.node
    _assert_ended(hosts, second, third, ("replaced", f"replaced by {third.key}"))

    hosts.node_of(second.node).send(signal.SIGCONT)
    hosts.node_of(second.node).wait("fenced", fire=second.key)
    hosts.node_of(third.node).send(signal.SIGSTOP)
    with closing(open_store(hosts.url)) as store:  # as `detent kill` does, but before the claim can expire
        assert store.cancel(third.key, "by a test")
    hosts.wait_over(third.key)
    hosts.node_of(third.node).send(signal.SIGCONT)
    fourth = _fire(hosts)
    _assert_ended(hosts, third, fourth, "cancelled")

    hosts.ask("kill", fourth.key, "--wait")
    assert fourth.alive() == set()
    hosts.end()
    assert [row.outcome and row.outcome.kind for row in hosts.find()].count("cancelled") == 2
    hosts.witness.assert_launched_once()
    hosts.witness.assert_no_overlap()
    hosts.assert_nothing_is_held()


def _fire(hosts: Hosts) -> Seen:
    """Fire the job in a new second: manual fires are due at whole seconds, and the newer one replaces."""
    launched, this_second = len(hosts.witness.starts("job")), int(time.time())
    wait_for(lambda: int(time.time()) > this_second)
    key = hosts.fire("job")
    started = hosts.witness.wait_start("job", after=launched)
    assert started.key == key and started.free
    return started


def _assert_ended(hosts: Hosts, one: Seen, following: Seen, outcome: tuple[str, str] | str) -> None:
    assert one.alive() == set() and one.fence < following.fence
    row = hosts.wait_over(one.key)
    assert row.outcome is not None
    assert outcome in (row.outcome[:2], row.outcome.kind)
    kind = row.outcome.kind  # logged shortly after it is recorded
    reporting = wait_for(
        lambda: [node for node in hosts.nodes if node.events(kind, fire=one.key)], what="its end"
    )
    assert len(reporting) == 1, "exactly one node reports the end of a fire"
