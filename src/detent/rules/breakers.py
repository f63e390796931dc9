"""Decides whether a fire may pass its circuit breaker.

1. A breaker opens after a number of consecutive backend errors.  Other failures neither count nor reset the
   count.
2. While it is open, due fires are delayed until the cooldown is over.  Then one fire probes the backend.  The
   others are delayed by `PROBING_S` at a time while the claim of the probe is live.
3. A successful probe closes the breaker.  A backend error starts another cooldown.  A probe that is lost, or
   fails in another way, proves nothing: the next fire probes.
4. A fire that was granted before the breaker opened does not change it.
"""

import json
from typing import Literal, NamedTuple

from detent.model import Outcome

PROBING_S = 1.0  # delay for fires that find a probe running


class Circuit(NamedTuple):
    """The state of a breaker.  The default state is not stored."""

    errors: int = 0  # consecutive
    opened: float = 0.0  # wall clock; 0: closed
    probe: str = ""  # key of the fire that probes; "": none


def state_of(circuit: Circuit, cooldown_s: float, now: float) -> Literal["closed", "open", "half-open"]:
    if not circuit.opened:
        return "closed"
    return "open" if _cooldown_left_s(circuit, cooldown_s, now) > 0 else "half-open"


def wait_s(circuit: Circuit, cooldown_s: float, now: float, probe_lives: bool) -> float:
    """Return how long to delay a fire; 0: it may start, as the probe if the breaker is half-open."""
    if not circuit.opened:
        return 0.0
    if circuit.probe and probe_lives:
        return PROBING_S
    return _cooldown_left_s(circuit, cooldown_s, now)


def after_grant(circuit: Circuit, key: str) -> Circuit:
    return circuit._replace(probe=key) if circuit.opened else circuit


def after_attempt(circuit: Circuit, key: str, outcome: Outcome, threshold: int, now: float) -> Circuit:
    if circuit.opened and circuit.probe != key:
        return circuit
    if outcome.kind == "succeeded":
        return Circuit()
    if outcome.kind != "failed" or outcome.cause != "backend":
        return circuit._replace(probe="")
    errors = circuit.errors + 1
    opens = circuit.opened or errors >= threshold
    return Circuit(errors, now if opens else 0.0)


def circuit_text(circuit: Circuit) -> str:
    """Return JSON, or "" for the default state."""
    return "" if circuit == Circuit() else json.dumps(circuit._asdict(), separators=(",", ":"))


def circuit_of(text: str) -> Circuit:
    """Read what `circuit_text` wrote, ignoring the fields of newer versions."""
    found = json.loads(text) if text else {}
    return Circuit(**{name: found[name] for name in Circuit._fields if name in found})


def _cooldown_left_s(circuit: Circuit, cooldown_s: float, now: float) -> float:
    """At most one whole cooldown, also if the clock was set back."""
    return min(max(0.0, circuit.opened + cooldown_s - now), cooldown_s)
