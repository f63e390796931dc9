"""`detent completion`: prints a script that completes verbs, options, files and job names in a shell."""

import argparse
import os

from detent.cli.main import VERBS, build_parser
from detent.cli.tables import write_json
from detent.errors import UsageError
from detent.loading.config import find_manifest, load_manifest

EXAMPLE = "detent completion bash"
HINT = """Add to the start-up file of your shell:
  bash: eval "$(detent completion bash)"
  zsh:  eval "$(detent completion zsh)"    (after compinit)
  fish: detent completion fish | source"""
SHELLS = ("bash", "zsh", "fish")
JOBS = {"JOB", "FIRE"}  # arguments that take a job name
FILES = {"FILE", "PLACE", "PATH"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = f"{parser.description}\n\n{HINT}"
    about = "the shell; `jobs` prints the job names that the scripts complete"
    parser.add_argument("shell", choices=(*SHELLS, "jobs"), help=about)


def main(args: argparse.Namespace) -> int:
    if args.shell != "jobs":
        import shtab

        print(shtab.complete(_program(), args.shell))
    elif args.output == "json":
        write_json(_jobs())
    else:
        for name in _jobs():
            print(name)
    return 0


def _jobs() -> list[str]:
    """The job names; none without a valid manifest, as an error would disturb the user's command line."""
    try:
        manifest = load_manifest(find_manifest(), dict(os.environ))
    except UsageError:
        return []
    return [name.partition(".")[2] for name in manifest.canonical]


def _program() -> argparse.ArgumentParser:
    program = argparse.ArgumentParser(prog="detent")
    program.add_argument("--version", action="store_true")
    verbs = program.add_subparsers()
    for verb, about in VERBS.items():
        parser = build_parser(verb)
        for action in parser._actions:
            _mark(action)
        verbs.add_parser(verb, parents=[parser], add_help=False, help=about)
    return program


def _mark(action: argparse.Action) -> None:
    """Tell shtab what an argument takes, by its metavar."""
    import shtab

    takes = {*str(action.metavar).split("|")}
    if takes & JOBS:
        action.complete = shtab.cmd("detent completion jobs 2>/dev/null")  # type: ignore[attr-defined]
    elif takes & FILES:
        action.complete = shtab.FILE  # type: ignore[attr-defined]
