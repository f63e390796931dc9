"""The scripts of the Redis store, and the two forms in which a server takes one.

A server that knows functions (Redis 7, Valkey) keeps a script that is called often as one: it reads the text
once, where a script's text is set up at each call.  Another one has it by EVALSHA, of the same text.  A
function's name holds the digest of its text, so that versions of detent work side by side; one that a server
does not have (it forgot it, or was promoted) is loaded again.
"""

from __future__ import annotations

from functools import cache, cached_property
from hashlib import sha1

# A script holds only what its verbs need: by EVALSHA the server sets all of it up at each call.
CLAIM = ("instances", "lanes", "parked", "gates", "grants", "quick_claim", "candidates", "claim")
PARTS = {
    ("claim", "declare_dead"): CLAIM,
    ("renew", "finish", "cancel"): ("records", "gates", "quick_finish", "settle"),
    ("finish_and_claim",): (*CLAIM, "records", "quick_finish", "settle", "finish_and_claim"),
    ("look", "set_jobs", "advance", "put"): ("records", "plan"),
    ("find", "prune_surplus", "prune_old", "prune_jobs", "tidy_up", "note", "notes"): ("merge", "queries"),
    ("charge", "reset", "forget", "count"): ("gates", "queues"),
}
FIRST, LAST = ("header", "messages", "general", "fires", "steps"), "call"
LATE_PARTS = (
    "general",
    "steps",
    "records",
    "instances",
    "lanes",
    "parked",
    "gates",
)  # which most calls do without
# A full server refuses a function as a whole, and of a script only what would take more: pruning gives back.
SELDOM = (("merge", "queries"), ("gates", "queues"))

# Before 7, what a script does is not replicated in place of the script itself unless it says so.
_EVAL = "if redis.replicate_commands then redis.replicate_commands() end\n{}\nreturn answer()"
_FUNCTION = """#!lua name={name}
local KEYS, ARGV
{text}
redis.register_function("{name}", function(keys, words)
  KEYS, ARGV = keys, words
  return answer()
end)"""


class Script:
    """A text that defines `answer`."""

    def __init__(self, text: str, is_kept: bool) -> None:
        self.text, self.is_kept = text, is_kept  # is_kept: as a function, where the server can

    @cached_property
    def whole(self) -> str:
        """For EVAL."""
        return _EVAL.format(self.text)

    @cached_property
    def sha(self) -> str:
        """For EVALSHA."""
        return _digest(self.whole)

    @cached_property
    def function(self) -> str:
        """For FCALL."""
        return f"detent_{_digest(self.text)[:16]}"

    @cached_property
    def library(self) -> str:
        """For FUNCTION LOAD."""
        return _FUNCTION.format(name=self.function, text=self.text)


@cache
def script_of(verb: str) -> Script:
    parts = next(parts for verbs, parts in PARTS.items() if verb in verbs)
    return Script("\n".join(map(_text_of, (*FIRST, *parts, LAST))), parts not in SELDOM)


def _text_of(part: str) -> str:
    with open(f"{__file__.rpartition('/')[0]}/lua/{part}.lua", encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    return _set_up_late(part, text) if part in LATE_PARTS else text


def _set_up_late(part: str, text: str) -> str:
    """At its first use."""
    return (
        f"local made_{part}\n"
        f"local function the_{part}()\n"
        f"if not made_{part} then\n"
        f"made_{part} = (function()\n{text}\nreturn {part}\nend)()\n"
        f"end\nreturn made_{part}\nend"
    )


def _digest(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()
