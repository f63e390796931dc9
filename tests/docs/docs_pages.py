"""The fenced blocks of a page, and what the page says about them in comments that no reader sees.

A comment right before a block is about that block:

- `<!-- not run: WHY -->`: it is neither run nor checked.
- `<!-- file: NAME -->`: it is written to a file of the page's folder.
- `<!-- appended to: NAME -->`: it is written behind what the file has.
- `<!-- added to: NAME -->`: its first line is in the file already; the rest is written below that line.
- `<!-- fragment: job -->`, `<!-- fragment: document -->`: a part of a manifest, checked as such.
- `<!-- wrong -->`: a manifest that is not sound; only its file counts.
- `<!-- goes on -->`: its one command goes on in a terminal of its own until the page is over.
- `<!-- eventually -->`: its commands are repeated until they say what is shown.
- `<!-- exact -->`: times, durations and names in its output are compared too.
- `<!-- needs: PROGRAM -->`: it is left out where this program is not there; `root` is to be root.

What is generated from the code is tested where it comes from, and is no block here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FIRST = [ROOT / "README.md", ROOT / "docs/tutorial.md"]  # the longest one takes the longest
PAGES = [*FIRST, *sorted(page for page in (ROOT / "docs").rglob("*.md") if page not in FIRST)]
LANGUAGES = ("console", "sh", "yaml", "toml", "json", "ini", "python", "crontab", "text")
WRITTEN = ("file", "appended to", "added to")
SAID = ("not run", *WRITTEN, "fragment", "wrong", "goes on", "eventually", "exact", "needs")

_BLOCK = re.compile(r"((?:^<!-- [^\n]* -->\n)*)^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (.*?)(?:: (.*))? -->")
_GENERATED = re.compile(r"<!-- generated: (\S+) -->.*?<!-- end of \1 -->", re.DOTALL)


class Block(NamedTuple):
    """A fenced part of a page."""

    page: Path
    line: int
    language: str
    text: str
    said: Mapping[str, str]  # what the comments before it say

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


class Step(NamedTuple):
    """A command of a session, and what it is shown to answer; nothing shown: anything."""

    command: str
    shown: tuple[str, ...]
    may_fail: bool  # the next command asks for its exit code


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
    """Why nobody would notice if the block were wrong."""
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
