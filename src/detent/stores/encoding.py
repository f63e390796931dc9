"""Outcomes, policies and instants as the stores write them.

A policy is written without its default values.  Fields that a newer version wrote are ignored, so that
versions work side by side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def _changed(value: Policy | Retries, default: Policy | Retries) -> dict[str, Any]:
    pairs = zip(value._fields, value, default, strict=True)
    return {name: given for name, given, usual in pairs if given != usual}


def _known(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in given.items() if name in names}
