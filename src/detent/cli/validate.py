"""`detent validate`: all that is wrong with a manifest, at once, and what its author may not have meant.

Problems come from the manifest's checker; warnings from it, from `core.lint` (the calendar) and from
`cli.checks` (this host).  A warning is no problem, unless `--strict` says so.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detent import clock
from detent.cli.checks import Host, check_job
from detent.cli.context import add_named_file
from detent.cli.describe import canonical
from detent.cli.places import is_chosen, place, put
from detent.cli.tables import say, write_json
from detent.cli.wrapping import coloured, wrapped
from detent.config import find_manifest, load_manifest
from detent.core.findings import PROBLEMS_MAX, ManifestError, Problem, worded
from detent.core.lint import Subject, lint_job
from detent.core.lint_work import lint_secrets
from detent.core.manifest import Manifest
from detent.core.text import plural
from detent.errors import UsageError
from detent.foreign_files import read_source

EXAMPLE = "detent validate detent.yaml"
WARNING = "warning: "


def options(parser: argparse.ArgumentParser) -> None:
    add_named_file(parser)
    parser.add_argument("--strict", action="store_true", help="a warning is an error: exit 1")


def main(given: argparse.Namespace) -> int:
    if given.output == "json":
        return _answer_program(given)
    file = find_manifest(given.file)
    try:
        manifest = load_manifest(file, dict(os.environ))
    except ManifestError as error:
        say(f"{error}\n{plural(len(error.problems), 'problem')}")
        return 1
    warnings = _warnings(manifest, file)
    for warning in warnings[:PROBLEMS_MAX]:
        _tell(warning, file)
    if len(warnings) > PROBLEMS_MAX:
        print(f"… and {plural(len(warnings) - PROBLEMS_MAX, 'more warning')}")
    refused = bool(warnings) and given.strict
    told = f", {plural(len(warnings), 'warning')}" if warnings else ""
    verdict = coloured("not ok", "red") if refused else coloured("ok", "green")
    print(f"{verdict}: {file}: app {manifest.app}, {_jobs(manifest)}{told}")
    return 1 if refused else 0


def _tell(warning: Problem, file: Path) -> None:
    told = wrapped(f"{worded(warning, str(file))} [{warning.code}]", first=WARNING, indent="  ")
    print(coloured(WARNING, "yellow") + told.removeprefix(WARNING))
    if warning.advice:
        print(wrapped(warning.advice, first="  → ", indent="    "))


def _jobs(manifest: Manifest) -> str:
    disabled = f" ({len(manifest.disabled)} disabled)" if manifest.disabled else ""
    return plural(len(manifest.canonical), "job") + disabled


def _answer_program(given: argparse.Namespace) -> int:
    try:
        file = find_manifest(given.file)
        manifest = load_manifest(file, dict(os.environ))
    except ManifestError as error:
        write_json([_record("error", error.file, problem) for problem in error.problems])
        return 1
    except UsageError as error:
        write_json([_record("error", given.file or "", Problem(path="", message=str(error)))])
        return 1
    warnings = _warnings(manifest, file)
    write_json([_record("warning", str(file), warning) for warning in warnings])
    return 1 if warnings and given.strict else 0


def _record(level: str, file: str, problem: Problem) -> dict[str, Any]:
    place = {"line": problem.line or None, "column": problem.column or None}
    about = {"code": problem.code or None, "advice": problem.advice or None}
    told = {"path": problem.path, "message": problem.message}
    return {"level": level, "file": file or None, **place, **told, **about}


# Warnings.


def _warnings(manifest: Manifest, file: Path) -> list[Problem]:
    """In the order of the file."""
    source = read_source(file, dict(os.environ))
    placed = [place(source, i, one) for i, one in _doubts(manifest) if not is_chosen(source, i, one)]
    placed += [put(source, one) for one in lint_secrets(source.document)]
    return sorted([*manifest.warnings, *placed], key=lambda problem: problem.line)


def _doubts(manifest: Manifest) -> Iterator[tuple[int, Problem]]:
    """What is doubtful about the jobs that are enabled, with the number of the job."""
    jobs = {job.name: job for job in manifest.jobs}
    host, now = Host(dict(os.environ), manifest.secrets), clock.now()
    for i, name in enumerate(manifest.canonical):
        if job := jobs.get(name):
            subject = Subject(name, canonical(manifest, name), manifest.version, now)
            yield from ((i, problem) for problem in lint_job(subject))
            yield from ((i, problem) for problem in check_job(job, host))
