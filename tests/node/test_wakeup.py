"""A node wakes in time for the next fire, however long it is busy after the claim."""

from __future__ import annotations

import asyncio
from typing import Any

from detent.model import Fire, Policy, Query
from detent.testing.sim.fleet import APP, Fleet, Sim

KEY = f"{APP}.skip+1"
PUT_S, DELAY_S = 100.0, 20.0
BUSY_S, SOON_S = 5.0, 1.0


class Busy(Sim):
    """The node is busy between the answer to an ask and its sleep."""

    def make_busy(self) -> None:
        async def dawdle(*_: Any) -> None:
            await asyncio.sleep(BUSY_S)

        self.nodes["m0"]._forgotten_launches.report = dawdle  # type: ignore[method-assign]

    def put(self) -> None:
        fire = Fire(KEY, f"{APP}.skip", self.now(), origin="manual", policy=Policy("Allow"))
        self.store.put([fire], delay_s=DELAY_S)
        self.store.shadow.pushed.add(KEY)


def test_a_node_that_is_busy_after_a_claim_wakes_in_time_for_the_next_fire() -> None:
    sim = Busy(1, "calm", hours=0.1, fleet=Fleet((1, 1), jobs=0, room=8))
    sim.define("skip", 86_400)
    sim.loop.call_later(PUT_S - 1, sim.make_busy)
    sim.loop.call_later(PUT_S, sim.put)
    assert sim.run().broken == []
    [row] = sim.store.find(Query(key=KEY))
    assert row.claimed_at is not None
    late_s = (row.claimed_at - row.fire.due_at).total_seconds() - DELAY_S
    assert 0 <= late_s < SOON_S, f"claimed {late_s:.1f} s late"
