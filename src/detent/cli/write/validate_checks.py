"""Looks at this host for what jobs need: programs, directories, users, modules and secrets.

- Nothing is run and nothing is imported; what cannot be told from outside is not told.
- A job of another queue than the default one may belong to another host, and is left alone.
- Paths are those within the job, as in `manifest.lint.job`.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from detent.cli.write.validate_functions import is_generator_function, missing_part
from detent.manifest.problems import Problem
from detent.model import Call, Command, Job, Push, Request
from detent.text import quote

SHELLS = frozenset(("ash", "bash", "dash", "ksh", "sh", "zsh"))
NOT_PROGRAMS = frozenset((  # a shell does these itself
    ".", ":", "[", "alias", "bg", "break", "builtin", "case", "cd", "command", "continue", "declare",
    "do", "echo", "eval", "exec", "exit", "export", "false", "fc", "fg", "for", "function", "getopts",
    "hash", "if", "jobs", "kill", "let", "local", "popd", "printf", "pushd", "pwd", "read", "readonly",
    "return", "select", "set", "shift", "source", "test", "time", "times", "trap", "true", "type",
    "typeset", "ulimit", "umask", "unalias", "unset", "until", "wait", "while",
))  # fmt: skip
_FIRST_WORD = re.compile(r"\s*((?:[A-Za-z_]\w*=[\w./:@%+-]*\s+)*)([\w./+@-]+)(?=[\s;|&<>]|$)")


class Host(NamedTuple):
    """What a node on this host would give its jobs."""

    env: Mapping[str, str]
    secrets: Mapping[str, str]  # the table of the manifest and the machine


def check_job(job: Job, host: Host) -> Iterator[Problem]:
    """What a job would not find here."""
    if job.queue != "default":
        return
    match job.work:
        case Command():
            yield from _check_command(job.work, "command", host)
        case Request() | Push():
            yield from _check_secrets(job.work.secret_refs, host)
        case Call():
            yield from _check_call(job.work, host)
    for name, hook in job.hooks.items():
        if isinstance(hook, Command):
            yield from _check_program(hook, name.replace(".", "/"), host)


def _check_command(command: Command, path: str, host: Host) -> Iterator[Problem]:
    around = [*_check_user(command.user), *_check_directory(command.work_dir)]
    yield from around or _check_program(command, path, host)


def _check_call(call: Call, host: Host) -> Iterator[Problem]:
    around = [*_check_user(call.user), *_check_directory(call.work_dir)]
    yield from around
    search = dict(call.env).get("PYTHONPATH") or host.env.get("PYTHONPATH") or ""
    folders = [call.work_dir or ".", *search.split(os.pathsep)]
    fault = "" if around else missing_part(call.function, folders)
    if not around and not fault and is_generator_function(call.function, folders):
        from detent.runners.call.function import GENERATOR  # late: few manifests have such a call

        yield Problem("call", f"{call.function} {GENERATOR}", code="generator-function")
    if fault:
        advice = "install it where this detent is installed, or name its folder with `work_dir`"
        yield Problem("call", fault, code="function-not-found", advice=advice)


# Programs.


def _check_program(command: Command, path: str, host: Host) -> Iterator[Problem]:
    words, search = command.words, dict(command.env).get("PATH") or host.env.get("PATH") or os.defpath
    names = [words[0]]
    if "-c" in words[1:-1] and Path(words[0]).name in SHELLS:
        names.append(first_program(words[words.index("-c") + 1]))
    for name in names:
        if name and (fault := _fault(name, search, command.work_dir)):
            yield Problem(path, fault, code="command-not-found", advice=_advice(name))


def first_program(script: str) -> str:
    """The program that a shell command starts first; "" where the shell does it, or it is not plain."""
    match = _FIRST_WORD.match(script)
    if match is None or "PATH=" in match[1] or match[2] in NOT_PROGRAMS:
        return ""
    return match[2]


@lru_cache(maxsize=4096)
def _fault(name: str, search: str, work_dir: str) -> str:
    if "/" not in name:
        found = shutil.which(name, path=search)
        return "" if found else f"the program {quote(name)} is not found in PATH here"
    file = Path(work_dir, name)
    where = f" in {quote(work_dir)}" if work_dir and not name.startswith("/") else " here"
    if not file.is_file():
        return f"there is no program {quote(name)}{where}"
    return "" if os.access(file, os.X_OK) else f"{quote(name)}{where} may not be executed"


def _advice(name: str) -> str:
    if "/" in name:
        return "fix the path, or make the file executable"
    user = f"; if the user is meant, write `user: {name}`" if _is_user(name) else ""
    return f"install it, give its whole path, or set PATH in `env`{user}"


# Surroundings.


def _check_directory(work_dir: str) -> Iterator[Problem]:
    if work_dir and not Path(work_dir).is_dir():
        what = "is not a directory" if Path(work_dir).exists() else "does not exist here"
        advice = "create it, or name another; a relative one begins where the node is started"
        yield Problem("work_dir", f"{quote(work_dir)} {what}", code="work-dir-missing", advice=advice)


def _check_user(user: str) -> Iterator[Problem]:
    if not user:
        return
    if not _is_user(user):
        yield Problem("user", f"this host has no user {quote(user)}", code="user-unknown", advice="create it")
    elif os.geteuid() != 0 and pwd.getpwnam(user).pw_uid != os.geteuid():
        message = f"only root may run a command as {quote(user)}, and this is not root"
        yield Problem("user", message, code="user-forbidden", advice="run the node as root, or as that user")


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


# Secrets.


def _check_secrets(refs: tuple[str, ...], host: Host) -> Iterator[Problem]:
    if not refs:
        return
    from detent.runners.secrets import resolve  # late: most manifests sign nothing

    resolved = resolve(refs, host.secrets, host.env)
    end = "" if resolved.secrets else "; none is left, and its requests cannot be signed"
    for i, warning in enumerate(resolved.warnings):
        told = warning + (end if i == len(resolved.warnings) - 1 else "")
        advice = "set it where the node is started, or mend the reference"
        yield Problem("auth/secret_refs", told, code="secret-unresolved", advice=advice)
