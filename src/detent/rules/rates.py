"""How soon may one more begin?  A sliding window over the instants at which the last ones were granted.

An attempt begins a moment after it was granted, and a small step of a server's clock is not noticed.  So an
attempt counts for a little longer than the window: no window has one too many.  A window shorter than 5 s
covers a smaller step only: else a rate a second would be halved for the sake of a rare step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from detent.model import Rate, Usage
from detent.rules.trust import STEP_S

START_S = 0.25  # between grant and start
MARGIN_S = START_S + STEP_S  # and for a step that is not noticed
PRIORITY_MARK = "^"  # between a queue's name and a priority other than the usual one
PRIORITIES = ("high", "normal", "low")


def span_s(rate: Rate) -> float:
    """For how long a charge counts."""
    return rate.window_s + min(MARGIN_S, START_S + rate.window_s / 10)


def usage(charges: Sequence[float], rate: Rate, now: float) -> Usage:
    """`charges` are readings of one clock, growing; those older than the window may be among them."""
    live = [at for at in charges if at > now - span_s(rate)]
    free_at = now
    if len(live) >= rate.most:
        free_at = live[-rate.most] + span_s(rate)
    if rate.smooth and live:
        free_at = max(free_at, live[-1] + rate.window_s / rate.most)
    return Usage(len(live), max(0.0, free_at - now))


def charged_as(queue: str, rate: Rate, rate_key: str) -> str:
    """The name under which an attempt of this queue is counted."""
    name = without_priority(queue)
    return f"{name}/{rate_key}" if rate.by_key else name


def without_priority(queue: str) -> str:
    """The queue's name without the priority."""
    return queue.partition(PRIORITY_MARK)[0]


def priority_of(queue: str) -> str:
    return queue.partition(PRIORITY_MARK)[2] or "normal"


def with_priority(queue: str, priority: str) -> str:
    """The name under which messages of this priority are put."""
    return queue if priority == "normal" else f"{queue}{PRIORITY_MARK}{priority}"


def with_priorities(queues: Sequence[str]) -> tuple[str, ...]:
    """What to ask for, in order: each queue's urgent messages, its usual ones, the rest."""
    return tuple(with_priority(queue, priority) for queue in queues for priority in PRIORITIES)


def rate_text(rate: Rate) -> str:
    return json.dumps(rate._asdict(), separators=(",", ":"))


@lru_cache(maxsize=256)
def rate_of(text: str) -> Rate:
    """What a newer version wrote beside is passed over."""
    found = json.loads(text)
    return Rate(**{name: found[name] for name in Rate._fields if name in found})
