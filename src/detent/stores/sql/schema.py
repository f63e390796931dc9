"""Reads the tables of the SQL stores, in the types of a database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).parent
TABLES, WORLD, COUNTERS = HERE / "tables.sql", HERE / "world.sql", HERE / "counters.sql"
_COLUMN = re.compile(r"^    (\w+) +(name|line|text|real|integer|boolean|bytes|serial)\b(?:\((\d+)\))?", re.M)


def script(files: tuple[Path, ...], types: Mapping[str, str], have: int = 0) -> str:
    """The statements that upgrade a store from version `have`.  A type may have a place for its length."""

    def column(found: re.Match[str]) -> str:
        name, kind, length = found.groups()
        return f"    {name} {types[kind].format(length)}"

    texts = [text for file in files for version, text in _sections(file) if version > have]
    return _COLUMN.sub(column, "\n".join(texts))


def statements(files: tuple[Path, ...], types: Mapping[str, str], have: int = 0) -> Iterator[str]:
    """The statements of `script`, one by one."""
    bare = "\n".join(line.partition("--")[0] for line in script(files, types, have).splitlines())
    yield from (one for one in bare.split(";") if one.strip())


def column_types(types: Mapping[str, str]) -> dict[str, str]:
    """The type of each column.  Columns of the same name have the same type in all tables."""
    found = _COLUMN.findall(TABLES.read_text() + WORLD.read_text())
    return {name: types[kind] for name, kind, _ in found}


def _sections(file: Path) -> Iterator[tuple[int, str]]:
    for section in file.read_text(encoding="utf-8").split("-- version ")[1:]:
        version, _, rest = section.partition("\n")
        yield int(version), rest
