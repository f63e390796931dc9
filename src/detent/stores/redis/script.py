"""The Lua scripts of the Redis store, as functions (Redis 7, Valkey) or for EVALSHA (Redis 6.2).

A server compiles a function once, but sets up the text of a script at every call.  The name of a function
holds the digest of its text, so that versions of detent work side by side.  A function that the server does
not have, for example after a failover, is loaded again.
"""

from __future__ import annotations

from functools import cache, cached_property
from hashlib import sha1

# A script holds only the parts that its verbs need, because EVALSHA sets up all of them at each call.
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
# Most calls need none of these parts; each is set up at its first use.
LATE_PARTS = ("general", "steps", "records", "instances", "lanes", "parked", "gates")
# A full server refuses a whole function, but refuses only the commands of a script that need memory.  So the
# scripts that can free memory are not functions.
SELDOM = (("merge", "queries"), ("gates", "queues"))

# Before Redis 7, a script must ask for the replication of its effects instead of its text.
_EVAL = "if redis.replicate_commands then redis.replicate_commands() end\n{}\nreturn answer()"
_FUNCTION = """#!lua name={name}
local KEYS, ARGV
{text}
redis.register_function("{name}", function(keys, words)
  KEYS, ARGV = keys, words
  return answer()
end)"""


class Script:
    """A Lua text that defines `answer`."""

    def __init__(self, text: str, is_kept: bool) -> None:
        self.text, self.is_kept = text, is_kept  # is_kept: as a function, if the server supports them

    @cached_property
    def whole(self) -> str:
        return _EVAL.format(self.text)

    @cached_property
    def sha(self) -> str:
        return _digest(self.whole)

    @cached_property
    def function(self) -> str:
        return f"detent_{_digest(self.text)[:16]}"

    @cached_property
    def library(self) -> str:
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
    """Wrap a part so that it is set up at its first use."""
    return (
        f"local made_{part}\n"
        f"local function the_{part}()\n"
        f"if not made_{part} then\n"
        f"made_{part} = (function()\n{text}\nreturn {part}\nend)()\n"
        f"end\nreturn made_{part}\nend"
    )


def _digest(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()
