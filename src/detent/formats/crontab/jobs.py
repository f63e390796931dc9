"""A crontab as a version 2 manifest: its lines fire here as they did under cron.

Rules; where cron and a new manifest differ, a crontab keeps what cron does:

- Lines may overlap themselves (`concurrency: Allow`), what was due while nobody was there is not made
  good (`catch_up: skip`), and what a command leaves in the background is left alone (`children: leave`).
  Who wants another policy, like `concurrency: Forbid`, writes it into what `detent convert` prints.
- A command runs in its user's home (or HOME), by SHELL; its variables are those of the lines before it
  and, unlike under cron, the node's: PATH stays the node's unless the crontab sets one.
- `@reboot` fires once a boot on its own host (`run_on: every`).
- A job's name is a slug of its command and 6 hex digits of a hash of schedule, user and command: it
  stays when lines are moved, and changes with the line.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from detent.formats.base import APP, Converted, slug, unique
from detent.formats.crontab.convert import Crontab, Entry, Form, parse_crontab
from detent.manifest.problems import ManifestError, Problem, escape_dollars

SHELL = "/bin/sh"
SLUG_MAX = 40
HASH_DIGITS = 6
MAIL = ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
NOT_PASSED = (*MAIL, "RANDOM_DELAY", "CRON_TZ", "LOGNAME")
FEED = 'printf %s "$1" | "$2" -c "$3"'  # standard input, shell and command reach it as words: no quoting

_GUARD = re.compile(  # what comes before the command proper
    r"""(\[\[?[^]]*\]\]? | test\s[^&|]* | cd\s+\S+ | command\s+-v\s[^&|]* | (/\S*/)?sleep\s[^&|;]*
    | perl\s+-e\s+'[^']*' | if\s[^;]*;\s*then\s | [{(]) \s*(?:&&|\|\||;)?\s*(?=\S)""",
    re.VERBOSE,
)
_REST = re.compile(r"\s*(\d?>|[|;&<]).*", re.DOTALL)


class File(NamedTuple):
    """A crontab, with how it is called where there are several."""

    text: str
    form: Form
    name: str = ""


class LocalContext(NamedTuple):
    """What a crontab means depends on this much of its machine."""

    timezone: str = "UTC"
    homes: Mapping[str, str] = {}  # user → home; "": of whoever runs the node
    app: str = APP


def convert_crontabs(files: Sequence[File], here: LocalContext) -> Converted:
    """The jobs of these crontabs; raises one `ManifestError` with everything that is wrong."""
    read = [(file, parse_crontab(file.text, file.form)) for file in files]
    problems = [_placed(problem, file) for file, crontab in read for problem in crontab.problems]
    entries = [(file, entry) for file, crontab in read for entry in crontab.entries]
    if not entries and not problems:
        problems = [Problem(path="", message="there is no line that fires in it")]
    if problems:
        raise ManifestError(problems)
    taken = set[str]()
    jobs = [_job(entry, here, taken) for _, entry in entries]
    return Converted(
        document=_document(jobs, here),
        warnings=tuple(_placed(warning, file) for file, crontab in read for warning in _warnings(crontab)),
        lines={} if len(files) > 1 else {f"jobs/{i}": entry.line for i, (_, entry) in enumerate(entries)},
        sources=tuple(entry.text for _, entry in entries),
    )


def _placed(problem: Problem, file: File) -> Problem:
    """Where there are several files, a line alone says nothing."""
    return problem._replace(path=f"{file.name}:{problem.line}", line=0) if file.name else problem


def _warnings(crontab: Crontab) -> list[Problem]:
    return sorted(crontab.warnings, key=lambda warning: warning.line)


def _document(jobs: list[dict[str, Any]], here: LocalContext) -> dict[str, Any]:
    policy = {"concurrency": "Allow", "catch_up": "skip"}
    defaults = {"timezone": here.timezone, "policy": policy, **_shared(jobs), "children": "leave"}
    return {"version": 2, "app": here.app, "defaults": defaults, "jobs": jobs}


def _shared(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """What all jobs have alike, taken from them: a file with a line once is easier to read."""
    first, shared = jobs[0], dict[str, Any]()
    for name in ("work_dir", "user"):
        if name in first and all(job.get(name) == first[name] for job in jobs):
            shared[name] = first[name]
            for job in jobs:
                job.pop(name)
    alike = set.intersection(*(set(job.get("env", {}).items()) for job in jobs))
    if alike:
        shared["env"] = {name: value for name, value in first["env"].items() if (name, value) in alike}
        for job in jobs:
            job["env"] = {name: value for name, value in job["env"].items() if (name, value) not in alike}
            if not job["env"]:
                del job["env"]
    return shared


def _job(entry: Entry, here: LocalContext, taken: set[str]) -> dict[str, Any]:
    variables = entry.variables
    passed = {name: escape_dollars(value) for name, value in variables.items() if _is_passed(name)}
    home = variables.get("HOME") or here.homes.get(entry.user, "")
    fields = {
        "name": unique(_name(entry), taken),
        "schedule": entry.schedule,
        "timezone": variables.get("CRON_TZ", ""),
        "policy": {"concurrency": "Forbid"} if entry.alone else {},
        **_command(entry),
        "work_dir": escape_dollars(home),
        "env": passed,
        "user": entry.user,
        "run_on": "every" if entry.schedule.lower() == "@reboot" else "",
    }
    return {name: value for name, value in fields.items() if value}


def _is_passed(name: str) -> bool:
    return name not in NOT_PASSED and not name.startswith("DETENT_")


def _command(entry: Entry) -> dict[str, Any]:
    """The command with its shell; lines after a % become its standard input."""
    shell, command = entry.variables.get("SHELL") or SHELL, escape_dollars(entry.command)
    if entry.stdin is not None:
        return {
            "command": [
                SHELL,
                "-c",
                FEED,
                "cron",
                escape_dollars(entry.stdin),
                escape_dollars(shell),
                command,
            ]
        }
    return (
        {"command": command}
        if shell == SHELL
        else {"command": command, "shell": [escape_dollars(shell), "-c"]}
    )


def _name(entry: Entry) -> str:
    told = "\0".join((entry.schedule, entry.user, entry.command, entry.stdin or ""))
    digits = sha256(told.encode()).hexdigest()[:HASH_DIGITS]
    return f"{slug(_gist(entry.command), SLUG_MAX) or 'job'}-{digits}"


def _gist(command: str) -> str:
    """What the command is about: no guards before it, no redirection, no options, no folders."""
    rest = command
    while guard := _GUARD.match(rest):
        rest = rest[guard.end() :]
    words = _REST.sub("", rest).split() or command.split()
    told = [word for word in words if not re.match(r"-|\w+=", word)] or words
    return " ".join(word.rstrip("/").rpartition("/")[2] for word in told)
