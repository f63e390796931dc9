"""Problems of a document: collected while it is checked, then raised together with their paths and lines."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from detent.errors import UsageError
from detent.text import quote

INVALID: Final = object()  # replaces a value that was refused
PROBLEMS_MAX = 100  # a longer list usually comes from one mistake in a template

_DOLLAR = r"\$(?:(\$)|\{([^}]*)(\}?))"
_VARIABLE = r"(?s:([A-Za-z_][A-Za-z0-9_]*)(?:(:-)((?:(?!\$\{).)*))?)"


class Problem(NamedTuple):
    """One error or warning.  Line and column are 0 if unknown."""

    path: str  # jobs/0/policy/timeout_seconds; "" for the whole document
    message: str
    line: int = 0
    column: int = 0
    code: str = ""  # the stable name of a kind of warning, such as uneven-step; "" for an error
    advice: str = ""  # what is allowed, or what to do
    file: str = ""  # set if one document comes from several files
    is_about_key: bool = False  # the key itself is wrong or missing, not its value

    @property
    def text(self) -> str:
        """The message and the advice, without the location."""
        return f"{self.message}; {self.advice}" if self.advice else self.message


class ManifestError(UsageError):
    """A document that cannot be used, with all of its problems."""

    def __init__(self, problems: Sequence[Problem], file: str = "") -> None:
        super().__init__(problems, file)
        self.problems = tuple(problems)
        self.file = file

    def __str__(self) -> str:
        lines = [format_problem(problem, self.file) for problem in self.problems[:PROBLEMS_MAX]]
        if len(self.problems) > PROBLEMS_MAX:
            lines.append("… and more")
        return "\n".join(lines)


def format_problem(problem: Problem, file: str = "") -> str:
    """`unknown key "tiemout" at jobs[0].policy (detent.yaml:12): did you mean "timeout_seconds"?`

    The message of a warning is a whole sentence, so its location follows in parentheses.
    """
    path = problem.path.rpartition("/")[0] if problem.is_about_key else problem.path
    path = re.sub(r"/(\d+)(?=/|$)", r"[\1]", path).replace("/", ".")
    path = path if path.isprintable() else quote(path)
    numbers = ":".join(str(number) for number in (problem.line, problem.column) if number)
    source = problem.file or file
    source = f"{source}:{numbers}" if source and numbers else source or (f"line {numbers}" if numbers else "")
    if problem.code:
        where = ", ".join(filter(None, (path, source)))
        text = f"{problem.message} ({where})" if where else problem.message
        return f"{text}; {problem.advice}" if problem.advice else text
    text = problem.message + (f" at {path}" if path else "") + (f" ({source})" if source else "")
    return f"{text}: {problem.advice}" if problem.advice else text


class Findings:
    """Collects the problems and warnings of one document, and expands its variables."""

    def __init__(self, lines: Mapping[str, int], variables: Mapping[str, str] | None) -> None:
        self._lines = lines
        self._variables = variables  # None: the document has no `${VAR}` syntax
        self._problems: dict[Problem, None] = {}
        self._warnings: dict[Problem, None] = {}

    def problem(self, path: str, message: str, advice: str = "") -> Any:
        """Add a problem, and return INVALID to use instead of the value."""
        self._problems[Problem(path, message, advice=advice)] = None
        return INVALID

    def key_problem(self, path: str, message: str, advice: str = "") -> None:
        """A problem of the key at the end of the path, not of its value."""
        self._problems[Problem(path, message, advice=advice, is_about_key=True)] = None

    def warning(self, path: str, message: str, code: str) -> None:
        self._warnings[Problem(path, message, code=code)] = None

    @property
    def found(self) -> bool:
        """Whether there is a problem, so that the document will be refused."""
        return bool(self._problems)

    @property
    def full(self) -> bool:
        """Whether there are more problems than will be shown."""
        return len(self._problems) > PROBLEMS_MAX

    def expand(self, text: str, path: str) -> str | None:
        """Return the text with its variables expanded, or None if one is not set."""
        if self._variables is None or "$" not in text:
            return text
        faults: list[tuple[str, str]] = []
        expanded = re.sub(_DOLLAR, lambda match: self._value(match, faults), text)
        for message, advice in faults:
            self.problem(path, message, advice)
        return None if faults else expanded

    def _value(self, match: re.Match[str], faults: list[tuple[str, str]]) -> str:
        assert self._variables is not None
        if match[1]:
            return "$"
        variable = re.fullmatch(_VARIABLE, match[2])
        if not match[3] or not variable:
            advice = "write $$ for a literal dollar"
            faults.append((f"{quote(match[0])} is not ${{NAME}} or ${{NAME:-default}}", advice))
            return ""
        name, value = variable[1], self._variables.get(variable[1])
        if variable[2] and not value:  # as in a shell, `:-` also replaces an empty value
            return variable[3] or ""
        if value is None:
            faults.append((f"the variable {name} is not set", f"set it, or write ${{{name}:-default}}"))
        return value or ""

    def warnings(self) -> tuple[Problem, ...]:
        return tuple(self._with_line(warning) for warning in self._warnings)

    def raise_problems(self) -> None:
        """Raise all problems, if there are any, in the order of the document."""
        if self._problems:
            raise ManifestError(sorted(map(self._with_line, self._problems), key=lambda one: one.line))

    def _with_line(self, problem: Problem) -> Problem:
        return problem._replace(line=line_of(problem.path, self._lines))


def line_of(path: str, lines: Mapping[str, int]) -> int:
    """Return the line of a path or, if it is missing, of the nearest mapping around it; 0 if unknown."""
    while path and path not in lines:
        path = path.rpartition("/")[0]
    return lines.get(path, 0)


def escape_dollars(text: str) -> str:
    """Escape a text so that expanding it returns it unchanged."""
    return re.sub(r"\$(?=[${])", "$$", text)
