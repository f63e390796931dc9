"""Versions of a document: the whole of it, or what changed since a version that a client has.  Pure.

The fields in `KEYED` are objects whose entries change one by one; every other field is replaced as a whole.
Each field and each entry has the number of the version in which it last changed.
"""

from __future__ import annotations

import json
from typing import Any

KEYED = ("jobs", "marks", "buckets")
GONE_MAX = 5_000  # removed entries that are remembered; older clients get the whole document
ENCODED_MAX = 8  # texts of one version that are kept: most clients have the version before it
DIGITS_MAX = 16  # of the number of a version
Document = dict[str, Any]
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Versions:
    def __init__(self, name: str) -> None:
        """`name` is unique among the processes and documents that a client may have seen."""
        self._name, self._number = name, 0
        self._fields: dict[str, tuple[int, Any]] = {}
        self._entries: dict[str, dict[str, tuple[int, Any]]] = {name: {} for name in KEYED}
        self._gone: dict[tuple[str, str], int] = {}
        self._floor = 0  # deltas from before this version are no longer known
        self._encoded: dict[int | None, str] = {}

    @property
    def version(self) -> str:
        return f"{self._name}.{self._number}"

    def take(self, document: Document) -> bool:
        """Make this the newest version; False if nothing changed."""
        number = self._number + 1
        changed = False
        for field, value in document.items():
            is_new = field not in self._fields or self._fields[field][1] != value
            if field not in KEYED and is_new:
                self._fields[field], changed = (number, value), True
        for field in KEYED:
            changed |= self._take_entries(field, document[field], number)
        if changed or not self._number:
            self._number = number
            self._encoded.clear()
        return changed

    def _take_entries(self, field: str, new: dict[str, Any], number: int) -> bool:
        entries, changed = self._entries[field], False
        for key, value in new.items():
            if key not in entries or entries[key][1] != value:
                entries[key], changed = (number, value), True
                self._gone.pop((field, key), None)
        for key in [key for key in entries if key not in new]:
            del entries[key]
            self._gone[field, key], changed = number, True
        if len(self._gone) > GONE_MAX:
            self._gone.clear()
            self._floor = number
        return changed

    def since(self, version: str | None) -> str:
        """The document as JSON: what changed since the version, or all of it if the version is not known."""
        start = self._known(version or "")
        if start not in self._encoded:
            if len(self._encoded) >= ENCODED_MAX:
                self._encoded.clear()
            self._encoded[start] = _encode(self._whole() if start is None else self._delta(start))
        return self._encoded[start]

    def _known(self, version: str) -> int | None:
        """The number of a version from which a delta is possible."""
        name, _, text = version.rpartition(".")
        if name != self._name or not (text.isascii() and text.isdigit() and len(text) < DIGITS_MAX):
            return None
        return int(text) if max(1, self._floor) <= int(text) <= self._number else None

    def _whole(self) -> Document:
        fields = {field: value for field, (_, value) in self._fields.items()}
        keyed = {field: {key: value for key, (_, value) in self._entries[field].items()} for field in KEYED}
        return {"version": self.version, "since": None, **fields, **keyed}

    def _delta(self, start: int) -> Document:
        found: Document = {"version": self.version, "since": f"{self._name}.{start}"}
        found |= {field: value for field, (number, value) in self._fields.items() if number > start}
        for field in KEYED:
            entries = {key: value for key, (number, value) in self._entries[field].items() if number > start}
            gone = [key for (of, key), number in self._gone.items() if of == field and number > start]
            entries |= dict.fromkeys(gone)
            found |= {field: entries} if entries else {}
        return found
