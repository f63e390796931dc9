"""Checks whether this host has what jobs need: programs, directories, users, functions and secrets.

- Nothing is run or imported.  What only running the code would show is not reported.
- A job of another queue than `default` may run on another host, and is not checked.
- The paths of problems are relative to the job, as in `manifest.lint.job`.
"""

import ast
import os
import pwd
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from detent.manifest.problems import Problem
from detent.manifest.rules import address_of
from detent.model import Alert, Call, Command, Job, Push, Request
from detent.text import did_you_mean, quote

SHELLS = frozenset(("ash", "bash", "dash", "ksh", "sh", "zsh"))
SHELL_WORDS = frozenset((  # keywords and builtins
    ".", ":", "[", "alias", "bg", "break", "builtin", "case", "cd", "command", "continue", "declare",
    "do", "echo", "eval", "exec", "exit", "export", "false", "fc", "fg", "for", "function", "getopts",
    "hash", "if", "jobs", "kill", "let", "local", "popd", "printf", "pushd", "pwd", "read", "readonly",
    "return", "select", "set", "shift", "source", "test", "time", "times", "trap", "true", "type",
    "typeset", "ulimit", "umask", "unalias", "unset", "until", "wait", "while",
))  # fmt: skip
SOURCE_MAX = 4 << 20  # bytes; a longer module is not parsed
_FIRST_WORD = re.compile(r"\s*((?:[A-Za-z_]\w*=[\w./:@%+-]*\s+)*)([\w./+@-]+)(?=[\s;|&<>]|$)")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DYNAMIC = {"*", "__getattr__", "globals", "setattr"}  # a module that uses one can define any name


class Host(NamedTuple):
    """What a node on this host would give its jobs."""

    env: Mapping[str, str]
    secrets: Mapping[str, str]  # of the manifest and the machine file


def check_job(job: Job, host: Host) -> Iterator[Problem]:
    if job.queue != "default":
        return
    match job.work:
        case Command():
            yield from _check_around(job.work) or _check_program(job.work, "command", host)
        case Request() | Push():
            yield from _check_secrets(job.work.secret_refs, host)
        case Call():
            yield from _check_around(job.work) or _check_function(job.work, host)
    for name, hook in job.hooks.items():
        if isinstance(hook, Command):
            yield from _check_program(hook, name.replace(".", "/"), host)
        elif isinstance(hook, Alert):
            yield from _unresolved(hook.secret_refs, host, name.partition(".")[0], 1)


def check_alert(hook: object, path: str) -> Iterator[Problem]:
    """Check the address of an alert with Apprise, if this hook is an alert."""
    if not (address := address_of(hook)):
        return
    from detent.runners.alert import service_fault  # late: few manifests have alerts

    message, advice = service_fault(address)
    if message:
        yield Problem(path, message, advice=advice)


def _check_around(work: Command | Call) -> list[Problem]:
    """Check the user and the directory; without these the rest cannot be checked."""
    return [*_check_user(work.user), *_check_directory(work.work_dir)]


def _check_program(command: Command, path: str, host: Host) -> Iterator[Problem]:
    words, search = command.words, dict(command.env).get("PATH") or host.env.get("PATH") or os.defpath
    names = [words[0]]
    if "-c" in words[1:-1] and Path(words[0]).name in SHELLS:
        names.append(first_program(words[words.index("-c") + 1]))
    for name in names:
        if name and (fault := _program_fault(name, search, command.work_dir)):
            yield Problem(path, fault, code="command-not-found", advice=_program_advice(name))


def first_program(script: str) -> str:
    """The first program of a shell script; "" for a builtin, or if it is not a plain word."""
    match = _FIRST_WORD.match(script)
    return "" if match is None or "PATH=" in match[1] or match[2] in SHELL_WORDS else match[2]


@lru_cache(maxsize=4096)
def _program_fault(name: str, search: str, work_dir: str) -> str:
    if "/" not in name:
        return "" if shutil.which(name, path=search) else f"command not found in PATH: {name}"
    where = f" in {work_dir}" if work_dir and not name.startswith("/") else ""
    if not Path(work_dir, name).is_file():
        return f"command not found: {name}{where}"
    return "" if os.access(Path(work_dir, name), os.X_OK) else f"command is not executable: {name}{where}"


def _program_advice(name: str) -> str:
    if "/" in name:
        return "fix the path, or make the file executable"
    user = f"; if it is the user, write `user: {name}`" if _is_user(name) else ""
    return f"install it, write its full path, or set PATH in `env`{user}"


def _check_directory(work_dir: str) -> Iterator[Problem]:
    if work_dir and not Path(work_dir).is_dir():
        what = "is not a directory" if Path(work_dir).exists() else "does not exist on this host"
        advice = "create it, or name another; a relative path starts where the node is started"
        yield Problem("work_dir", f"{quote(work_dir)} {what}", code="work-dir-missing", advice=advice)


def _check_user(user: str) -> Iterator[Problem]:
    if user and not _is_user(user):
        yield Problem("user", f"this host has no user {quote(user)}", code="user-unknown", advice="create it")
    elif user and os.geteuid() != 0 and pwd.getpwnam(user).pw_uid != os.geteuid():
        message = f"only root can run a command as {quote(user)}, and this is not root"
        yield Problem("user", message, code="user-forbidden", advice="run the node as root, or as that user")


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _check_secrets(refs: tuple[str, ...], host: Host) -> Iterator[Problem]:
    if not refs:
        return
    from detent.runners.secrets import SECRET_MIN  # late: few manifests sign requests

    found = [*_unresolved(refs, host, "auth/secret_refs", SECRET_MIN)]
    end = "; requests cannot be signed without a secret" if len(found) == len(refs) else ""
    yield from (problem._replace(message=problem.message + end) for problem in found)


def _unresolved(refs: tuple[str, ...], host: Host, path: str, least: int) -> Iterator[Problem]:
    from detent.runners.secrets import resolve

    for warning in resolve(refs, host.secrets, host.env, least).warnings:
        advice = "set it where the node is started, or fix the reference"
        yield Problem(path, warning, code="secret-unresolved", advice=advice)


def _check_function(call: Call, host: Host) -> Iterator[Problem]:
    search = dict(call.env).get("PYTHONPATH") or host.env.get("PYTHONPATH") or ""
    folders = [call.work_dir or ".", *search.split(os.pathsep)]
    if fault := missing_part(call.function, folders):
        advice = "install it in the environment of detent, or name its folder with `work_dir`"
        yield Problem("call", fault, code="function-not-found", advice=advice)
    elif is_generator_function(call.function, folders):
        from detent.runners.call.function import GENERATOR  # late: few manifests have such a call

        yield Problem("call", f"{call.function} {GENERATOR}", code="generator-function")


def missing_part(function: str, folders: Sequence[str]) -> str:
    """Say what of `package.module:function` does not exist; "" if all of it does, or can."""
    module, _, name = function.partition(":")
    if module.partition(".")[0] in sys.builtin_module_names:
        return ""
    found = _find_module(module, folders)
    if isinstance(found, str):
        return f"there is no module {quote(found)} on this host"
    tree, name = _parse(found.origin or ""), name.partition(".")[0]
    names = {name for node in ast.walk(tree) for name in _names_of(node)} if tree else set()
    if not names or name in names or names & _DYNAMIC:
        return ""
    return f"the module {quote(module)} has no {quote(name)}{did_you_mean(name, names)}"


def is_generator_function(function: str, folders: Sequence[str]) -> bool:
    module, _, name = function.partition(":")
    found = _find_module(module, folders)
    tree = None if isinstance(found, str) else _parse(found.origin or "")
    defined = [one for one in (tree.body if tree else ()) if getattr(one, "name", "") == name]
    return bool(defined) and isinstance(defined[-1], _FUNCTIONS) and _yields(defined[-1])


def _find_module(module: str, folders: Sequence[str]) -> ModuleSpec | str:
    """The module or, if it does not exist, the name of the missing package or module."""
    places: Sequence[str] | None = [*(folder for folder in folders if folder), *sys.path]
    spec: ModuleSpec | None = None
    for part in accumulate(module.split("."), lambda left, right: f"{left}.{right}"):
        spec = PathFinder.find_spec(part, places) if places else None
        if spec is None:
            return part
        places = spec.submodule_search_locations
    return spec or module


def _parse(origin: str) -> ast.Module | None:
    """Parse a module; None if it is not readable Python source."""
    file = Path(origin)
    try:
        if file.suffix != ".py" or file.stat().st_size > SOURCE_MAX:
            return None
        return ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return None


def _yields(node: ast.AST) -> bool:
    """Whether its own body has a `yield`, not that of an inner function."""
    inner = [one for one in ast.iter_child_nodes(node) if not isinstance(one, (*_FUNCTIONS, ast.Lambda))]
    return any(isinstance(one, ast.Yield | ast.YieldFrom) or _yields(one) for one in inner)


def _names_of(node: ast.AST) -> Iterator[str]:
    """The names that a node can define, or mentions."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]
