"""The order of the pings of one fire.

The ping of its start and the ping of its end are fires of their own, which any node may send.  A monitor
that gets the start last reports a job that never ends.  So when a fire ends, a start that was not sent yet is
dropped, and while a start is being sent, the end waits for as long as that can take.
"""

from __future__ import annotations

from detent.model import Fire

START_PING, END_PINGS = "on_start.ping", {"on_success.ping": "", "on_failure.ping": "/fail"}


def start_ping_of(fire: Fire) -> str:
    """Return the key of the ping that is sent when this fire starts, or ""."""
    return f"{fire.key}/{START_PING}" if START_PING in fire.policy.hooks else ""


def ping_delay_s(hook: Fire, is_start_being_sent: bool) -> float:
    """Return how long this hook of an ended fire waits."""
    is_ping = hook.key.rpartition("/")[2] in END_PINGS
    return hook.policy.timeout_s if is_ping and is_start_being_sent else 0.0
