"""A repeated ask gets the grants of the first one, and nothing that became due since."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from detent.errors import StoreUnavailable
from detent.model import Fire, Policy, Query
from detent.testing.sim.fleet import APP, Fleet, Sim

KEY = f"{APP}.skip+1"
DEAF_S, DUE_S, HEARS_S = 100.0, 115.0, 130.3
SOON_S = 2.0


class HalfDeaf(Sim):
    """For a while, the node gets no answer to its asks, although the store receives them."""

    def offload(self, instance: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        way = super().offload(instance)

        async def call(line: str, method: Callable[..., Any], *args: Any) -> Any:
            answer = await way(line, method, *args)
            if line == "look" and DEAF_S < self.loop.time() < HEARS_S:
                raise StoreUnavailable("the answer is lost")
            return answer

        return call

    def put(self) -> None:
        fire = Fire(KEY, f"{APP}.skip", self.now(), origin="manual", policy=Policy("Allow"))
        self.store.put([fire], delay_s=DUE_S - self.loop.time())
        self.store.shadow.pushed.add(KEY)

    def call_otherwise(self) -> None:
        """A call that is no ask gets the first answer, and reports that the store is back."""
        self.loop.create_task(self.nodes["m0"].call("report", self.store.notes, APP))


def test_a_fire_that_became_due_during_a_repeated_ask_is_claimed_at_once() -> None:
    sim = HalfDeaf(1, "calm", hours=0.2, fleet=Fleet((1, 1), jobs=0, room=8))
    sim.define("skip", 86_400)
    sim.checker.is_punctual = False
    sim.loop.call_later(DEAF_S + 1, sim.put)
    sim.loop.call_later(HEARS_S, sim.call_otherwise)
    assert sim.run().broken == []
    [row] = sim.store.find(Query(key=KEY))
    assert row.claimed_at is not None
    late_s = (row.claimed_at - row.fire.due_at).total_seconds() - (HEARS_S - DEAF_S - 1)
    assert 0 < late_s < SOON_S, f"claimed {late_s:.1f} s after the store was heard again"
