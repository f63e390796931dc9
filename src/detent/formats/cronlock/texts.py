"""The texts of a cronlock file: variables, and Go's durations.

- `${VAR}` gets an empty default, because an unset variable is empty in cronlock; there is a warning if it
  is unset. In a command, any other dollar is for the shell.
- A duration has numbers with units (`1h30m`, `1.5h`, `300ms`).  Go reads a number without a unit as
  nanoseconds, which is never intended: it is refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from detent.errors import UsageError
from detent.formats.base import go_duration
from detent.manifest.problems import escape_dollars
from detent.schedules.timetable import period_text
from detent.text import quote, show

_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_EITHER = re.compile(_BRACED.pattern + r"|\$([A-Za-z_][A-Za-z0-9_]*)")
_WRITTEN = re.compile(_BRACED.pattern + r"|\$\$")

Report = Callable[[str, str], None]  # takes a path and a message


def parse_duration(given: Any) -> float | None:
    """Return a duration in seconds, or None if none was given."""
    if given is None or given == "":
        return None
    if given in (0, "0") and type(given) is not bool:
        return 0.0
    if type(given) in (int, float) or (type(given) is str and re.fullmatch(r"[-+]?[\d.]+", given)):
        raise UsageError(
            f"is {given} without a unit, which Go reads as nanoseconds: suspiciously small;"
            f" write {str(given).lstrip('-+')}s for seconds"
        )
    seconds = go_duration(given) if type(given) is str else None
    if seconds is None:
        raise UsageError(f"must be a duration like 30s, 5m or 1h30m, got {show(given)}")
    return seconds


class Texts:
    """Converts texts with variables to the syntax of a manifest."""

    def __init__(self, variables: Mapping[str, str], problem: Report, warn: Report) -> None:
        self._variables, self._problem, self._warn = variables, problem, warn

    def value(self, given: Any, path: str, *, is_required: bool = False, in_shell: bool = False) -> str:
        """Convert a text.  A bare `$VAR` is a variable, but in a shell, which expands it itself."""
        if given is None or given == "":
            if is_required:
                self._problem(path, "is required")
            return ""
        if type(given) is not str:
            if type(given) in (dict, list):
                self._problem(path, f"must be a text, got {show(given)}")
                return ""
            given = "true" if given is True else "false" if given is False else str(given)
        made, end = "", 0
        for found in (_BRACED if in_shell else _EITHER).finditer(given):
            before = escape_dollars(given[end : found.start()] + "$")[:-1]  # it may end in a dollar
            made += before + self._variable(found, path)
            end = found.end()
        return made + escape_dollars(given[end:])

    def _variable(self, found: re.Match[str], path: str) -> str:
        name, default = found[1] or found[3], found[2]
        if default is None and name not in self._variables:
            advice = f"set it, or write ${{{name}:-default}}"
            self._warn(path, f"uses the variable {name}, which is not set and therefore empty; {advice}")
        return f"${{{name}:-{default or ''}}}"

    def filled(self, text: str) -> str:
        return _WRITTEN.sub(
            lambda found: self._variables.get(found[1]) or found[2] or "" if found[1] else "$", text
        )

    def every(self, schedule: str) -> str:
        """Convert `@every 1.5h` to the units of a manifest; other schedules stay unchanged."""
        word, _, duration = schedule.partition(" ")
        if word.lower() != "@every":
            return schedule
        try:
            seconds = max(1, int(parse_duration(duration.strip()) or 0))
        except UsageError as error:
            raise UsageError(f"bad schedule {quote(schedule)}: the duration {error}") from None
        return f"@every {period_text(seconds)}"
