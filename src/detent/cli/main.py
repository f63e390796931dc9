"""The command line: finds the verb, imports it alone, and turns errors into words and exit codes."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from types import ModuleType

from detent.errors import DetentError

VERBS = {  # verb -> what it does; each is a file of its own in this folder
    "run": "run the jobs of a manifest until told to stop",
}


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    try:
        return _run(words)
    except DetentError as error:
        print(f"detent: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.stderr.close()
        return 0


def _run(words: list[str]) -> int:
    verb = next((word for word in words if not word.startswith("-")), "")
    parser = argparse.ArgumentParser(prog="detent", description="A scheduler for jobs that must run once.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, meaning in VERBS.items():
        own = verbs.add_parser(name, help=meaning)
        if name == verb:
            _module(name).options(own)
    given = parser.parse_args(words)
    result: int = _module(given.verb).main(given)
    return result


def _module(verb: str) -> ModuleType:
    return import_module(f"detent.cli.{verb}")
