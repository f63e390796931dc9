"""Parses the lines of a crontab, with the rules of Vixie's cron and its successors (Debian, cronie, BSD).

- `NAME = value` applies to the lines after it.  Quotes around either are removed, and nothing is expanded.
- A line is five fields or an @word, in the system form a user, and a command.
- The first `%` ends the command; the rest is its standard input, with a newline for each further `%`.
  `\\%` is a plain percent sign.
- A `-` before the fields (cronie, SUSE) and `-n`, `-q` or `-s` before the command (BSD) are options.
- `a~b` (cronie, OpenBSD) is a random value.  Here it depends on the job's name, and does not change.
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
    line: int
    text: str  # of the file
    schedule: str
    user: str  # "" in a user's crontab
    command: str
    stdin: str | None
    is_exclusive: bool  # never two at once
    variables: Mapping[str, str]  # set by the lines before it


class Crontab(NamedTuple):
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def parse_crontab(text: str, form: Form) -> Crontab:
    reader = _Reader(form)
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        reader.read(number, line.removesuffix("\r"))
    if "\r\n" in text:
        reader.warn(1, "lines end in CR LF; cron passes the CR to the command, here it is removed")
    if lines[-1].strip():
        reader.warn(len(lines), "there is no newline at the end; cron may ignore this line, here it counts")
    return Crontab(tuple(reader.entries), tuple(reader.problems), tuple(reader.warnings))


class _Reader:
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
            raise UsageError(f"{quote(line)} is neither {FIELDS} fields and a command, nor NAME=value")
        fields = found[2]
        schedule = read_schedule(fields)
        if "~" in fields:
            message = f"the random value in {quote(fields)} is derived from the job's name, and fixed"
            self.warn(number, message)
        user, rest = self._user(found[3] or "")
        options = _OPTIONS.match(rest)
        command, stdin = split_percent(rest[options.end() :] if options else rest)
        if not command.strip():
            raise UsageError(f"{quote(line)} has no command")
        if _SIXTH_FIELD.match(command):
            self.warn(number, f"the command is {quote(command)}: a crontab has no field for seconds")
        is_exclusive = options is not None and "s" in options[0]
        return Entry(number, line, schedule, user, command, stdin, is_exclusive, self._variables)

    def _user(self, rest: str) -> tuple[str, str]:
        if self._form == "user":
            return "", rest
        user, command = (*rest.split(None, 1), "", "")[:2]
        if not _USER.fullmatch(user):
            raise UsageError(
                f"{quote(user)} is not a user name, which a system crontab has before the command; for a"
                " user's crontab, give --crontab user:FILE"
            )
        return user, command


def _about_variable(name: str, value: str) -> str:
    """Return a warning about a variable, or an empty text."""
    if name == "MAILTO" and value:
        return (
            f"no mail is sent to {quote(value)}: `detent logs` shows the output; to be notified of a failure,"
            " convert the file with `detent convert`, and set `on_failure` to a command or URL"
        )
    if name in ("MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"):
        return f"{name} is for cron's mail, and no mail is sent"
    if name == "RANDOM_DELAY":
        return "RANDOM_DELAY is not supported; use `H` in a schedule to spread fires"
    if name == "LOGNAME" or name.startswith("DETENT_"):
        return f"{name} cannot be set in a crontab: it is ignored"
    if name == "TZ":
        return "TZ only applies to commands, as in cron; CRON_TZ sets the time zone of schedules"
    if "$" in value:
        return f"{name} is literally {quote(value)}: as in cron, variables are not expanded"
    return ""


def _unquoted(value: str) -> str:
    value = value.strip()
    paired = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if paired else value


def read_schedule(fields: str) -> str:
    """Convert the fields to our syntax, and check them with any seed for `H`."""
    words = [",".join(_hashed(item) for item in word.split(",")) for word in fields.split()]
    schedule = MINUTELY.get(fields.lower(), " ".join(words))
    parse_schedule(schedule, seed="any")
    return schedule


def _hashed(item: str) -> str:
    """Convert `5~20` to `H(5-20)`, and `~` to `H`."""
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
    """Return the command, and its standard input or None."""
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


def looks_like_crontab(text: str) -> bool:
    """Whether every line is valid in a crontab, and at least one has a command."""
    lines = [line.strip() for line in text.splitlines()]
    entries = [one for one in lines if one and not one.startswith("#") and not _VARIABLE.fullmatch(one)]
    return bool(entries) and all(_is_entry(entry) for entry in entries)


def _is_entry(line: str) -> bool:
    found = _LINE.fullmatch(line)
    if not found or not found[3]:
        return False
    try:
        read_schedule(found[2])
    except UsageError:
        return False
    return True


def guess_form(text: str, users: Collection[str]) -> tuple[Form, str]:
    """Guess the form from user names before commands, and return it with a warning if it is not certain."""
    if _HEADING.search(text):
        return "system", ""
    rests = [found[3] or "" for line in text.splitlines() if (found := _LINE.fullmatch(line.strip()))]
    firsts = [rest.split(None, 1) for rest in rests]
    named = [words[0] for words in firsts if len(words) == 2 and words[0] in users]
    if not named:
        return "user", ""
    form: Form = "system" if len(named) == len(firsts) else "user"
    meaning = "the user" if form == "system" else "part of the command"
    advice = "give --crontab user:FILE or system:FILE to be sure"
    return form, f"{quote(named[0])} before the command is read as {meaning}; {advice}"
