"""The command line: finds the verb, imports it alone, and turns errors into words and exit codes.

- 0: done; 1: it could not be done; 2: that is not how to ask; 130: interrupted.
- Whatever happens, a person is told in a sentence, never by a traceback.
- A verb is a file in this folder with `EXAMPLE`, `options(parser)` and `main(given)`.
- `detent trigger` is started for every fire: on its way nothing is imported that it can do without.  What
  it has to say by its exit codes is its own, and what goes wrong here is 3 there.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False  # typing's own would cost every start of ours what typing costs
if TYPE_CHECKING:
    import argparse
    from types import ModuleType

VERBS = {  # verb -> what it does
    "run": "run the jobs of a manifest until told to stop",
    "worker": "run the tasks of an app in code, as messages ask for them",
    "status": "on one screen: what runs, what is next, what failed, what is late",
    "why": "why a job did or did not run at a time",
    "init": "write a manifest to start from",
    "validate": "check a manifest, and tell all that is wrong with it",
    "doctor": "what of the promise this host and its store carry",
    "convert": "another scheduler's file as a manifest",
    "show": "what a job or a manifest says, with its defaults",
    "next": "when jobs are due next",
    "list": "the jobs, when they are due, and how they went",
    "history": "what was fired, and how it ended",
    "logs": "what a fire wrote",
    "plan": "what `apply` would change on a host scheduler",
    "apply": "bring a host scheduler into agreement with a manifest",
    "drift": "where a host scheduler is not as the manifest says",
    "adopt": "take over entries of a host scheduler that jobs of the manifest replace",
    "fire": "fire a job now",
    "trigger": "carry out the fire that a host's scheduler rang for",
    "kill": "end a fire",
    "pause": "keep jobs from firing for a while",
    "resume": "let paused jobs fire again",
    "queue": "what is on the queues of an app in code, and what died there",
    "nodes": "which nodes are alive",
    "prune": "forget old history now",
    "completion": "a script that completes verbs, options and jobs in a shell",
    "schema": "the JSON Schema of manifests",
    "version": "which detent this is",
}
SAID_IN_USAGE = 2
NOT_TRIED = 3  # by `trigger`, where 1 and 2 tell how a fire ended


def main(words: list[str] | None = None) -> int:
    is_program, words = words is None, sys.argv[1:] if words is None else words
    is_trigger = words[:1] == ["trigger"]
    try:
        _say_what_can_be_said()
        code = _run_trigger(words[1:]) if is_trigger else None
        code = _run(words) if code is None else code
        sys.stdout.flush()
        if is_trigger and is_program:
            _leave_at_once(code)
        return code
    except SystemExit as end:  # argparse has said why
        code = end.code if isinstance(end.code, int) else SAID_IN_USAGE
        return NOT_TRIED if is_trigger and code else code
    except BrokenPipeError:  # whoever read our output has seen enough
        _forget_output()
        return 0
    except Exception as error:
        print(_worded(error), file=sys.stderr)
        return NOT_TRIED if is_trigger else 1


def _run_trigger(words: list[str]) -> int | None:
    """What it leaves in memory, its end clears up: to look for that meanwhile would take longer."""
    import gc

    gc.disable()
    from detent.cli.trigger import run

    return run(words)


def _leave_at_once(code: int) -> None:
    """All is settled and closed: to take every module apart again would be for nobody."""
    sys.stderr.flush()
    os._exit(code)


def _run(words: list[str]) -> int:
    from detent.core.text import did_you_mean, quote

    verb = words[0] if words and not words[0].startswith("-") else ""
    if verb and verb not in VERBS:
        advice = did_you_mean(verb, VERBS) or "; `detent --help` lists them"
        print(f"detent: there is no verb {quote(verb)}{advice}", file=sys.stderr)
        return SAID_IN_USAGE
    parser = parser_of(verb)
    if not words:
        parser.print_help(sys.stderr)
        return SAID_IN_USAGE
    given = parser.parse_args(["version"] if words == ["--version"] else words)
    result: int = _module(given.verb).main(given)
    return result


def parser_of(verb: str) -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="detent",
        description="A scheduler for jobs that must run once: not zero times, not twice.",
        epilog="`detent VERB --help` tells more of each.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help=VERBS["version"])
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, meaning in VERBS.items():
        own = verbs.add_parser(name, help=meaning, description=_sentence(meaning), allow_abbrev=False)
        own.add_argument(
            "-o", "--output", choices=("text", "json"), default="text", help="for people, or for programs"
        )
        if name == verb:
            module = _module(name)
            own.epilog = f"example: {module.EXAMPLE}"
            module.options(own)
    return parser


def _module(verb: str) -> ModuleType:
    from importlib import import_module

    return import_module(f"detent.cli.{verb}")


def _sentence(meaning: str) -> str:
    return meaning[0].upper() + meaning[1:] + "."


def _worded(error: Exception) -> str:
    from detent.core.findings import ManifestError
    from detent.errors import DetentError

    if isinstance(error, ManifestError):  # each of its lines names the file
        return str(error)
    if isinstance(error, DetentError):
        return f"detent: {error}"
    if isinstance(error, OSError):
        named = f": {error.filename}" if error.filename else ""
        return f"detent: {error.strerror or error}{named}"
    return (
        f"detent: {type(error).__name__}: {error} {_place(error)}: this is a bug of detent, please report it"
    )


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"({trace.tb_frame.f_globals.get('__name__')}, line {trace.tb_lineno})" if trace else ""


def _say_what_can_be_said() -> None:
    """A terminal that cannot show a character gets its number."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _forget_output() -> None:
    """What is still buffered goes nowhere, or Python would complain when it ends."""
    from contextlib import suppress

    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
