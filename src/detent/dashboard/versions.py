"""Versions of a document: the whole of it, or what changed since a version that a client has.  Pure.

The fields in `KEYED` are objects whose entries change one by one; every other field is replaced as a whole.
Each field and each entry has the number of the version in which it last changed.
"""

import json
from collections.abc import Iterator
from typing import Any

KEYED = ("jobs", "marks", "buckets")
GONE_MAX = 5_000  # removed entries that are remembered; older clients get the whole document
ENCODED_MAX = 8  # texts of one version that are kept: most clients have the version before it
DIGITS_MAX = 16  # of the number of a version
Document = dict[str, Any]
Part = tuple[str, str]  # a field and the key of its entry; "" for a field that is not in `KEYED`
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Versions:
    def __init__(self, name: str) -> None:
        """`name` is unique among the processes and documents that a client may have seen."""
        self._name, self._number = name, 0
        self._parts: dict[Part, tuple[int, Any]] = {}
        self._gone: dict[Part, int] = {}
        self._floor = 0  # deltas from before this version are no longer known
        self._encoded: dict[int | None, str] = {}

    @property
    def version(self) -> str:
        return f"{self._name}.{self._number}"

    def take(self, document: Document) -> bool:
        """Make this the newest version; False if nothing changed."""
        number, parts, new = self._number + 1, self._parts, dict(_parts_of(document))
        changed = {part: one for part, one in new.items() if part not in parts or parts[part][1] != one}
        gone = parts.keys() - new.keys()
        for part, value in changed.items():
            parts[part] = number, value
            self._gone.pop(part, None)
        for part in gone:
            del parts[part]
            self._gone[part] = number
        if len(self._gone) > GONE_MAX:
            self._gone.clear()
            self._floor = number
        if changed or gone:
            self._number = number
            self._encoded.clear()
        return bool(changed or gone)

    def since(self, version: str | None) -> str:
        """The document as JSON: what changed since the version, or all of it if the version is not known."""
        start = self._known(version or "")
        if start not in self._encoded:
            if len(self._encoded) >= ENCODED_MAX:
                self._encoded.clear()
            self._encoded[start] = _encode(self._document(start))
        return self._encoded[start]

    def _known(self, version: str) -> int | None:
        """The number of a version from which a delta is possible."""
        name, _, text = version.rpartition(".")
        if name != self._name or not (text.isascii() and text.isdigit() and len(text) < DIGITS_MAX):
            return None
        return int(text) if max(1, self._floor) <= int(text) <= self._number else None

    def _document(self, start: int | None) -> Document:
        since = None if start is None else f"{self._name}.{start}"
        found: Document = {"version": self.version, "since": since}
        found |= {field: {} for field in KEYED if start is None}
        newer = [(part, value) for part, (number, value) in self._parts.items() if number > (start or 0)]
        gone = [(part, None) for part, number in self._gone.items() if start and number > start]
        for (field, key), value in [*newer, *gone]:
            if field in KEYED:
                found.setdefault(field, {})[key] = value
            else:
                found[field] = value
        return found


def _parts_of(document: Document) -> Iterator[tuple[Part, Any]]:
    for field, value in document.items():
        if field in KEYED:
            yield from (((field, key), one) for key, one in value.items())
        else:
            yield (field, ""), value
