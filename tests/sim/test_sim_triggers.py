"""The guarantees where triggers run beside nodes, in virtual time."""

import pytest

from detent.model import Claim
from detent.testing.sim import fleet
from detent.testing.sim.triggers import TriggerSim
from detent.trigger.claims import TriggerClaims


def test_the_guarantees_hold_where_triggers_run_beside_nodes() -> None:
    sim = TriggerSim(2, hours=0.25)
    checker = sim.run()
    assert checker.broken == []
    launched_by_triggers = {
        one.node for ones in checker.launches.values() for one in ones if one.node[0] == "h"
    }
    assert len(launched_by_triggers) > 10
    assert checker.events["sim.trigger-death"] > 0
    assert checker.events["already-launched"] > 10


def test_a_seed_with_triggers_always_gives_the_same_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "CALM_S", 30.0)
    histories = [TriggerSim(7, hours=0.02).run().events for _ in range(2)]
    assert histories[0] == histories[1]


class TakesWhatNodesPlanned(TriggerClaims):
    """The trigger claims from the queue of the nodes."""

    def _ask(self, queue: str, for_hook: bool = False) -> tuple[Claim, ...]:
        return super()._ask("default", for_hook)


class LeavesItsClaim(TriggerClaims):
    """The trigger ends without finishing its claim."""

    def _claim_fire(self, queue: str) -> Claim | None:
        super()._claim_fire(queue)
        return None


@pytest.mark.parametrize("mutant", [TakesWhatNodesPlanned, LeavesItsClaim])
def test_a_bug_planted_into_triggers_is_found(mutant: type[TriggerClaims]) -> None:
    sim = TriggerSim(1, hours=0.1)
    sim.claims_type = mutant
    assert sim.run().broken
