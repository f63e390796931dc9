"""What the fields of one job must be to each other, and how `defaults` are laid under a job.

- A job's own field wins over a default.  Mappings (policy, retries, env, headers) are merged field by
  field.  A job's own work or schedule puts a default one of another kind aside, and with it what only
  goes with that kind.
- A rule sees the merged job, and keeps quiet about a field that was already refused.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from detent.manifest.fields import (
    BACKOFF_S,
    CALL_FIELDS,
    HOOKS,
    JOB,
    PROCESS_FIELDS,
    TIME_FIELDS,
    WORK_FIELDS,
)
from detent.manifest.problems import Findings
from detent.manifest.shapes import INVALID, Record
from detent.rules.trust import time_away_s
from detent.text import listed

AWAY_S = 15  # a store that is away for so long ends no work
CLAIM_S = 30
KILL_AFTER_S = 10

Fields = Mapping[str, Any]


@lru_cache
def exclusive_fields(version: int) -> list[list[str]]:
    """Of each, a job has exactly one."""
    return [[name for name in group if name in JOB[version].names] for group in (TIME_FIELDS, WORK_FIELDS)]


@lru_cache
def _parts(version: int) -> list[tuple[str, Record]]:
    return [(field.name, field.shape) for field in JOB[version].fields if isinstance(field.shape, Record)]


def apply_defaults(defaults: Fields, own: Fields) -> dict[str, Any]:
    """The job with what it leaves open taken from the defaults."""
    if not defaults:
        return dict(own)
    aside = set[str]()
    for group in (WORK_FIELDS, TIME_FIELDS):
        if any(name in own for name in group) or (group is TIME_FIELDS and "after" in own):
            aside.update(name for name in group if name not in own)
    laid = _merge({name: value for name, value in defaults.items() if name not in aside}, own)
    for name in _out_of_place(laid):
        if name not in own:
            del laid[name]
    return laid


def _merge(under: Fields, over: Fields) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        below = merged.get(name)
        both = isinstance(below, dict) and isinstance(value, dict)
        merged[name] = _merge(below, value) if both and below is not None else value
    return merged


def _out_of_place(job: Fields) -> dict[str, str]:
    """Fields that go with another kind of work than the job's, and what is wrong with each."""
    isolation = job.get("isolation", "process")
    absent: dict[str, str] = {}
    if "call" in job and isolation not in ("process", INVALID):
        inside = f"a call with `isolation: {isolation}` has no process of its own"
        absent = dict.fromkeys(PROCESS_FIELDS, inside)
    elif "command" not in job and "call" not in job:
        absent = dict.fromkeys(PROCESS_FIELDS, _goes_with("`command` or `call`"))
    absent |= {} if "command" in job else {"children": _goes_with("`command`")}
    if type(job.get("command")) is list:
        absent["shell"] = "it goes with a `command` that is a text; a list of words is run without a shell"
    elif "command" not in job:
        absent["shell"] = _goes_with("`command`")
    absent |= {} if "call" in job else dict.fromkeys(CALL_FIELDS, _goes_with("`call`"))
    is_signed = "request" in job or "enqueue" in job
    absent |= {} if is_signed else {"auth": _goes_with("`request` or `enqueue`")}
    return {name: why for name, why in absent.items() if name in job and job[name] != {"secret_refs": []}}


def _goes_with(work: str) -> str:
    return f"it goes with {work}, which this job does not have"


def check_rules(job: Fields, path: str, version: int, findings: Findings) -> None:
    """Tell the findings of every rule that the merged job breaks."""
    _check_required(job, path, version, findings)
    times, works = exclusive_fields(version)
    if "after" not in job or any(name in job for name in times):
        _check_one_of(times, job, path, findings)
    _check_one_of(works, job, path, findings)
    for name, why in _out_of_place(job).items():
        findings.problem(f"{path}/{name}", why)
    _check_backoff(job, path, findings)
    _check_headers(job, path, findings)
    if version > 1:
        _check_late(job, path, findings)
        _check_bounds(job, path, findings)
        _check_lane(job, path, findings)
        _check_claim(job, path, findings)


def _check_required(job: Fields, path: str, version: int, findings: Findings) -> None:
    JOB[version].missing(job, path, findings)
    for name, record in _parts(version):
        part = job.get(name)
        if type(part) is dict:
            record.missing(part, f"{path}/{name}", findings)


def _check_one_of(names: list[str], job: Fields, path: str, findings: Findings) -> None:
    given = [name for name in names if name in job]
    if len(given) == 1:
        return
    asked = f"exactly one of {listed(names)}" if len(names) > 1 else f"a `{names[0]}`"
    fault = f"{listed(given, 'and')} are given" if given else "none is given"
    findings.problem(f"{path}/{given[-1]}" if given else path, f"a job has {asked}; {fault}")


def _sub(job: Fields, *names: str) -> Fields:
    """A mapping within the job; empty where it is missing or was refused."""
    inner: Any = job
    for name in names:
        inner = inner.get(name) if type(inner) is dict else None
    return inner if type(inner) is dict else {}


def _check_backoff(job: Fields, path: str, findings: Findings) -> None:
    retries = _sub(job, "policy", "retries")
    low, high = retries.get("min_seconds", BACKOFF_S[0]), retries.get("max_seconds", BACKOFF_S[1])
    if low is not INVALID and high is not INVALID and low > high:
        name = "min_seconds" if "min_seconds" in retries else "max_seconds"
        findings.problem(
            f"{path}/policy/retries/{name}", f"min_seconds ({low}) is more than max_seconds ({high})"
        )


def _check_headers(job: Fields, path: str, findings: Findings) -> None:
    seen: dict[str, str] = {}
    for name in _sub(job, "request", "headers"):
        if seen.setdefault(str(name).lower(), name) != name:
            findings.warning(
                f"{path}/request/headers/{name}",
                f"the header is also given as {seen[name.lower()]}: names of headers ignore case",
                "header-twice",
            )


def _check_late(job: Fields, path: str, findings: Findings) -> None:
    if "late_after_seconds" in job and "on_late" not in job:
        findings.warning(f"{path}/late_after_seconds", "it does nothing without `on_late`", "no-effect")


def _check_bounds(job: Fields, path: str, findings: Findings) -> None:
    if "after" in job and not any(name in job for name in TIME_FIELDS):
        for name in ("starts_at", "ends_at"):
            if name in job:
                findings.warning(f"{path}/{name}", "it does nothing without a schedule", "no-effect")


def _check_lane(job: Fields, path: str, findings: Findings) -> None:
    policy = _sub(job, "policy")
    if policy.get("concurrency") == "Allow" and policy.get("max_running", 1) != 1:
        path = f"{path}/policy/max_running"
        findings.warning(path, "it does nothing with `concurrency: Allow`", "no-effect")


def _check_claim(job: Fields, path: str, findings: Findings) -> None:
    """Between the last renewal and SIGTERM there should be time for a store to come back."""
    claim_s = _sub(job, "policy").get("claim_seconds", CLAIM_S)
    kill_after_s = job.get("kill_after_seconds", KILL_AFTER_S)
    if claim_s is INVALID or kill_after_s is INVALID:
        return
    left_s = time_away_s(claim_s, kill_after_s)
    if left_s < AWAY_S:
        findings.warning(
            f"{path}/policy/claim_seconds",
            f"{claim_s:g} s leave {max(left_s, 0):.1f} s for a store to come back before work is ended;"
            f" {AWAY_S} s are advised, which {CLAIM_S} gives",
            "short-claim",
        )


def hooks_of(job: Fields) -> list[tuple[str, Any]]:
    """The hooks with their names: on_failure, on_failure.1, on_failure.2, …"""
    return [
        (f"{name}.{i}" if i else name, hook) for name in HOOKS for i, hook in enumerate(job.get(name, ()))
    ]
