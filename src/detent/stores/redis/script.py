"""The Lua scripts of the Redis store, as functions (Redis 7, Valkey) or for EVALSHA (Redis 6.2).

A server compiles a function once, but sets up the text of a script at every call.  The name of a function
holds the digest of its text, so that versions of detent work side by side.  A function that the server does
not have, for example after a failover, is loaded again.
"""

from __future__ import annotations

from functools import cache, cached_property
from hashlib import sha1

PARTS = {
    "look": ("header", "records", "look"),
    "commit": ("header", "records", "commit"),
    "free": ("header", "records", "commit"),
    "steps": ("header", "records", "steps"),
    "find": ("find",),
    "tidy": ("header", "tidy"),
}
# A full server refuses a whole function, but refuses only the commands of a script that need memory.  So the
# scripts that can free memory are not functions.
NO_FUNCTIONS = ("free", "find", "tidy")

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
def script_of(name: str) -> Script:
    return Script("\n".join(map(_text_of, PARTS[name])), name not in NO_FUNCTIONS)


def _text_of(part: str) -> str:
    with open(f"{__file__.rpartition('/')[0]}/lua/{part}.lua", encoding="utf-8") as file:  # noqa: PTH123
        return file.read()


def _digest(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()
