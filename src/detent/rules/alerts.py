"""Decides which alerts are sent.

1. An alert of `on_failure` or `on_skip` is sent when the job begins to fail (or to be skipped), again after
   `remind_s` while that goes on, and once when the job succeeds again.  Other alerts are sent for each fire.
2. The store keeps the state in a note for each job and address.  It decides in the commit that settles the
   fire, so that no two nodes send the same alert.
3. An alert that could not be delivered does not count: the next fire that fails sends it.
"""

import json
from hashlib import sha256
from typing import NamedTuple

from detent.clock import instant
from detent.model import Fire, Outcome

REPEATED = ("on_failure", "on_skip")  # events that are alerted once, not for each fire
_DIGITS = 8  # of the hash of an address


class Trouble(NamedTuple):
    """What an address knows of a job.  The default state, all is well, is not stored."""

    since: float = 0.0  # wall clock; 0: all is well
    sent: float = 0.0  # wall clock of the last alert; 0: none arrived
    fires: int = 0  # that failed, or were skipped


def alert_name(event: str, service: str, address: str) -> str:
    """Return the name of an alert's hook, such as on_failure.slack-3f2a9c01."""
    return f"{event}.{service}-{sha256(address.encode()).hexdigest()[:_DIGITS]}"


def is_alert(hook: str) -> bool:
    return "-" in hook


def is_repeated(hook: str) -> bool:
    """Return whether the hook is an alert that is not sent for each fire."""
    return is_alert(hook) and hook.partition(".")[0] in REPEATED


def judge_alert(hook: Fire, trouble: Trouble, now: float) -> tuple[Trouble, Fire | None]:
    """Return the next state, and the fire that sends the alert; None: there is nothing to send."""
    details = json.loads(hook.payload)
    if details["outcome"] == "succeeded":
        return Trouble(), _telling(hook, details, "recovered", trouble) if trouble.since else None
    after = Trouble(trouble.since or now, trouble.sent, trouble.fires + 1)
    if trouble.sent and trouble.sent <= now < trouble.sent + hook.policy.remind_s:
        return after, None
    state = "continues" if trouble.since else "began"
    return after._replace(sent=now), _telling(hook, details, state, after)


def after_sending(trouble: Trouble, outcome: Outcome) -> Trouble:
    return trouble if outcome.kind == "succeeded" else trouble._replace(sent=0.0)


def _telling(hook: Fire, details: dict[str, object], state: str, trouble: Trouble) -> Fire:
    since = instant(trouble.since).isoformat(timespec="seconds")[:19] + "Z"
    return hook._replace(
        payload=json.dumps({**details, "state": state, "since": since, "fires": trouble.fires})
    )


def trouble_text(trouble: Trouble) -> str:
    """Return JSON, or "" if all is well."""
    return json.dumps(trouble._asdict(), separators=(",", ":")) if trouble.since else ""


def trouble_of(text: str) -> Trouble:
    """Read what `trouble_text` wrote, ignoring the fields of newer versions."""
    found = json.loads(text) if text else {}
    return Trouble(**{name: found[name] for name in Trouble._fields if name in found})
