"""Converts the command lines of a systemd service to one command.

- A single plain `ExecStart=` becomes a list of words, without a shell.
- Several lines, `ExecStartPre=`, `ExecStartPost=`, an ignored failure, variables that are only known at run
  time, or an `EnvironmentFile=` become a shell command that fails where systemd would fail.
- systemd expands `${NAME}` inside a word, and splits `$NAME` into words.  The values of `Environment=` are
  filled in here; the shell expands the others.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from detent.formats.base import Expanded, expand_references
from detent.formats.systemd.units import Entry, Unit, expand, split_words, unknown_specifiers
from detent.text import quote

PREFIXES = "-@:+!"
CONDITION = "ExecCondition"
LINES = (CONDITION, "ExecStartPre", "ExecStart", "ExecStartPost")  # in the order of execution
UNKNOWN = "only systemd can expand {}; write the value"

_LONE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_DOLLAR = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Step(NamedTuple):
    words: tuple[Expanded, ...]
    key: str
    prefixes: str


class Commands(NamedTuple):
    command: str | list[str]
    warnings: tuple[tuple[Entry, str], ...]
    is_whole: bool = True  # False if it has a specifier that only systemd can expand


def commands_of(service: Unit, variables: Mapping[str, str], files: list[str]) -> Commands:
    """Convert the command of a service.  `files` are its `EnvironmentFile=`s."""
    reader = _Reader(service, {} if files else variables)
    for key in LINES:
        for entry in service.given("Service", key):
            reader.read(entry)
    return Commands(_joined(reader.steps, files), tuple(reader.warnings), reader.is_whole)


class _Reader:
    def __init__(self, service: Unit, variables: Mapping[str, str]) -> None:
        self._name = service.name
        self._has_user = service.last("Service", "User") is not None
        self._variables = variables
        self.steps: list[Step] = []
        self.warnings: list[tuple[Entry, str]] = []
        self.is_whole = True

    def read(self, entry: Entry) -> None:
        unknown = unknown_specifiers(entry.value)
        if unknown:
            self.is_whole = False
            self.warnings.append((entry, UNKNOWN.format(", ".join(unknown))))
        for line in _lines(split_words(entry.value)):
            self._add(entry, line)

    def _add(self, entry: Entry, line: list[str]) -> None:
        program = line[0].lstrip(PREFIXES)
        prefixes = line[0][: len(line[0]) - len(program)]
        words = [program, *line[1:]]
        if "@" in prefixes and len(words) > 1:
            self.warnings.append((entry, f"@: the program does not get {quote(words[1])} as its name"))
            del words[1]
        if self._has_user and set(prefixes) & set("+!"):
            self.warnings.append((entry, "+ and !: it runs as the job's user, without additional rights"))
        if entry.key == CONDITION:
            self.warnings.append(
                (entry, "if the condition is false, the fire succeeds without doing anything")
            )
        given = [expand(word, self._name) for word in words]
        written = [each for word in given for each in self._filled(word, is_plain=":" in prefixes)]
        self.steps.append(Step(tuple(written), entry.key, prefixes))

    def _filled(self, word: str, *, is_plain: bool) -> Iterator[Expanded]:
        lone = _LONE.fullmatch(word)
        if is_plain:
            yield Expanded(word, shlex.quote(word))
        elif lone is None:
            yield expand_references(word, _DOLLAR, lambda one: self._variables.get(one[1]) if one[1] else "$")
        elif lone[1] in self._variables:
            for part in split_words(self._variables[lone[1]]):
                yield Expanded(part, shlex.quote(part))
        else:
            yield Expanded(None, word)


def _lines(words: list[str]) -> Iterator[list[str]]:
    """Split at each single `;`.  `\\;` is a plain word."""
    line: list[str] = []
    for word in words:
        if word == ";":
            if line:
                yield line
            line = []
        else:
            line.append(";" if word == "\\;" else word)
    if line:
        yield line


def _joined(steps: list[Step], files: list[str]) -> str | list[str]:
    if len(steps) == 1 and not files and "-" not in steps[0].prefixes and steps[0].key != CONDITION:
        plain = [word.plain for word in steps[0].words if word.plain is not None]
        if len(plain) == len(steps[0].words):
            return plain
    text = " && ".join(_shell(step) for step in steps)
    splits = any(one.plain is None and one.shell.startswith("$") for step in steps for one in step.words)
    # A variable that is split into words must not be expanded as a file name pattern.
    return "".join(_sourced(file) for file in files) + ("set -f; " if splits else "") + text


def _shell(step: Step) -> str:
    text = " ".join(word.shell for word in step.words)
    if step.key == CONDITION:
        return f"{{ {text} || exit 0; }}"
    return f"{{ {text} || true; }}" if "-" in step.prefixes else text


def _sourced(file: str) -> str:
    path = shlex.quote(file.removeprefix("-"))
    read = f"set -a; . {path}; set +a"
    return f"if [ -r {path} ]; then {read}; fi; " if file.startswith("-") else f"{read}; "
