"""Hooks while a node drains: it runs those of finished work, the next node those of work that it stopped."""

from __future__ import annotations

import shlex
import signal

from tests.e2e.fleets.hosts import Hosts, on_redis
from tests.equipment.fleet import NEVER

from detent.model import Outcome


@on_redis
def test_hooks_are_called_while_a_node_drains_and_wait_for_the_next_node_afterwards(hosts: Hosts) -> None:
    def job(name: str, seconds: str, hook: str) -> dict[str, object]:
        called = shlex.join(hosts.witness.words(f"after-{name}", "sleep", "0.1"))
        return hosts.job(name, "sleep", seconds, schedule=NEVER, **{hook: called})

    hosts.write(
        job("short", "1.5", "on_success"), job("endless", "100", "on_failure"), node={"drain_seconds": 6}
    )
    node = hosts.start()
    short, endless = hosts.fire("short"), hosts.fire("endless")
    hosts.witness.wait_start("short"), hosts.witness.wait_start("endless")

    assert node.end(signal.SIGTERM) == 0
    hook = hosts.row(f"{short}/on_success")
    assert hook.outcome == Outcome("succeeded") and hook.attempts[0].node == node.instance
    assert len(hosts.witness.seen("end", "after-short")) == 1
    assert hosts.row(endless).outcome == Outcome("lost", "shutdown", "shutdown")
    assert hosts.row(f"{endless}/on_failure").state == "pending", "there was no time left for it"
    hosts.assert_nothing_is_held()

    hosts.start()
    assert hosts.wait_over(f"{endless}/on_failure").outcome == Outcome("succeeded")
    hosts.end()
    for name in ("short", "endless", "after-short", "after-endless"):
        assert len(hosts.witness.starts(name)) == 1
