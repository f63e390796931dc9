"""Outcomes, policies, instants, notes and graces as the stores write them.

A policy is written without its default values.  Fields that a newer version wrote are ignored, so that
versions work side by side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from detent.clock import instant
from detent.model import Outcome, Policy, Retries


def outcome_text(outcome: Outcome) -> str:
    """JSON in ASCII: a reason may hold a file name that is not valid Unicode."""
    return json.dumps(outcome)


def read_outcome(text: str) -> Outcome:
    return Outcome(*json.loads(text))


@lru_cache(maxsize=256)  # most fires share a few
def outcome_of(text: str | None) -> Outcome | None:
    return None if text is None else read_outcome(text)


@lru_cache(maxsize=4096)  # most fires share a few policies
def policy_text(policy: Policy) -> str:
    changed = _changed(policy, Policy())
    if "retries" in changed:
        changed["retries"] = _changed(policy.retries, Retries())
    return json.dumps(changed, separators=(",", ":")) if changed else ""


@lru_cache(maxsize=4096)
def policy_of(text: str) -> Policy:
    given = json.loads(text) if text else {}
    if "retries" in given:
        given["retries"] = Retries(**_known(given["retries"], Retries._fields))
    return Policy(**_known(given, Policy._fields))


def seconds_of(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def instant_of(seconds: float | str | None) -> datetime | None:
    return None if seconds is None else instant(float(seconds))


# Notes and graces are cells with JSON.  Each keeps how long it lasts, so that no step of a clock extends it.


def note_text(text: str, now: float, steady: float, ttl_s: float) -> str:
    return json.dumps([text, now, steady + ttl_s if ttl_s else None, ttl_s or None])


def live_note(cell: str, steady: float) -> str:
    """The text of a note that has not expired; else ""."""
    text, _, expires, _ = json.loads(cell) if cell else ("", 0, 0.0, 0)
    return str(text) if expires is None or expires > steady else ""


def graces_text(graces: Sequence[tuple[float, float]]) -> str:
    return json.dumps(graces) if graces else ""


def live_graces(cell: str, steady: float) -> list[tuple[float, float]]:
    """The graces of a lane that have not ended: their end, and how long they last."""
    graces = json.loads(cell) if cell else []
    return [(min(end, steady + lasts_s), lasts_s) for end, lasts_s in graces if end > steady]


def _changed(value: Policy | Retries, default: Policy | Retries) -> dict[str, Any]:
    pairs = zip(value._fields, value, default, strict=True)
    return {name: given for name, given, usual in pairs if given != usual}


def _known(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in given.items() if name in names}
