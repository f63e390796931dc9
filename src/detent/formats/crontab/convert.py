"""The lines of a crontab: what is due when, as whom, with which variables and which standard input.

Rules, as Vixie's cron and its heirs (Debian, cronie, the BSDs) have them:

- `NAME = value` holds for the lines after it; quotes around either are taken off, nothing is expanded.
- A line is five fields or an @word, in the system form a user, and a command up to the line's end.
- The first `%` ends the command; what follows is its standard input, with a newline for each further
  `%`.  `\\%` is a plain percent sign.
- A `-` before the fields (cronie, SUSE), and `-n`, `-q` or `-s` before the command (BSD), are options:
  no line in the log; no mail, no log, never two at once.
- `a~b` (cronie, OpenBSD) is a random value: here one that hangs on the job's name, and stays.
"""

import re
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from detent.errors import UsageError
from detent.formats.base import FOREIGN
from detent.manifest.problems import Problem
from detent.schedules.timetable import parse_schedule
from detent.text import quote

Form = Literal["user", "system"]  # the system form has a user before the command

FIELDS = 5
MINUTELY = {"@every_minute": "* * * * *"}  # FreeBSD

_VARIABLE = re.compile(r"""(["']?)([A-Za-z_][A-Za-z0-9_]*)\1\s*=\s*(.*)""")
_LINE = re.compile(r"(-?)(@\S+|[\d*~]\S*(?:\s+\S+){4})(?:\s+(.*))?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?")
_OPTIONS = re.compile(r"(?:-([nqs]+)\s+)+")
_SIXTH_FIELD = re.compile(r"[*?][/\d]*(\s|$)")
_HEADING = re.compile(r"#\s*m(in)?\s+h(our)?\s.*\buser(-?name)?\b.*\bcommand\b", re.IGNORECASE)


class Entry(NamedTuple):
    """One line that fires."""

    line: int
    text: str  # as it stands in the file
    schedule: str
    user: str  # "": the form has none
    command: str
    stdin: str | None  # None: there is none
    alone: bool  # never two at once
    variables: Mapping[str, str]  # those in force there


class Crontab(NamedTuple):
    """What a crontab says, and what is to be said about it."""

    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def parse_crontab(text: str, form: Form) -> Crontab:
    """All lines, and all that is wrong with them."""
    reader = _Reader(form)
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        reader.read(number, line.removesuffix("\r"))
    if "\r\n" in text:
        reader.warn(1, "lines end in CR LF; cron would have passed the CR on, here it is taken off")
    if lines[-1].strip():
        told = "there is no newline at the end; cron may have ignored this line, here it counts"
        reader.warn(len(lines), told)
    return Crontab(tuple(reader.entries), tuple(reader.problems), tuple(reader.warnings))


class _Reader:
    """Reads line by line; a variable holds for the lines after it."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._variables: dict[str, str] = {}
        self.entries: list[Entry] = []
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def warn(self, line: int, message: str) -> None:
        self.warnings.append(Problem(path="", message=message, line=line, code=FOREIGN))

    def read(self, number: int, line: str) -> None:
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            return
        if variable := _VARIABLE.fullmatch(stripped):
            name, value = variable[2], _unquoted(variable[3])
            self._variables = {**self._variables, name: value}
            if message := _about_variable(name, value):
                self.warn(number, message)
            return
        try:
            self.entries.append(self._entry(number, stripped))
        except UsageError as error:
            self.problems.append(Problem(path="", message=str(error), line=number))

    def _entry(self, number: int, line: str) -> Entry:
        found = _LINE.fullmatch(line)
        if not found:
            raise UsageError(f"{quote(line)} is neither {FIELDS} fields and a command nor NAME=value")
        schedule = self._schedule(found[2], number)
        user, rest = self._user(found[3] or "")
        options = _OPTIONS.match(rest)
        command, stdin = split_percent(rest[options.end() :] if options else rest)
        if not command.strip():
            raise UsageError(f"{quote(line)} has no command")
        if _SIXTH_FIELD.match(command):
            self.warn(number, f"the command is {quote(command)}: a crontab has no field for seconds")
        alone = options is not None and "s" in options[0]
        return Entry(number, line, schedule, user, command, stdin, alone, self._variables)

    def _schedule(self, fields: str, number: int) -> str:
        schedule = read_schedule(fields)
        if "~" in fields:
            told = "is one that hangs on the job's name, and stays the same"
            self.warn(number, f"the random value in {quote(fields)} {told}")
        return schedule

    def _user(self, rest: str) -> tuple[str, str]:
        if self._form == "user":
            return "", rest
        user, command = (*rest.split(None, 1), "", "")[:2]
        if not _USER.fullmatch(user):
            raise UsageError(
                f"{quote(user)} is not the name of a user, which stands before the command in a system's"
                " crontab; if this is a user's own, say --crontab user:FILE"
            )
        return user, command


def _about_variable(name: str, value: str) -> str:
    """What is to be said about a variable by itself; nothing: an empty text."""
    if name == "MAILTO" and value:
        return (
            f"no mail is sent to {quote(value)}: output is kept (`detent logs`); to be told of a failure,"
            " give `on_failure` a command or a URL (`detent convert` writes the file to put it in)"
        )
    if name in ("MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"):
        return f"{name} is about cron's mail, and no mail is sent"
    if name == "RANDOM_DELAY":
        return "RANDOM_DELAY is not supported: fires come at their time; `H` in a schedule spreads them"
    if name == "LOGNAME" or name.startswith("DETENT_"):
        return f"{name} cannot be set in a crontab: it is passed over"
    if name == "TZ":
        return "TZ is for the commands alone, as under cron; CRON_TZ sets the schedules' time zone"
    if "$" in value:
        return f"{name} is {quote(value)} as it stands: like cron, we expand nothing in a variable"
    return ""


def _unquoted(value: str) -> str:
    value = value.strip()
    paired = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if paired else value


def read_schedule(fields: str) -> str:
    """The fields as our grammar has them, checked; the job's name, which `H` hangs on, is not known yet."""
    words = [",".join(_hashed(item) for item in word.split(",")) for word in fields.split()]
    schedule = MINUTELY.get(fields.lower(), " ".join(words))
    parse_schedule(schedule, seed="any")
    return schedule


def _hashed(item: str) -> str:
    """`5~20` as `H(5-20)`, `~` as `H`: a value of the range, with the job's name for a seed."""
    body, slash, step = item.partition("/")
    if "~" not in body:
        return item
    if body == "~":
        return f"H{slash}{step}"
    low, _, high = body.partition("~")
    if not low or not high:
        raise UsageError(f"{quote(item)}: give both ends of a random range, like 0~59")
    return f"H({low}-{high}){slash}{step}"


def split_percent(text: str) -> tuple[str, str | None]:
    """The command, and its standard input where there is one."""
    command, escaped = "", False
    for at, character in enumerate(text):
        if character == "%" and not escaped:
            stdin = re.sub(r"\\%|%", lambda sign: sign[0][1:] or "\n", text[at + 1 :])
            return command.rstrip(), stdin if stdin[-1:] in ("", "\n") else stdin + "\n"
        if character == "%":
            command = command[:-1]
        command += character
        escaped = character == "\\" and not escaped
    return command.rstrip(), None


# Which form a file has, and whether it is a crontab at all.


def looks_like_crontab(text: str) -> bool:
    """Is every line one of a crontab, and at least one of them a command?"""
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if line and not line.startswith("#") and not _VARIABLE.fullmatch(line)]
    return bool(told) and all(_is_line(line) for line in told)


def _is_line(line: str) -> bool:
    found = _LINE.fullmatch(line)
    if not found or not found[3]:
        return False
    try:
        read_schedule(found[2])
    except UsageError:
        return False
    return True


def guess_form(text: str, users: Collection[str]) -> tuple[Form, str]:
    """The form, and what is doubtful about it: a user of this machine stands before commands."""
    if _HEADING.search(text):
        return "system", ""
    rests = [found[3] or "" for line in text.splitlines() if (found := _LINE.fullmatch(line.strip()))]
    firsts = [rest.split(None, 1) for rest in rests]
    named = [words[0] for words in firsts if len(words) == 2 and words[0] in users]
    if not named:
        return "user", ""
    form: Form = "system" if len(named) == len(firsts) else "user"
    told = "taken for the user that it runs as" if form == "system" else "taken for a part of the command"
    return form, f"{quote(named[0])} before the command is {told}; say --crontab user:FILE or system:FILE"
