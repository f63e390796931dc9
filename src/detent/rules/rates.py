"""Rate limits of queues: a sliding window over the instants at which attempts were granted.

An attempt starts shortly after its grant, and small steps of a server's clock go unnoticed.  Each attempt
therefore counts a little longer than the window.  For windows below 5 s the margin for clock steps shrinks;
otherwise it would halve a rate per second.

A queue's name may end in `^` and a priority: `mail^high`.  Priority `normal` has no suffix.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from detent.model import Rate, Usage
from detent.rules.trust import STEP_S

START_S = 0.25  # between grant and start
MARGIN_S = START_S + STEP_S
KEEP_S = 3600.0  # charges are kept this long, because a later rate may have a longer window
CHARGES_MAX = 500  # in the list of one name
PRIORITY_MARK = "^"
PRIORITIES = ("high", "normal", "low")


class Charge(NamedTuple):
    """Attempts that were granted at one instant."""

    at: float
    attempts: int


def span_s(rate: Rate) -> float:
    """Return how long an attempt counts."""
    return rate.window_s + min(MARGIN_S, START_S + rate.window_s / 10)


def usage(charges: Sequence[Charge], rate: Rate, now: float) -> Usage:
    """Compute the usage from past charges, the oldest first."""
    live = [Charge(min(at, now), count) for at, count in charges if at > now - span_s(rate)]
    used, free_at = sum(count for _, count in live), now
    surplus = used - rate.most
    for at, count in live:
        if surplus < 0:
            break
        surplus, free_at = surplus - count, at + span_s(rate)
    if rate.smooth and live:
        free_at = max(free_at, live[-1].at + rate.window_s / rate.most)
    return Usage(used, max(0.0, free_at - now))


def charged(charges: Sequence[Charge], rate: Rate, now: float, count: int = 1) -> list[Charge]:
    """Add attempts that are granted now, and drop the charges that no rate counts any more.

    Long lists are shortened: two neighbours become one at the later instant, so that no attempt is early."""
    kept = [one for one in charges if one.at > now - max(span_s(rate), KEEP_S)]
    kept.append(Charge(now, count))
    if len(kept) > CHARGES_MAX:
        pairs = zip(kept[::2], kept[1::2], strict=False)
        kept = [Charge(later.at, one.attempts + later.attempts) for one, later in pairs] + kept[
            len(kept) & ~1 :
        ]
    return kept


def charged_as(queue: str, rate: Rate, rate_key: str) -> str:
    """Return the name under which an attempt counts."""
    name = without_priority(queue)
    return f"{name}/{rate_key}" if rate.by_key else name


def without_priority(queue: str) -> str:
    return queue.partition(PRIORITY_MARK)[0]


def priority_of(queue: str) -> str:
    return queue.partition(PRIORITY_MARK)[2] or "normal"


def with_priority(queue: str, priority: str) -> str:
    return queue if priority == "normal" else f"{queue}{PRIORITY_MARK}{priority}"


def with_priorities(queues: Sequence[str]) -> tuple[str, ...]:
    """Return the names to claim from, in order: the high, normal and low priority of each queue."""
    return tuple(with_priority(queue, priority) for queue in queues for priority in PRIORITIES)


def charges_text(charges: Sequence[Charge], rate: Rate) -> str:
    """The charges, and for how long the last of them counts."""
    return json.dumps([max(span_s(rate), KEEP_S), charges])


def charges_of(text: str) -> tuple[float, list[Charge]]:
    """Read what `charges_text` wrote."""
    lasts_s, charges = json.loads(text) if text else (0.0, ())
    return lasts_s, [Charge(at, count) for at, count in charges]


def rate_text(rate: Rate) -> str:
    return json.dumps(rate._asdict(), separators=(",", ":"))


@lru_cache(maxsize=256)
def rate_of(text: str) -> Rate:
    """Read what `rate_text` wrote, ignoring the fields of newer versions."""
    found = json.loads(text)
    return Rate(**{name: found[name] for name in Rate._fields if name in found})
