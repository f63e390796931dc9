"""Reads files and standard input (`-`) as text, or as a document in YAML, TOML or JSON."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from detent.errors import UsageError
from detent.loading.documents import Lines, parse_json, parse_toml, parse_yaml
from detent.manifest.problems import ManifestError, Problem
from detent.text import listed, plural, quote

FILE_MAX = 128 * 2**20  # bytes; 100,000 jobs need about a quarter of it

STDIN = Path("-")
_TOML = re.compile(r"^\s*(version|app)\s*=", re.MULTILINE)

PARSERS: dict[str, Callable[[str], tuple[Any, Lines]]] = {
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".toml": parse_toml,
    ".json": parse_json,
}


def read_document(path: str | os.PathLike[str]) -> tuple[Any, Mapping[str, int]]:
    """Return the document in a file, and the line of each of its paths."""
    file = Path(path)
    parse = PARSERS.get(_suffix_of_stdin() if file == STDIN else file.suffix.lower())
    if parse is None:
        raise UsageError(f"cannot read {quote(str(path))}: its name must end in {listed([*PARSERS])}")
    text = read_text(file)
    try:
        return parse(text)
    except ManifestError as error:
        raise ManifestError(error.problems, str(path)) from None


def read_text(path: str | os.PathLike[str]) -> str:
    content = _read(Path(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        problem = Problem("", "this is not UTF-8 text", line, column, advice="save the file as UTF-8")
        raise ManifestError([problem], str(path)) from None


@cache
def _stdin() -> bytes:
    """Return standard input.  It is cached, because some verbs read their manifest twice."""
    return sys.stdin.buffer.read(FILE_MAX + 1)


def _suffix_of_stdin() -> str:
    """Guess the format of standard input from its content."""
    text = read_text(STDIN)
    if text.lstrip().startswith("{"):
        return ".json"
    return ".toml" if _TOML.search(text) else ".yaml"


def _read(file: Path) -> bytes:
    try:
        if file == STDIN:
            content = _stdin()
        else:
            with file.open("rb") as stream:
                content = stream.read(FILE_MAX + 1)
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise UsageError(f"cannot read {quote(str(file))}: {why}") from None
    if len(content) > FILE_MAX:
        raise UsageError(f"cannot read {quote(str(file))}: it has more than {plural(FILE_MAX, 'byte')}")
    return content
