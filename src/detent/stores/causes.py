"""Translates the outcomes that Lua and SQL write to outcomes with a cause.

Lua and SQL decide some outcomes themselves and write them as a kind and a text, without a cause.  This is the
only module that looks into such a text.  It goes when the decisions move into one engine for every store.
"""

from __future__ import annotations

from detent.model import Kind, Outcome
from detent.rules.outcomes import (
    CLAIM_GONE,
    JOB_REMOVED,
    NEWER_INSTANT,
    contended,
    lane_awaited,
    lane_taken,
    node_lost,
    paused,
    replaced_by,
)

_SAME = {("missed", NEWER_INSTANT.reason): NEWER_INSTANT, ("cancelled", JOB_REMOVED.reason): JOB_REMOVED}


def outcome_decided_by_store(kind: Kind, text: str) -> Outcome:
    """The outcome that Lua or SQL means by this kind and text."""
    match kind, text.split(" "):
        case _, ["contended", "by", *holder]:
            return contended(kind, " ".join(holder))
        case "lost", ["with", *node]:
            return node_lost(" ".join(node))
        case "lost", ["no", "longer", "ours"]:
            return CLAIM_GONE
        case "skipped", ["by", *holder]:
            return lane_taken(" ".join(holder))
        case "skipped", ["paused" | "paused:", *why]:
            return paused(" ".join(why))
        case "skipped", [*first, "waits", "already"]:
            return lane_awaited(" ".join(first))
        case "replaced", ["by", *heir]:
            return replaced_by(" ".join(heir))
        case "missed", ["not", "started", "by", _]:
            return Outcome(kind, text, "deadline")
    return _SAME.get((kind, text)) or Outcome(kind, text)
