"""The seam of foreign files: what a converter gives back for a crontab, a cronlock file and their like.

Rules: a converter is pure; it gets the text or the parsed document and returns a version 2 manifest as
a file would hold it (texts escaped, variables unexpanded), ready for `check_manifest`.  What has no
equivalent is a warning with the line of the foreign file where it is known; nothing is dropped in
silence.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from detent.manifest.problems import Problem

APP = "default"  # of a foreign file whose name has no letter
FOREIGN = "foreign"  # the code of a warning about what has no equivalent, or another one
NAME_MAX = 63  # characters of a job's name

_NOWHERE: Mapping[str, int] = {}


class Converted(NamedTuple):
    """A foreign file as a version 2 manifest, and what could not be said in it."""

    document: dict[str, Any]
    warnings: tuple[Problem, ...] = ()
    lines: Mapping[str, int] = _NOWHERE  # of the document's paths, in the foreign file
    sources: tuple[str, ...] = ()  # of each job: the text that it was made from, for a comment


def slug(text: str, length: int) -> str:
    """The text as the start of a job's name: lower-case letters, digits and hyphens, cut at a word."""
    words = [word for word in re.split("[^a-z0-9]+", text.lower()) if word]
    while words and not words[0][0].isalpha():
        del words[0]
    made = "-".join(words)
    if len(made) > length:
        cut = made.rfind("-", 0, length + 1)
        made = made[: cut if cut > 0 else length]
    return made.strip("-")


def app_name(text: str) -> str:
    """The app of a foreign file that is named so."""
    return slug(text, NAME_MAX) or APP


def unique(name: str, taken: set[str]) -> str:
    """The name, or with -2, -3, … behind it where it is taken; it is taken from now on."""
    made, count = name, 1
    while made in taken:
        count += 1
        made = f"{name[: NAME_MAX - len(str(count)) - 1]}-{count}"
    taken.add(made)
    return made
