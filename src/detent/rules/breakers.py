"""May a fire go through its circuit breaker?  Closed, it may; open, nobody may for a while; then one probes.

1. So many backend errors in a row open it; whatever else fails neither counts nor breaks the row.
2. Open, what is due is put off until the cooldown is over.  Then the first fire is the probe, and the
   others are put off, a moment at a time, as long as its claim is live.
3. A probe that succeeds closes it, one that meets a backend error opens it for another cooldown; one that
   is lost, or fails otherwise, tells nothing: another may probe.
4. What was granted before it opened and ends afterwards changes nothing.
"""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from detent.model import Outcome

PROBING_S = 1.0  # so long is put off what finds a probe under way


class Circuit(NamedTuple):
    """What is known of a breaker.  With no errors and not opened, nothing is: it is not kept."""

    errors: int = 0  # in a row
    opened: float = 0.0  # when, by the wall clock; 0: it is closed
    fence: int = 0  # of the claim that probes; 0: nobody
    probe: str = ""  # its key


def state_of(circuit: Circuit, cooldown_s: float, now: float) -> Literal["closed", "open", "half-open"]:
    if not circuit.opened:
        return "closed"
    return "open" if _cools_s(circuit, cooldown_s, now) > 0 else "half-open"


def wait_s(circuit: Circuit, cooldown_s: float, now: float, probe_lives: bool) -> float:
    """How long to put off what would go through it now; 0: it may, and probes if it is half-open."""
    if not circuit.opened:
        return 0.0
    if circuit.fence and probe_lives:
        return PROBING_S
    return _cools_s(circuit, cooldown_s, now)


def passed(circuit: Circuit, key: str, fence: int) -> Circuit:
    """A fire went through under this claim."""
    return circuit._replace(fence=fence, probe=key) if circuit.opened else circuit


def ended(circuit: Circuit, fence: int, outcome: Outcome, threshold: int, now: float) -> Circuit:
    """The attempt of this claim ended so."""
    is_error = outcome.kind == "failed" and outcome.cause == "backend"
    if circuit.opened and circuit.fence != fence:
        return circuit
    if outcome.kind == "succeeded":
        return Circuit()
    if not is_error:
        return circuit._replace(fence=0, probe="")
    errors = circuit.errors + 1
    opens = circuit.opened or errors >= threshold
    return Circuit(errors, now if opens else 0.0)


def circuit_text(circuit: Circuit) -> str:
    """Empty: there is nothing to know."""
    return "" if circuit == Circuit() else json.dumps(circuit._asdict(), separators=(",", ":"))


def circuit_of(text: str) -> Circuit:
    found = json.loads(text) if text else {}
    return Circuit(**{name: found[name] for name in Circuit._fields if name in found})


def _cools_s(circuit: Circuit, cooldown_s: float, now: float) -> float:
    """If the clock was set back, no longer than a whole cooldown."""
    return min(max(0.0, circuit.opened + cooldown_s - now), cooldown_s)
