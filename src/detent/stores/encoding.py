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
from detent.stores.causes import outcome_decided_by_store

_END = "\x1f"  # ends a reason that Python wrote; Lua and SQL write none


def outcome_text(outcome: Outcome) -> str:
    """A kind, a cause, a reason and another fire or node: `skipped lane: a.b@1 is still running␟a.b@1`.

    The kind and the cause come first: Lua and SQL look for `succeeded ` and for `failed backend: `."""
    return f"{outcome.kind} {stop_text(outcome)}"


def stop_text(outcome: Outcome) -> str:
    """The text of an outcome without its kind."""
    return f"{outcome.cause}: {outcome.reason}{_END}{outcome.by}"


def read_outcome(text: str) -> Outcome:
    kind, _, rest = text.partition(" ")
    told, end, by = rest.rpartition(_END)
    if not end:
        return outcome_decided_by_store(kind, rest)  # type: ignore[arg-type]
    cause, _, reason = told.partition(": ")
    return Outcome(kind, reason, cause, by)  # type: ignore[arg-type]


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
