"""The processes of a race on a queue.  A module of its own, so that they start with few imports."""

from __future__ import annotations

from typing import Any

from detent.clock import monotonic
from detent.model import Ask, Query, Report
from detent.rules.rates import with_priorities
from detent.stores.base import Store
from detent.testing.stores.fixtures import DONE

QUEUES = with_priorities(["mail"])
PROBED_S, TURNS_MIN = 0.7, 30  # a breaker is asked for so long, and so often on a machine that is busy
LOOK_EVERY = 10  # turns: is anything left?


def claim_on(store: Store, number: int) -> list[Any]:
    """Ask until nothing is left; returns when each attempt began, by the store's clock."""
    began, turn = list[float](), 0
    while turn % LOOK_EVERY or store.find(Query(state="pending", limit=1)):
        turn += 1
        claims = store.claim(Ask("a", f"n{number}", turn, 1 + number % 3, QUEUES)).claims
        began += [claim.expires_at.timestamp() - claim.ttl_s for claim in claims]
        store.finish([Report(claim, DONE) for claim in claims])
    return began


def probe(store: Store, number: int) -> list[Any]:
    """Ask without a pause, and finish nothing."""
    probes, turn, until = list[str](), 0, monotonic() + PROBED_S
    while turn < TURNS_MIN or monotonic() < until:
        turn += 1
        probes += [claim.fire.key for claim in store.claim(Ask("a", f"n{number}", turn, 1, QUEUES)).claims]
    return probes
