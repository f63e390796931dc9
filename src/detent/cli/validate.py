"""`detent validate`: all that is wrong with a manifest, at once."""

from __future__ import annotations

import argparse
import os
from typing import Any

from detent.cli.tables import say, write_json
from detent.config import find_manifest, load_manifest
from detent.core.findings import ManifestError, Problem, worded
from detent.core.manifest import Manifest
from detent.core.text import plural
from detent.errors import UsageError

EXAMPLE = "detent validate detent.yaml"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="the manifest (default: ./detent.yaml)")


def main(given: argparse.Namespace) -> int:
    if given.output == "json":
        return _answer_program(given.file)
    file = find_manifest(given.file)
    try:
        manifest = load_manifest(file, dict(os.environ))
    except ManifestError as error:
        say(f"{error}\n{plural(len(error.problems), 'problem')}")
        return 1
    for warning in manifest.warnings:
        print(f"warning: {worded(warning, str(file))}")
    print(f"ok: {file}: app {manifest.app}, {_jobs(manifest)}")
    return 0


def _jobs(manifest: Manifest) -> str:
    disabled = f" ({len(manifest.disabled)} disabled)" if manifest.disabled else ""
    return plural(len(manifest.canonical), "job") + disabled


def _answer_program(named: str | None) -> int:
    try:
        file = find_manifest(named)
        manifest = load_manifest(file, dict(os.environ))
    except ManifestError as error:
        write_json([_record("error", error.file, problem) for problem in error.problems])
        return 1
    except UsageError as error:
        write_json([_record("error", named or "", Problem(path="", message=str(error)))])
        return 1
    write_json([_record("warning", str(file), warning) for warning in manifest.warnings])
    return 0


def _record(level: str, file: str, problem: Problem) -> dict[str, Any]:
    place = {"line": problem.line or None, "column": problem.column or None}
    return {"level": level, "file": file or None, **place, "path": problem.path, "message": problem.message}
