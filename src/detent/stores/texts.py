"""Outcomes and policies as short texts, the same in every store that keeps rows.

Of a policy only what is not the default is written.  What a newer version wrote and we do not know is
passed over: versions work side by side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from detent.model import Outcome, Policy, Retries


def outcome_text(outcome: Outcome) -> str:
    return f"{outcome.kind} {outcome.reason}"


def read_outcome(text: str) -> Outcome:
    kind, _, reason = text.partition(" ")
    return Outcome(kind, reason)  # type: ignore[arg-type]


def outcome_of(text: str | None) -> Outcome | None:
    """None: there is none yet."""
    return None if text is None else read_outcome(text)


@lru_cache(maxsize=4096)  # the same few policies come again and again
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


def _changed(value: Policy | Retries, default: Policy | Retries) -> dict[str, Any]:
    pairs = zip(value._fields, value, default, strict=True)
    return {name: given for name, given, usual in pairs if given != usual}


def _known(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in given.items() if name in names}
