"""Reads files and standard input (`-`) as text, or as a document in YAML, TOML or JSON."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from detent.errors import UsageError
from detent.loading.documents import Lines, document_error, parse_json, parse_toml, parse_yaml
from detent.manifest.problems import ManifestError
from detent.text import listed, plural, quote

FILE_MAX = 128 * 2**20  # bytes; a hundred thousand jobs have about a quarter of it

STDIN = Path("-")
_TOML = re.compile(r"^\s*(version|app)\s*=", re.MULTILINE)

PARSERS: dict[str, Callable[[str], tuple[Any, Lines]]] = {
    ".yaml": parse_yaml,
    ".yml": parse_yaml,
    ".toml": parse_toml,
    ".json": parse_json,
}


def read_document(path: str | os.PathLike[str]) -> tuple[Any, Mapping[str, int]]:
    """The document in a file, and the line of each of its paths."""
    file = Path(path)
    parse = PARSERS.get(_suffix_of_stdin() if file == STDIN else file.suffix.lower())
    if parse is None:
        raise UsageError(f"cannot read {quote(str(path))}: its name ends in none of {listed([*PARSERS])}")
    text = read_text(file)
    try:
        return parse(text)
    except ManifestError as error:
        raise ManifestError(error.problems, str(path)) from None


def read_text(path: str | os.PathLike[str]) -> str:
    """The text in a file."""
    content = _read(Path(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        told = document_error("this is not UTF-8 text; save the file as UTF-8", line, column)
        raise ManifestError(told.problems, str(path)) from None


@cache
def _stdin() -> bytes:
    """Standard input can be read only once, and some verbs read their manifest twice."""
    return sys.stdin.buffer.read(FILE_MAX + 1)


def _suffix_of_stdin() -> str:
    """The format of standard input, which has no name to tell it."""
    text = read_text(STDIN)
    if text.lstrip().startswith("{"):
        return ".json"
    return ".toml" if _TOML.search(text) else ".yaml"


def _read(file: Path) -> bytes:
    if file == STDIN:
        return _bounded(_stdin(), file)
    try:
        with file.open("rb") as stream:
            content = stream.read(FILE_MAX + 1)
    except OSError as error:
        raise UsageError(f"cannot read {quote(str(file))}: {_why(error)}") from None
    return _bounded(content, file)


def _bounded(content: bytes, file: Path) -> bytes:
    if len(content) > FILE_MAX:
        raise UsageError(f"cannot read {quote(str(file))}: it has more than {plural(FILE_MAX, 'byte')}")
    return content


def _why(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
