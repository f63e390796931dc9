"""The `detent` command line: imports the module of one verb, and turns errors into messages and exit codes.

- Exit codes: 0 success, 1 error, 2 usage error.  `trigger` has exit codes of its own.
- A verb is a module in the package of its group, with `EXAMPLE`, `add_options(parser)` and `main(args)`.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from types import ModuleType

GROUPS = {  # group: {verb: what it does}
    "Run": {
        "run": "run the jobs of a manifest",
        "worker": "process messages from queues",
        "trigger": "run one job now on behalf of cron, systemd or Kubernetes",
    },
    "Look": {
        "status": "show what is running, due next, failing or late",
        "dashboard": "serve a web page that shows jobs, fires, queues and nodes",
        "why": "explain why a job did or did not run at a given time",
        "list": "list the jobs, when they are due and how they last ended",
        "next": "show when jobs are due next",
        "history": "list past fires and their outcomes",
        "logs": "show the output of a fire",
        "nodes": "list live nodes",
        "doctor": "check whether this host and its store can keep the guarantees",
    },
    "Act": {
        "fire": "run a job now",
        "pause": "stop scheduling jobs for a while",
        "resume": "start scheduling them again",
        "kill": "stop a running fire",
        "queue": "inspect the queues of an app, push, retry or purge messages",
        "alert": "send a test alert to the addresses of a manifest",
        "prune": "delete old history now",
    },
    "Write": {
        "init": "create a starter manifest",
        "validate": "check a manifest and report every problem",
        "show": "print a job or a manifest with its defaults filled in",
        "convert": "translate a crontab, cronlock file, CronJob or timer",
    },
    "Host schedulers (cron, systemd, Kubernetes, EventBridge)": {
        "plan": "show what `apply` would change",
        "apply": "write the jobs of a manifest to a host scheduler",
        "drift": "list where a host scheduler differs from the manifest",
        "adopt": "replace a host scheduler's own entries with jobs of the manifest",
        "unapply": "remove the jobs of an app from a host scheduler",
    },
    "Other": {
        "help": "show the help of a verb",
        "completion": "print a completion script for bash, zsh or fish",
        "schema": "print the JSON Schema of manifests",
        "version": "print the version of detent",
    },
}
VERBS = {verb: meaning for group in GROUPS.values() for verb, meaning in group.items()}
VERB_WIDTH = max(map(len, VERBS))
SUMMARY = "A scheduler for jobs that must run once: not zero times, not twice, not on top of each other."
USAGE_ERROR = 2
NOT_TRIED = 3  # of `trigger`, where 1 and 2 say how a fire ended


def main(words: list[str] | None = None) -> int:
    is_program, words = words is None, sys.argv[1:] if words is None else words
    is_trigger = words[:1] == ["trigger"]
    try:
        _escape_unencodable()
        code = _run_trigger(words[1:]) if is_trigger else None
        code = _run(words) if code is None else code
        sys.stdout.flush()
        if is_trigger and is_program:
            sys.stderr.flush()
            os._exit(code)  # skips the interpreter's shutdown, which the start-up budget cannot pay for
        return code
    except SystemExit as end:  # argparse has printed the reason
        code = end.code if isinstance(end.code, int) else USAGE_ERROR
        return NOT_TRIED if is_trigger and code else code
    except BrokenPipeError:  # the reader closed the pipe, like `detent history | head`
        _discard_output()
        return 0
    except Exception as error:
        print(_message(error), file=sys.stderr)
        if is_program:  # Python 3.14 exits with another code if its own flush fails
            try:
                sys.stdout.flush()
            except OSError:
                _discard_output()
        return NOT_TRIED if is_trigger else 1


def _run_trigger(words: list[str]) -> int | None:
    """Run `trigger` without argparse and the garbage collector: a host starts it for every fire.

    Returns None if the options need argparse, for an error or `--help`.
    """
    import gc

    gc.disable()
    from detent.cli.run.trigger import run

    return run(words)


def _run(words: list[str]) -> int:
    from detent.text import did_you_mean, quote

    if not words:
        print(overview(), file=sys.stderr)
        return USAGE_ERROR
    if words[0] in ("-h", "--help"):
        print(overview())
        return 0
    verb, *rest = ["version"] if words[0] == "--version" else words
    if verb not in VERBS:
        what = "option" if verb.startswith("-") else "verb"
        advice = did_you_mean(verb, VERBS) or "; `detent help` lists the verbs"
        print(f"detent: there is no {what} {quote(verb)}{advice}", file=sys.stderr)
        return USAGE_ERROR
    result: int = verb_module(verb).main(parse(verb, rest))
    return result


def overview() -> str:
    """The help of the program: the verbs by group."""
    lines = [SUMMARY, "", "usage: detent VERB [options]"]
    for group, verbs in GROUPS.items():
        lines += ["", group, *(f"  {verb:<{VERB_WIDTH}}  {meaning}" for verb, meaning in verbs.items())]
    return "\n".join([*lines, "", "`detent help VERB` describes a verb and its options."])


def parse(verb: str, words: list[str]) -> argparse.Namespace:
    """Parse the options of a verb; exits with the usage on an unknown one."""
    from detent.text import did_you_mean

    parser = build_parser(verb)
    args, surplus = parser.parse_known_args(words)
    if surplus:
        word, options = surplus[0], [name for action in parser._actions for name in action.option_strings]
        if word.startswith("-"):
            advice = did_you_mean(word.partition("=")[0], options)
        else:
            advice = f"; name the manifest with `-f {word}`" if "--file" in options else ""
        parser.error(f"unexpected argument: {word}{advice}")
    return args


def build_parser(verb: str) -> argparse.ArgumentParser:
    import argparse

    module, meaning = verb_module(verb), VERBS[verb]
    parser = argparse.ArgumentParser(
        prog=f"detent {verb}",
        description=f"{meaning[0].upper()}{meaning[1:]}.",
        epilog=f"example: {module.EXAMPLE}",
        allow_abbrev=False,
    )
    add_output(parser)
    module.add_options(parser)
    return parser


def add_output(parser: argparse.ArgumentParser, default: str = "text") -> None:
    about = "text for people, JSON for programs"
    parser.add_argument("-o", "--output", choices=("text", "json"), default=default, help=about)


def verb_module(verb: str) -> ModuleType:
    from importlib import import_module

    title = next(title for title, verbs in GROUPS.items() if verb in verbs)
    return import_module(f"detent.cli.{title.split()[0].lower()}.{verb}")


def _message(error: Exception) -> str:
    from detent.errors import DetentError
    from detent.manifest.problems import ManifestError

    if isinstance(error, ManifestError):  # each of its lines names the file
        return str(error)
    if isinstance(error, DetentError):
        return f"detent: {error}"
    if isinstance(error, OSError):
        named = f": {error.filename}" if error.filename else ""
        return f"detent: {error.strerror or error}{named}"
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    place = f" ({trace.tb_frame.f_globals.get('__name__')}, line {trace.tb_lineno})" if trace else ""
    return f"detent: {type(error).__name__}: {error}{place}: this is a bug in detent, please report it"


def _escape_unencodable() -> None:
    """Write an escape for a character that the terminal's encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Send buffered output to /dev/null, so that Python does not complain about it at exit."""
    from contextlib import suppress

    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
