"""Lints of a job's work, and of secrets and `$$` in the text of a manifest.  Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from detent.manifest.fields import HOOKS
from detent.manifest.problems import Problem
from detent.text import quote

_HOST = re.compile(r"http://(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:]*)", re.IGNORECASE)
_PRIVATE = re.compile(r"127\.|10\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.|\[(::1|f[cde])|0\.0\.0\.0")
# Names that no public host has.
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".test", ".svc")
_DOUBLE_DOLLAR = re.compile(r"(?<!\$)\$\$(?![${])")  # neither $${ nor $$$$
_TAKES_TEXT = re.compile("-[A-Za-z]*[ce]")  # the option after which a shell, Python or Perl takes a command
_BACKGROUND = re.compile(r"(?<![&>\\])&\s*$")


def lint_work(job: Mapping[str, Any]) -> Iterator[Problem]:
    if "request" in job:
        yield from _request(job)
    if isinstance(job.get("command"), str):
        yield from _shell(job["command"], job)
    if "shell" in job and not _TAKES_TEXT.fullmatch(job["shell"][-1]):
        message = "without -c at the end, the shell takes the command for the name of a script"
        yield Problem("shell", message, code="shell-without-c", advice="end the list with -c")
    yield from _unused_retries(job)


def _request(job: Mapping[str, Any]) -> Iterator[Problem]:
    match = _HOST.match(job["request"]["url"])
    if match and job["auth"]["secret_refs"] and not is_private_host(match[1]):
        message = f"the signature is sent to {quote(match[1])} over plain http, where others can read it"
        yield Problem("request/url", message, code="signed-over-http", advice="use https://")


def is_private_host(host: str) -> bool:
    """Whether the host is this machine, or an address or name of a private network."""
    name = host.lower()
    is_bare = "." not in name and not name.startswith("[")
    return is_bare or name.endswith(_PRIVATE_SUFFIXES) or _PRIVATE.match(name) is not None


def _shell(command: str, job: Mapping[str, Any]) -> Iterator[Problem]:
    if _BACKGROUND.search(command) and job.get("children", "end") == "end":
        message = "the command ends with &: the shell exits at once, and its background process is stopped"
        advice = "remove the &; to keep the process running, set `children: leave`"
        yield Problem("command", message, code="background", advice=advice)
    if "\\%" in command:
        message = r"the command has \%, which only a crontab needs; here a % is a plain character"
        yield Problem("command", message, code="crontab-percent", advice=r"write % without the backslash")


def _unused_retries(job: Mapping[str, Any]) -> Iterator[Problem]:
    retries = job["policy"]["retries"]
    name = "on_status" if "request" in job else "on_exit_codes"
    if retries["max_attempts"] == 1 and retries.get(name):
        message = f"`{name}` has no effect: max_attempts is 1"
        path = f"policy/retries/{name}"
        yield Problem(path, message, code="no-retry", advice="set `max_attempts` to 2 or more")


# The text of the manifest, before `${VAR}` is expanded.


def lint_text(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Lint the text of a manifest.  Paths are those of the document."""
    yield from lint_secrets(document)
    for path, owner in _owners(document):
        for name in ("command", *HOOKS):
            yield from _dollars(owner.get(name), f"{path}/{name}")


def _owners(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the jobs and the defaults with their paths."""
    jobs = document.get("jobs")
    named = [(f"jobs/{i}", job) for i, job in enumerate(jobs if isinstance(jobs, list) else ())]
    for path, owner in (*named, ("defaults", document.get("defaults"))):
        if isinstance(owner, dict):
            yield path, owner


def _dollars(command: Any, path: str) -> Iterator[Problem]:
    """Find `$$` in a shell command: its author may mean the shell's process id."""
    if isinstance(command, str) and _DOUBLE_DOLLAR.search(command):
        message = "$$ in a manifest is one dollar sign: the shell sees $, not its process id"
        advice = "write $$$$ for the process id of the shell, and a single $ for a variable"
        yield Problem(path, message, code="double-dollar", advice=advice)
    for i, hook in enumerate(command if isinstance(command, list) and path.partition("/on_")[1] else ()):
        yield from _dollars(hook if isinstance(hook, str) else None, f"{path}/{i}")


def lint_secrets(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Find secrets in the text of a manifest.  The value of a `${VAR}` is not in the text."""
    table = document.get("secrets")
    for name, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, str) and not value.startswith(("env:", "file:")) and "${" not in value:
            yield _plain(f"secrets/{name}")
    for path, owner in _owners(document):
        auth = owner.get("auth")
        references = auth.get("secret_refs") if isinstance(auth, dict) else None
        for i, reference in enumerate(references if isinstance(references, list) else ()):
            if isinstance(reference, str) and reference.startswith("raw:") and "${" not in reference:
                yield _plain(f"{path}/auth/secret_refs/{i}")


def _plain(path: str) -> Problem:
    message = "the secret is in plain text: everyone who can read this file can sign requests"
    return Problem(path, message, code="plain-secret", advice="use env:NAME or file:/path")
