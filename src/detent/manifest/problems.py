"""What is wrong with a document: problems with path and line, gathered and raised all at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from detent.errors import UsageError
from detent.text import quote

PROBLEMS_MAX = 100  # so many are told; who has more has one mistake in a template, not a hundred

_DOLLAR = r"\$(?:(\$)|\{([^}]*)(\}?))"
_VARIABLE = r"(?s:([A-Za-z_][A-Za-z0-9_]*)(?:(:-)((?:(?!\$\{).)*))?)"


class Problem(NamedTuple):
    """One thing that is wrong, where, and what is allowed.  Line and column 0: unknown."""

    path: str  # jobs/0/policy/timeout_seconds; "": the whole document
    message: str
    line: int = 0
    column: int = 0
    code: str = ""  # names a kind of warning for programs, and stays the same: uneven-step
    advice: str = ""  # what to do, where the message does not say it


class ManifestError(UsageError):
    """A document that cannot be used, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem], file: str = "") -> None:
        super().__init__(problems, file)
        self.problems = tuple(problems)
        self.file = file

    def __str__(self) -> str:
        told = [format_problem(problem, self.file) for problem in self.problems[:PROBLEMS_MAX]]
        if len(self.problems) > PROBLEMS_MAX:
            told.append("… and more of this kind")
        return "\n".join(told)


def format_problem(problem: Problem, file: str = "") -> str:
    """`detent.yaml:12: jobs/0/name: …`, less what is not known."""
    place = f"line {problem.line}" if problem.line and not file else file
    if problem.line and file:
        place = f"{file}:{problem.line}:{problem.column}" if problem.column else f"{file}:{problem.line}"
    path = problem.path if problem.path.isprintable() else quote(problem.path)
    return ": ".join(part for part in (place, path, problem.message) if part)


class Findings:
    """Gathers problems and warnings while a document is read, and knows its variables."""

    def __init__(self, lines: Mapping[str, int], variables: Mapping[str, str] | None) -> None:
        self._lines = lines
        self._variables = variables  # None: `${VAR}` means nothing in this document
        self._problems: dict[tuple[str, str], None] = {}
        self._warnings: dict[tuple[str, str], str] = {}

    def problem(self, path: str, message: str) -> None:
        self._problems[path, message] = None

    def warning(self, path: str, message: str, code: str) -> None:
        self._warnings[path, message] = code

    @property
    def found(self) -> bool:
        """Something is wrong: nothing will come of this document."""
        return bool(self._problems)

    @property
    def full(self) -> bool:
        """There is more to tell than anybody will read."""
        return len(self._problems) > PROBLEMS_MAX

    def expand(self, text: str, path: str) -> str | None:
        """The text with its variables filled in; None where one is not set."""
        if self._variables is None or "$" not in text:
            return text
        faults: list[str] = []
        expanded = re.sub(_DOLLAR, lambda match: self._value(match, faults), text)
        for fault in faults:
            self.problem(path, fault)
        return None if faults else expanded

    def _value(self, match: re.Match[str], faults: list[str]) -> str:
        assert self._variables is not None
        if match[1]:
            return "$"
        variable = re.fullmatch(_VARIABLE, match[2])
        if not match[3] or not variable:
            faults.append(
                f"{quote(match[0])} is not ${{NAME}} or ${{NAME:-default}}; write $$ for a literal dollar"
            )
            return ""
        value = self._variables.get(variable[1])
        if variable[2] and not value:  # as in a shell, `:-` also stands in for an empty value
            return variable[3] or ""
        if value is None:
            name = variable[1]
            faults.append(f"the variable {name} is not set; set it, or write ${{{name}:-default}}")
        return value or ""

    def warnings(self) -> tuple[Problem, ...]:
        placed = [(self._place(*found), code) for found, code in self._warnings.items()]
        return tuple(problem._replace(code=code) for problem, code in placed)

    def raise_problems(self) -> None:
        """Raise what was found, if anything was, in the order of the document."""
        if self._problems:
            placed = [self._place(path, message) for path, message in self._problems]
            raise ManifestError(sorted(placed, key=lambda problem: problem.line))

    def _place(self, path: str, message: str) -> Problem:
        return Problem(path=path, message=message, line=line_of(path, self._lines))


def line_of(path: str, lines: Mapping[str, int]) -> int:
    """A field that is missing has no line: it gets that of what it is missing from.  0: unknown."""
    while path and path not in lines:
        path = path.rpartition("/")[0]
    return lines.get(path, 0)


def escape_dollars(text: str) -> str:
    """The text such that expanding it gives it back."""
    if "$" not in text:
        return text
    return re.sub(r"\$(?=[${])", "$$", text)
