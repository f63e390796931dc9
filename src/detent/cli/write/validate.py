"""`detent validate`: checks a manifest and reports every problem and warning at once.

Problems come from the manifest's checker, warnings also from `manifest.lint` (schedules) and
`validate_checks` (this host).  Only problems fail, unless `--strict` is given.
"""

import argparse
import os
from collections.abc import Iterator
from typing import Any

from detent import clock
from detent.cli.context import add_manifest_options
from detent.cli.tables import coloured, say, wrapped, write_json
from detent.cli.write.validate_checks import Host, check_alert, check_job
from detent.errors import UsageError
from detent.loading.config import check_source, load_machine
from detent.loading.foreign import Source
from detent.loading.sources import Place, find_place, manifest_places, read_manifests, read_source
from detent.manifest.check import Manifest
from detent.manifest.fields import HOOKS
from detent.manifest.lint.dst import CODE
from detent.manifest.lint.job import LintedJob, lint_job
from detent.manifest.lint.work import lint_text
from detent.manifest.problems import PROBLEMS_MAX, ManifestError, Problem, format_problem, line_of
from detent.text import plural
from detent.views.job_text import canonical_job

EXAMPLE = "detent validate -f detent.yaml"
WARNING = "warning: "
JOBS_CHECKED_MAX = 1000  # jobs that a node checks when it starts, which must be quick
WARNINGS_LOGGED_MAX = 20
_SINGULAR = {"schedules/0": "schedule"}  # how a single schedule can be written


def add_options(parser: argparse.ArgumentParser) -> None:
    add_manifest_options(parser)
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors: exit 1")


def main(args: argparse.Namespace) -> int:
    if args.output == "json":
        return _write_records(args)
    whole = find_place(args.file)
    codes = [_check(place, args) for place in manifest_places(whole)]
    if len(codes) > 1 and not any(codes):
        read_manifests(whole, dict(os.environ))  # reports conflicts between files
    return max(codes)


def _check(place: Place, args: argparse.Namespace) -> int:
    try:
        manifest, warnings = _read(place, args.secret_ref)
    except ManifestError as error:
        say(f"{error}\n{plural(len(error.problems), 'problem')}")
        return 1
    for warning in warnings[:PROBLEMS_MAX]:
        _print_warning(warning, place)
    if len(warnings) > PROBLEMS_MAX:
        print(f"… and {plural(len(warnings) - PROBLEMS_MAX, 'more warning')}")
    has_failed = bool(warnings) and args.strict
    counts = plural(len(manifest.canonical), "job")
    counts += f" ({len(manifest.disabled)} disabled)" if manifest.disabled else ""
    counts += f", {plural(len(warnings), 'warning')}" if warnings else ""
    verdict = coloured("not ok", "red") if has_failed else coloured("ok", "green")
    print(f"{verdict}: {place}: app {manifest.app}, {counts}")
    return 1 if has_failed else 0


def _print_warning(warning: Problem, file: Place) -> None:
    line = format_problem(warning._replace(advice=""), str(file))
    text = wrapped(f"{line} [{warning.code}]", first=WARNING, indent="  ")
    print(coloured(WARNING, "yellow") + text.removeprefix(WARNING))
    if warning.advice:
        print(wrapped(warning.advice, first="  → ", indent="    "))


def _write_records(args: argparse.Namespace) -> int:
    records: list[dict[str, Any]] = []
    try:
        whole = find_place(args.file)
        for place in manifest_places(whole):
            records += _records(place, args.secret_ref)
        if not any(record["level"] == "error" for record in records):
            read_manifests(whole, dict(os.environ), args.secret_ref)
    except ManifestError as error:
        records += [_record("error", error.file, problem) for problem in error.problems]
    except UsageError as error:
        records.append(_record("error", args.file or "", Problem(path="", message=str(error))))
    write_json(records)
    return 1 if any(record["level"] == "error" or args.strict for record in records) else 0


def _records(place: Place, secret_ref: str) -> list[dict[str, Any]]:
    try:
        _, warnings = _read(place, secret_ref)
    except ManifestError as error:
        return [_record("error", error.file, problem) for problem in error.problems]
    return [_record("warning", str(place), warning) for warning in warnings]


def _record(level: str, file: str, problem: Problem) -> dict[str, Any]:
    return {
        "level": level,
        "file": problem.file or file or None,
        "line": problem.line or None,
        "column": problem.column or None,
        "path": problem.path,
        "message": problem.message,
        "code": problem.code or None,
        "advice": problem.advice or None,
    }


def find_warnings(place: Place, manifest: Manifest) -> list[str]:
    """The warnings that a node logs when it starts; of a large manifest only the cheap ones."""
    if len(manifest.canonical) > JOBS_CHECKED_MAX:
        return [format_problem(warning, str(place)) for warning in manifest.warnings]
    found = [(one, warning) for one in manifest_places(place) for warning in _read(one, "")[1]]
    lines = [format_problem(warning, str(one)) for one, warning in found[:WARNINGS_LOGGED_MAX]]
    more = len(found) - len(lines)
    return [*lines, f"{plural(more, 'more warning')}: `detent validate` lists them"] if more > 0 else lines


def _read(place: Place, secret_ref: str) -> tuple[Manifest, list[Problem]]:
    """Read a manifest and its warnings, in the order of the file."""
    env = dict(os.environ)
    try:
        source = read_source(place, env, secret_ref)
    except ManifestError as error:
        raise ManifestError(error.problems, error.file or str(place)) from None
    manifest = check_source(source, str(place), env, load_machine(env))
    if faults := dict.fromkeys(_locate(source, i, one) for i, one in _alert_faults(manifest)):
        raise ManifestError([*faults], str(place))
    placed = [_locate(source, i, one) for i, one in _lint(manifest) if not _is_dst_chosen(source, i, one)]
    placed += [_with_line(source, one) for one in lint_text(source.document)]
    return manifest, sorted([*manifest.warnings, *placed], key=lambda problem: problem.line)


def _alert_faults(manifest: Manifest) -> Iterator[tuple[int, Problem]]:
    """The addresses of alerts that cannot work, with the index of the job."""
    for i, name in enumerate(manifest.canonical):
        document = canonical_job(manifest, name)
        for event in HOOKS:
            for index, hook in enumerate(document.get(event, ())):
                yield from (
                    (i, problem) for problem in check_alert(hook, f"{event}/{index}" if index else event)
                )


def _lint(manifest: Manifest) -> Iterator[tuple[int, Problem]]:
    """The warnings about enabled jobs, with the index of the job."""
    jobs = {job.name: job for job in manifest.jobs}
    host, now = Host(dict(os.environ), manifest.secrets), clock.now()
    for i, name in enumerate(manifest.canonical):
        if job := jobs.get(name):
            subject = LintedJob(name, canonical_job(manifest, name), manifest.version, now)
            yield from ((i, problem) for problem in lint_job(subject))
            yield from ((i, problem) for problem in check_job(job, host))


def _locate(source: Source, job: int, problem: Problem) -> Problem:
    """Set the path and line of a job's problem: in the job or in the defaults, as the file has it."""
    paths = [problem.path, _SINGULAR.get(problem.path, problem.path)]
    known = (
        f"{owner}/{path}"
        for owner in (f"jobs/{job}", "defaults")
        for path in paths
        if _is_written(source.document, f"{owner}/{path}")
    )
    return _with_line(source, problem._replace(path=next(known, f"jobs/{job}/{paths[0]}")))


def _with_line(source: Source, problem: Problem) -> Problem:
    return problem._replace(line=line_of(problem.path, source.lines))


def _is_dst_chosen(source: Source, job: int, problem: Problem) -> bool:
    """Whether the problem is about clock changes, and the manifest already sets `policy.dst`."""
    owners = (f"jobs/{job}", "defaults")
    return problem.code == CODE and any(
        _is_written(source.document, f"{owner}/policy/dst") for owner in owners
    )


def _is_written(value: Any, path: str) -> bool:
    for part in path.split("/"):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return False
    return True
