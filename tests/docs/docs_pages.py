"""Reads the fenced blocks of a page, and the HTML comments that say how to test them.

Comments right before a block apply to it:

- `<!-- not run: WHY -->`: the block is not run.
- `<!-- file: NAME -->`: the block is written to this file.
- `<!-- appended to: NAME -->`: the block is appended to this file.
- `<!-- added to: NAME -->`: the file has the first line of the block; the rest is inserted below that line.
- `<!-- fragment: job -->`, `<!-- fragment: document -->`: the block is a part of a manifest.
- `<!-- wrong -->`: the block is an invalid manifest; it is only written to its file.
- `<!-- goes on -->`: the command of the block runs in another terminal until the page ends.
- `<!-- eventually -->`: each command is repeated until its output matches.
- `<!-- exact -->`: times, durations and names must be equal too.
- `<!-- needs: PROGRAM -->`: the block is left out if the program is missing; `root` means the user root.

Generated parts of a page are left out: they are tested with the code that they come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FIRST = [ROOT / "README.md", ROOT / "docs/tutorial.md"]  # the slowest pages start first
PAGES = [*FIRST, *sorted(page for page in (ROOT / "docs").rglob("*.md") if page not in FIRST)]
LANGUAGES = ("console", "sh", "yaml", "toml", "json", "ini", "python", "crontab", "text")
WRITTEN = ("file", "appended to", "added to")
SAID = ("not run", *WRITTEN, "fragment", "wrong", "goes on", "eventually", "exact", "needs")

_BLOCK = re.compile(r"((?:^<!-- [^\n]* -->\n)*)^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (.*?)(?:: (.*))? -->")
_GENERATED = re.compile(r"<!-- generated: (\S+) -->.*?<!-- end of \1 -->", re.DOTALL)


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str
    said: Mapping[str, str]  # the comments before it

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


class Step(NamedTuple):
    """A command of a session and its output on the page.  Without output on the page, any output is right."""

    command: str
    shown: tuple[str, ...]
    may_fail: bool  # the next command prints its exit code


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    text = _GENERATED.sub(lambda part: "\n" * part[0].count("\n"), page.read_text())
    return [
        Block(page, text.count("\n", 0, match.start(2)) + 1, match[2], match[3], _said(match[1]))
        for match in _BLOCK.finditer(text)
    ]


def _said(comments: str) -> dict[str, str]:
    return {match[1]: match[2] or "" for match in _COMMENT.finditer(comments)}


def faults_of(block: Block) -> Iterator[str]:
    """Yield the reasons why the block would not be tested."""
    for word in block.said:
        if word not in SAID:
            yield f"{block.place}: there is no comment {word!r}; there are {', '.join(SAID)}"
    if "not run" in block.said and len(block.said["not run"]) < 10:
        yield f"{block.place}: say why it is not run"
    if block.language not in LANGUAGES and "not run" not in block.said:
        yield f"{block.place}: nothing runs a block of {block.language!r}: say why not, or use another"


def steps_of(block: Block) -> list[Step]:
    """The commands of a block of the language console or sh."""
    if block.language == "sh":
        return [Step(block.text, (), may_fail=False)]
    commands: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif commands and commands[-1][0].endswith("\\") and not commands[-1][1]:
            commands[-1] = (f"{commands[-1][0]}\n{line}", [])
        elif commands:
            commands[-1][1].append(line)
        else:
            raise AssertionError(f"{block.place}: a session begins with `$ `")
    following = [command for command, _ in commands[1:]] + [""]
    return [
        Step(command, tuple(shown), may_fail=after == "echo $?")
        for (command, shown), after in zip(commands, following, strict=True)
    ]
