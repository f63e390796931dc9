"""Converts crontabs to a version 2 manifest.  Defaults follow cron, not those of a new manifest.

- Lines may overlap (`concurrency: Allow`), missed times stay missed (`catch_up: skip`), and background
  processes are left running (`children: leave`).  To change that, edit the output of `detent convert`.
- A command runs in the home of its user (or HOME) with SHELL.  It has the variables of the lines before it
  and, unlike in cron, those of the node: PATH is the node's unless the crontab sets it.
- `@reboot` fires once per boot on each host (`run_on: every`).
- A job's name is a slug of its command and 6 hex digits of a hash of schedule, user and command.  It stays
  the same if lines are moved, and changes with the line.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from detent.formats.base import Converted, LocalContext, slug, unique
from detent.formats.crontab.convert import Entry, Form, parse_crontab
from detent.manifest.problems import ManifestError, Problem, escape_dollars

SHELL = "/bin/sh"
SLUG_MAX = 40
HASH_DIGITS = 6
MAIL = ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
NOT_PASSED = (*MAIL, "RANDOM_DELAY", "CRON_TZ", "LOGNAME")
FEED = 'printf %s "$1" | "$2" -c "$3"'  # takes standard input, shell and command as words, without quoting

_GUARD = re.compile(  # tests and the like before the actual command
    r"""(\[\[?[^]]*\]\]? | test\s[^&|]* | cd\s+\S+ | command\s+-v\s[^&|]* | (/\S*/)?sleep\s[^&|;]*
    | perl\s+-e\s+'[^']*' | if\s[^;]*;\s*then\s | [{(]) \s*(?:&&|\|\||;)?\s*(?=\S)""",
    re.VERBOSE,
)
_REST = re.compile(r"\s*(\d?>|[|;&<]).*", re.DOTALL)


class File(NamedTuple):
    text: str
    form: Form
    name: str = ""  # if there are several crontabs


def convert_crontabs(files: Sequence[File], here: LocalContext) -> Converted:
    """Convert crontabs, or raise one `ManifestError` with all problems."""
    read = [(file, parse_crontab(file.text, file.form)) for file in files]
    problems = [problem._replace(file=file.name) for file, crontab in read for problem in crontab.problems]
    entries = [(file, entry) for file, crontab in read for entry in crontab.entries]
    if not entries and not problems:
        problems = [Problem(path="", message="the crontab has no entry")]
    if problems:
        raise ManifestError(problems)
    taken = set[str]()
    jobs = [_job(entry, here, taken) for _, entry in entries]
    return Converted(
        document=_document(jobs, here),
        warnings=tuple(
            warning._replace(file=file.name)
            for file, crontab in read
            for warning in sorted(crontab.warnings, key=lambda warning: warning.line)
        ),
        lines={} if len(files) > 1 else {f"jobs/{i}": entry.line for i, (_, entry) in enumerate(entries)},
        sources=tuple(entry.text for _, entry in entries),
    )


def _document(jobs: list[dict[str, Any]], here: LocalContext) -> dict[str, Any]:
    policy = {"concurrency": "Allow", "catch_up": "skip"}
    defaults = {"timezone": here.timezone, "policy": policy, **_shared(jobs), "children": "leave"}
    return {"version": 2, "app": here.app, "defaults": defaults, "jobs": jobs}


def _shared(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Move the fields that are equal in all jobs to the defaults."""
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
    passed = {
        name: escape_dollars(value)
        for name, value in variables.items()
        if name not in NOT_PASSED and not name.startswith("DETENT_")
    }
    home = variables.get("HOME") or here.homes.get(entry.user, "")
    fields = {
        "name": unique(_name(entry), taken),
        "schedule": entry.schedule,
        "timezone": variables.get("CRON_TZ", ""),
        "policy": {"concurrency": "Forbid"} if entry.is_exclusive else {},
        **_command(entry),
        "work_dir": escape_dollars(home),
        "env": passed,
        "user": entry.user,
        "run_on": "every" if entry.schedule.lower() == "@reboot" else "",
    }
    return {name: value for name, value in fields.items() if value}


def _command(entry: Entry) -> dict[str, Any]:
    shell = escape_dollars(entry.variables.get("SHELL") or SHELL)
    command = escape_dollars(entry.command)
    if entry.stdin is not None:
        return {"command": [SHELL, "-c", FEED, "cron", escape_dollars(entry.stdin), shell, command]}
    return {"command": command} if shell == SHELL else {"command": command, "shell": [shell, "-c"]}


def _name(entry: Entry) -> str:
    text = "\0".join((entry.schedule, entry.user, entry.command, entry.stdin or ""))
    digits = sha256(text.encode()).hexdigest()[:HASH_DIGITS]
    return f"{slug(_gist(entry.command), SLUG_MAX) or 'job'}-{digits}"


def _gist(command: str) -> str:
    """Return what the command is about, without guards, redirections, options and folders."""
    rest = command
    while guard := _GUARD.match(rest):
        rest = rest[guard.end() :]
    words = _REST.sub("", rest).split() or command.split()
    names = [word for word in words if not re.match(r"-|\w+=", word)] or words
    return " ".join(word.rstrip("/").rpartition("/")[2] for word in names)
