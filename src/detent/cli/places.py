"""Where in a manifest's file something is: from a job's number and a path within it to a path and a line.

The checker has forgotten the file's own text by then: whether `schedule` or `schedules` was written, and
what came from `defaults`.  So the file is read once more, and asked.
"""

from __future__ import annotations

from typing import Any

from detent.core.findings import Problem, line_of
from detent.core.lint_dst import CODE
from detent.foreign_files import Source

ONE = {"schedules/0": "schedule"}  # how a lone one may be written


def place(source: Source, job: int, problem: Problem) -> Problem:
    """A problem within a job, where it stands in the file: in the job itself, or in the defaults."""
    paths = [problem.path, ONE.get(problem.path, problem.path)]
    known = (
        f"{owner}/{path}"
        for owner in (f"jobs/{job}", "defaults")
        for path in paths
        if _is_written(source.document, f"{owner}/{path}")
    )
    return put(source, problem._replace(path=next(known, f"jobs/{job}/{paths[0]}")))


def put(source: Source, problem: Problem) -> Problem:
    """A problem whose path is that of the file, with its line."""
    return problem._replace(line=line_of(problem.path, source.lines))


def is_chosen(source: Source, job: int, problem: Problem) -> bool:
    """Has the author decided already what a change of offset does?"""
    owners = (source.document["jobs"][job], source.document.get("defaults"))
    return problem.code == CODE and any("dst" in _sub(owner, "policy") for owner in owners)


def _is_written(value: Any, path: str) -> bool:
    for part in path.split("/"):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return False
    return True


def _sub(fields: Any, name: str) -> dict[str, Any]:
    inner = fields.get(name) if isinstance(fields, dict) else None
    return inner if isinstance(inner, dict) else {}
