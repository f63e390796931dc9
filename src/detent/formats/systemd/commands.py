"""The command lines of a systemd service as one command of ours.

- One plain `ExecStart=` becomes a list of words, which no shell touches.
- Several lines, `ExecStartPre=`, `ExecStartPost=`, an ignored failure, variables that are known only when
  it runs, or an `EnvironmentFile=`: a text for the shell, quoted word by word, that fails where systemd
  would fail.
- systemd fills in `${NAME}` as part of a word and `$NAME` as a word of its own, which is split; `$$` is a
  dollar.  What `Environment=` says is filled in here, the rest by the shell.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from detent.formats.systemd.units import Entry, Unit, expand, split_words, unknown_specifiers
from detent.text import quote

PREFIXES = "-@:+!"
CONDITION = "ExecCondition"
LINES = (CONDITION, "ExecStartPre", "ExecStart", "ExecStartPost")  # in the order in which they run
UNKNOWN = "only systemd knows what {} stands for; write the value itself"

_LONE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_DOLLAR = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Step(NamedTuple):
    """One command line: its words, each as it is (None: only the shell can tell) and for the shell."""

    words: tuple[tuple[str | None, str], ...]
    key: str
    prefixes: str


class Commands(NamedTuple):
    """What a service runs; no command: there is none."""

    command: str | list[str]
    warnings: tuple[tuple[Entry, str], ...]
    is_whole: bool = True  # False: it holds something that only systemd could fill in


def commands_of(service: Unit, variables: Mapping[str, str], files: list[str]) -> Commands:
    """The command of a service.  `files` are its `EnvironmentFile=`s."""
    reader = _Reader(service, {} if files else variables)
    for key in LINES:
        for entry in service.given("Service", key):
            reader.read(entry)
    return Commands(_joined(reader.steps, files), tuple(reader.warnings), reader.is_whole)


class _Reader:
    """Reads the command lines of one service."""

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
            self.warnings.append((entry, f"@: the program is not told that its name is {quote(words[1])}"))
            del words[1]
        if self._has_user and set(prefixes) & set("+!"):
            self.warnings.append((entry, "+ and !: it runs as the job's user, without further rights"))
        if entry.key == CONDITION:
            self.warnings.append((entry, "where it says no, the fire has succeeded without doing anything"))
        given = [expand(word, self._name) for word in words]
        written = [each for word in given for each in self._filled(word, is_plain=":" in prefixes)]
        self.steps.append(Step(tuple(written), entry.key, prefixes))

    def _filled(self, word: str, *, is_plain: bool) -> Iterator[tuple[str | None, str]]:
        lone = _LONE.fullmatch(word)
        if is_plain:
            yield word, shlex.quote(word)
        elif lone is None:
            yield self._filled_within(word)
        elif lone[1] in self._variables:
            yield from ((part, shlex.quote(part)) for part in split_words(self._variables[lone[1]]))
        else:
            yield None, word

    def _filled_within(self, word: str) -> tuple[str | None, str]:
        plain, shell, at = "", "", 0
        is_known = True
        for match in _DOLLAR.finditer(word):
            value = self._variables.get(match[1]) if match[1] else "$"
            before = word[at : match.start()]
            plain += before + (value or "")
            is_known = is_known and value is not None
            shell += _quoted(before) + (f'"${match[1]}"' if value is None else _quoted(value))
            at = match.end()
        plain += word[at:]
        return (plain, shlex.quote(plain)) if is_known else (None, shell + _quoted(word[at:]))


def _quoted(text: str) -> str:
    return shlex.quote(text) if text else ""


def _lines(words: list[str]) -> Iterator[list[str]]:
    """A lone `;` ends a command line; `\\;` is a word of its own."""
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
    plain = [word for word, _ in steps[0].words if word is not None] if len(steps) == 1 else []
    if len(steps) == 1 and not files and len(plain) == len(steps[0].words) and _may_stand_alone(steps[0]):
        return plain
    text = " && ".join(_shell(step) for step in steps)
    splits = any(word is None and shell.startswith("$") for step in steps for word, shell in step.words)
    # A variable that is split into words must not be taken for a pattern of file names.
    return "".join(_sourced(file) for file in files) + ("set -f; " if splits else "") + text


def _may_stand_alone(step: Step) -> bool:
    return "-" not in step.prefixes and step.key != CONDITION


def _shell(step: Step) -> str:
    text = " ".join(shell for _, shell in step.words)
    if step.key == CONDITION:
        return f"{{ {text} || exit 0; }}"
    return f"{{ {text} || true; }}" if "-" in step.prefixes else text


def _sourced(file: str) -> str:
    path = shlex.quote(file.removeprefix("-"))
    read = f"set -a; . {path}; set +a"
    return f"if [ -r {path} ]; then {read}; fi; " if file.startswith("-") else f"{read}; "
