"""`detent completion`: a script that completes verbs, options and jobs in a shell.

- It is made from the parsers of the verbs: what they take is what is completed.
- Jobs are asked for when they are needed, by `detent completion jobs`: a manifest changes.  Where there
  is none, or a broken one, nothing is said: a person is in the middle of a line.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable
from typing import NamedTuple

from detent.cli.main import VERBS, parser_of
from detent.cli.tables import write_json
from detent.config import find_manifest, load_manifest
from detent.errors import UsageError

EXAMPLE = "detent completion bash"
HINT = """add to your shell's start-up file:
  bash: eval "$(detent completion bash)"
  zsh:  eval "$(detent completion zsh)"    (after compinit)
  fish: detent completion fish | source"""
JOBS = ("JOB", "FIRE")  # what an argument is called that a job can stand for
FILES = ("FILE", "PLACE", "PATH")


class Option(NamedTuple):
    """An option of a verb."""

    names: tuple[str, ...]
    about: str
    takes: str  # "": nothing; else what its value is called
    choices: tuple[str, ...] = ()


class Usage(NamedTuple):
    """What may follow a verb."""

    verb: str
    about: str
    options: tuple[Option, ...]
    takes: frozenset[str]  # what its arguments are called
    choices: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [name for option in self.options for name in option.names]


def options(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = f"{parser.description}\n\n{HINT}"
    about = "the shell; `jobs` prints the job names that the scripts complete"
    parser.add_argument("shell", choices=(*SCRIPTS, "jobs"), help=about)


def main(given: argparse.Namespace) -> int:
    if given.shell == "jobs":
        _write_jobs(_jobs(), given.output)
        return 0
    print(SCRIPTS[given.shell]([_usage(verb) for verb in VERBS]))
    return 0


def _write_jobs(names: list[str], output: str) -> None:
    if output == "json":
        write_json(names)
    else:
        for name in names:
            print(name)


def _jobs() -> list[str]:
    try:
        manifest = load_manifest(find_manifest(), dict(os.environ))
    except UsageError:
        return []
    return [name.partition(".")[2] for name in manifest.canonical]


def _usage(verb: str) -> Usage:
    actions = parser_of(verb)._actions
    named = tuple(_option(action) for action in actions if action.option_strings)
    plain = [action for action in actions if not action.option_strings]
    takes = frozenset(part for action in plain for part in str(action.metavar or "").split("|"))
    choices = tuple(str(choice) for action in plain for choice in action.choices or ())
    return Usage(verb, VERBS[verb], named, takes, choices)


def _option(action: argparse.Action) -> Option:
    takes = "" if action.nargs == 0 else str(action.metavar or action.dest)
    choices = tuple(str(choice) for choice in action.choices or ())
    return Option(tuple(action.option_strings), action.help or "", takes, choices)


# bash.


def _bash(usages: list[Usage]) -> str:
    values = _bash_values(usages)
    words = "\n".join(f"        {usage.verb}) {_bash_words(usage)} ;;" for usage in usages)
    return f"""\
_detent() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="" verb="${{COMP_WORDS[1]}}"
    COMPREPLY=()
    if [ "$COMP_CWORD" -le 1 ]; then
        COMPREPLY=($(compgen -W "{" ".join(usage.verb for usage in usages)} --help --version" -- "$word"))
        return
    fi
    before="${{COMP_WORDS[COMP_CWORD-1]}}"
    case "$verb $before" in
{values}
    esac
    case "$verb" in
{words}
    esac
}}
complete -o filenames -F _detent detent"""


def _bash_values(usages: list[Usage]) -> str:
    lines = []
    for usage in usages:
        for option in usage.options:
            if option.takes:
                pattern = "|".join(f"'{usage.verb} {name}'" for name in option.names)
                lines.append(f"        {pattern}) {_bash_value(option)}; return ;;")
    return "\n".join(lines)


def _bash_value(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$word"))'
    return 'COMPREPLY=($(compgen -f -- "$word"))' if option.takes in FILES else ":"


def _bash_words(usage: Usage) -> str:
    words = " ".join((*usage.names, *usage.choices))
    jobs = " $(command detent completion jobs 2>/dev/null)" if usage.takes & {*JOBS} else ""
    told = f'COMPREPLY=($(compgen -W "{words}{jobs}" -- "$word"))'
    return told + ('; COMPREPLY+=($(compgen -f -- "$word"))' if usage.takes & {*FILES} else "")


# zsh.


def _zsh(usages: list[Usage]) -> str:
    verbs = " ".join(shlex.quote(f"{usage.verb}:{usage.about}") for usage in usages)
    values = "\n".join(line for usage in usages for line in _zsh_values(usage))
    words = "\n".join(f"        {usage.verb}) {_zsh_words(usage)} ;;" for usage in usages)
    return f"""\
#compdef detent
_detent() {{
    local -a verbs
    verbs=({verbs})
    if (( CURRENT == 2 )); then
        _describe verb verbs
        return
    fi
    case "$words[2] $words[CURRENT-1]" in
{values}
    esac
    case "$words[2]" in
{words}
    esac
}}
compdef _detent detent"""


def _zsh_values(usage: Usage) -> list[str]:
    lines = []
    for option in usage.options:
        pattern = "|".join(f"'{usage.verb} {name}'" for name in option.names)
        value = f"compadd -- {' '.join(option.choices)}" if option.choices else ":"
        value = "_files" if option.takes in FILES and not option.choices else value
        lines += [f"        {pattern}) {value}; return ;;"] if option.takes else []
    return lines


def _zsh_words(usage: Usage) -> str:
    told = [f"compadd -- {' '.join((*usage.choices, *usage.names))}"]
    if usage.takes & {*JOBS}:
        told.append('compadd -- ${(f)"$(command detent completion jobs 2>/dev/null)"}')
    return "; ".join(told + (["_files"] if usage.takes & {*FILES} else []))


# fish.


def _fish(usages: list[Usage]) -> str:
    lines = ["complete -c detent -f"]
    for usage in usages:
        about, seen = shlex.quote(usage.about), f"-n '__fish_seen_subcommand_from {usage.verb}'"
        lines.append(f"complete -c detent -n __fish_use_subcommand -a {usage.verb} -d {about}")
        lines += [f"complete -c detent {seen} {_fish_option(option)}" for option in usage.options]
        if usage.choices:
            lines.append(f"complete -c detent {seen} -a '{' '.join(usage.choices)}'")
        if usage.takes & {*JOBS}:
            lines.append(f"complete -c detent {seen} -a '(command detent completion jobs 2>/dev/null)'")
        if usage.takes & {*FILES}:
            lines.append(f"complete -c detent {seen} -F")
    return "\n".join(lines)


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    value = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" if option.takes else ""
    files = " -F" if option.takes in FILES else ""
    return f"{' '.join(names)}{value}{files} -d {shlex.quote(option.about)}"


SCRIPTS: dict[str, Callable[[list[Usage]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
