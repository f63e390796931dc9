"""The Lua scripts of the Redis store, for EVALSHA."""

from __future__ import annotations

from functools import cache
from hashlib import sha1

SCRIPTS = ("look", "commit", "steps", "find")
# Before Redis 7, a script must ask for the replication of its effects instead of its text.
_START = "if redis.replicate_commands then redis.replicate_commands() end\n"


class Script:
    def __init__(self, text: str) -> None:
        self.text = _START + text
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@cache
def script_of(name: str) -> Script:
    return Script("\n".join(map(_text_of, ("header", "records", name))))


def _text_of(part: str) -> str:
    with open(f"{__file__.rpartition('/')[0]}/lua/{part}.lua", encoding="utf-8") as file:  # noqa: PTH123
        return file.read()
