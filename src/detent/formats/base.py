"""What all converters of foreign files share.

A converter is pure.  It takes a text or a parsed document, and returns a version 2 manifest for
`check_manifest`, with escaped texts and unexpanded variables.  Each setting without an equivalent is a
warning with its line.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from detent.manifest.problems import Problem

APP = "default"  # for a foreign file whose name has no letter
FOREIGN = "foreign"  # the code of warnings about settings without an exact equivalent
NAME_MAX = 63  # characters of a job's name
GO_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}

_GO_AMOUNT = r"(\d+\.?\d*|\.\d+)(" + "|".join(sorted(GO_UNITS_S, key=len, reverse=True)) + ")"


class Converted(NamedTuple):
    """A foreign file as a version 2 manifest."""

    document: dict[str, Any]
    warnings: tuple[Problem, ...] = ()
    lines: Mapping[str, int] = {}  # path of the document → line of the foreign file
    sources: tuple[str, ...] = ()  # for each job, its original text for a comment


class LocalContext(NamedTuple):
    """The properties of the machine that a file depends on."""

    timezone: str = "UTC"
    app: str = APP
    homes: Mapping[str, str] = {}  # of users, for a crontab; "" is the user of the node
    variables: Mapping[str, str] = {}  # of the environment, for a cronlock file
    answers: Callable[[str], bool] = lambda address: False  # whether a Redis answers at an address


def slug(text: str, length: int) -> str:
    """Convert a text to a job's name: lower-case letters, digits and hyphens, cut after a word."""
    words = [word for word in re.split("[^a-z0-9]+", text.lower()) if word]
    while words and not words[0][0].isalpha():
        del words[0]
    made = "-".join(words)
    if len(made) > length:
        cut = made.rfind("-", 0, length + 1)
        made = made[: cut if cut > 0 else length]
    return made.strip("-")


def app_name(text: str) -> str:
    """Return the app's name for the name of a foreign file."""
    return slug(text, NAME_MAX) or APP


def unique(name: str, taken: set[str]) -> str:
    """Return the name, with -2, -3, … if it is taken, and add it to the taken names."""
    made, count = name, 1
    while made in taken:
        count += 1
        made = f"{name[: NAME_MAX - len(str(count)) - 1]}-{count}"
    taken.add(made)
    return made


def go_duration(text: str) -> float | None:
    """Return the seconds of a duration in Go's syntax, like 1h30m, or None if the text is not one."""
    found = re.fullmatch(f"([-+]?)((?:{_GO_AMOUNT})+)", text)
    if not found:
        return None
    amounts = re.findall(_GO_AMOUNT, found[2])
    total = round(sum(float(number) * GO_UNITS_S[unit] for number, unit in amounts), 9)
    return -total if found[1] == "-" else total


class Expanded(NamedTuple):
    """A text with its variables expanded."""

    plain: str | None  # None if a value is only known at run time
    shell: str  # quoted for the shell, which expands the unknown variables


def expand_references(
    text: str, pattern: re.Pattern[str], value_of: Callable[[re.Match[str]], str | None]
) -> Expanded:
    """Expand the references in a text.  `value_of` returns None for a variable that only the shell knows; its
    name is the first group of the pattern."""
    plain, shell, at, is_known = "", "", 0, True
    for match in pattern.finditer(text):
        before, value = text[at : match.start()], value_of(match)
        plain += before + (value or "")
        shell += _quoted(before) + (f'"${match[1]}"' if value is None else _quoted(value))
        is_known = is_known and value is not None
        at = match.end()
    plain, shell = plain + text[at:], shell + _quoted(text[at:])
    return Expanded(plain, shlex.quote(plain)) if is_known else Expanded(None, shell)


def _quoted(text: str) -> str:
    return shlex.quote(text) if text else ""
