"""Secrets, and what a reference to one names, without looking there.

- `env:NAME`, `file:/path` and `raw:literal` say where a secret is; anything else is a bare name.
- A bare name is looked up in the table of secrets first, then in the environment.  What the table
  holds is again one of the three, or else the secret itself.
- A secret is never shown: not by its repr, not in a message, not by a reference that contains it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from detent.errors import UsageError
from detent.text import is_unicode


class Secret:
    """A text to sign with, which shows itself to nobody by accident."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if problem := secret_fault(text):
            raise UsageError(f"a secret {problem}; give it a text in UTF-8")
        self._text = text

    def key(self) -> bytes:
        """The bytes that go into a signature."""
        return self._text.encode()

    def __repr__(self) -> str:
        return "Secret(…)"


class Variable(NamedTuple):
    """The secret is in the environment."""

    name: str


class File(NamedTuple):
    """The secret is what a file contains."""

    path: str


class BadReference(NamedTuple):
    """There is no secret, whatever the environment and the files hold."""

    why: str


Place = Variable | File | Secret | BadReference


def locate_secret(ref: str, table: Mapping[str, str]) -> Place:
    """Where the secret of this name or reference is to be found."""
    if place := _explicit(ref):
        return place
    if ref not in table:
        return Variable(ref)
    return _explicit(table[ref]) or _literal(table[ref])


def _explicit(ref: str) -> Place | None:
    kind, colon, rest = ref.partition(":")
    match kind + colon:
        case "env:":
            return Variable(rest) if rest else BadReference('"env:" names no variable')
        case "file:":
            return (
                File(rest)
                if rest.startswith("/")
                else BadReference('"file:" needs a path that starts with /')
            )
        case "raw:":
            return _literal(rest)
    return None


def _literal(text: str) -> Secret | BadReference:
    problem = secret_fault(text)
    return BadReference(f"it {problem}") if problem else Secret(text)


def secret_fault(text: str) -> str:
    """Why this text cannot be a secret; empty if it can."""
    if not text:
        return "is empty"
    return "is not UTF-8 text" if not is_unicode(text) else ""


def display_ref(ref: str) -> str:
    """The reference as messages may name it: `raw:` contains the secret."""
    return "raw:…" if ref.startswith("raw:") else ref


def secret_variables(refs: Iterable[str], table: Mapping[str, str]) -> set[str]:
    """The environment variables that hold secrets, so that no command is given them."""
    places = [locate_secret(ref, table) for ref in (*refs, *table)]
    return {place.name for place in places if isinstance(place, Variable)}
