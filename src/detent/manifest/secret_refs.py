"""References to secrets: what they name, without reading it.

`env:NAME`, `file:/path` and `raw:literal` are references; any other text is a name.  A name is looked up in
the table of secrets, then in the environment.  A value of the table is a reference or the secret itself.
A secret never appears in a repr, a message or a displayed reference.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from detent.errors import UsageError
from detent.model import Alert, Job, Push, Request
from detent.text import is_unicode


class Secret:
    """A text to sign with.  Its repr does not show it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if problem := secret_fault(text):
            raise UsageError(f"a secret {problem}; give it a text in UTF-8")
        self._text = text

    def key(self) -> bytes:
        return self._text.encode()

    def __repr__(self) -> str:
        return "Secret(…)"


class Variable(NamedTuple):
    """An environment variable that holds the secret."""

    name: str


class File(NamedTuple):
    """A file whose content is the secret."""

    path: str


class BadReference(NamedTuple):
    """A reference that cannot lead to a secret."""

    why: str


Place = Variable | File | Secret | BadReference


def locate_secret(ref: str, table: Mapping[str, str]) -> Place:
    """Return where the secret of this name or reference is."""
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
            is_absolute = rest.startswith("/")
            return File(rest) if is_absolute else BadReference('"file:" needs a path that starts with /')
        case "raw:":
            return _literal(rest)
    return None


def _literal(text: str) -> Secret | BadReference:
    problem = secret_fault(text)
    return BadReference(f"it {problem}") if problem else Secret(text)


def secret_fault(text: str) -> str:
    """Return why this text cannot be a secret; empty if it can."""
    if not text:
        return "is empty"
    return "" if is_unicode(text) else "is not UTF-8 text"


def display_ref(ref: str) -> str:
    """Return the reference for messages: `raw:` contains the secret itself."""
    return "raw:…" if ref.startswith("raw:") else ref


def refs_of(jobs: Iterable[Job]) -> tuple[str, ...]:
    """Return the references to secrets in the work and the hooks of these jobs."""
    works = (work for job in jobs for work in (job.work, *job.hooks.values()))
    refs = [ref for work in works if isinstance(work, Request | Push | Alert) for ref in work.secret_refs]
    return tuple(dict.fromkeys(refs))


def secret_variables(refs: Iterable[str], table: Mapping[str, str]) -> set[str]:
    """Return the environment variables that hold secrets, which commands must not inherit."""
    places = [locate_secret(ref, table) for ref in (*refs, *table)]
    return {place.name for place in places if isinstance(place, Variable)}
