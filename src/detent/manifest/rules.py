"""Rules between the fields of one job, and how `defaults` are merged into a job.

A job's own field overrides a default; mappings such as policy and env are merged key by key.  If a job has
its own work or schedule, a default work or schedule is ignored, with the fields that belong to it.  Rules
check the merged job, and ignore fields that were already refused.
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
from detent.manifest.problems import INVALID, Findings
from detent.manifest.shapes import Record
from detent.rules.alerts import alert_name
from detent.rules.trust import time_away_s
from detent.text import listed

OUTAGE_S = 15  # work should survive a store outage of this length
CLAIM_S = 30
KILL_AFTER_S = 10

Fields = Mapping[str, Any]


@lru_cache
def exclusive_fields(version: int) -> list[list[str]]:
    """The groups of fields of which a job has exactly one."""
    return [[name for name in group if name in JOB[version].names] for group in (TIME_FIELDS, WORK_FIELDS)]


def apply_defaults(defaults: Fields, own: Fields) -> dict[str, Any]:
    """Return the job with its missing fields taken from the defaults."""
    if not defaults:
        return dict(own)
    ignored = set[str]()
    for group in (WORK_FIELDS, TIME_FIELDS):
        if any(name in own for name in group) or (group is TIME_FIELDS and "after" in own):
            ignored.update(name for name in group if name not in own)
    merged = _merge({name: value for name, value in defaults.items() if name not in ignored}, own)
    for name in _misplaced(merged):
        if name not in own:
            del merged[name]
    return merged


def _merge(under: Fields, over: Fields) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merge(below, value) if type(below) is dict and type(value) is dict else value
    return merged


def _misplaced(job: Fields) -> dict[str, str]:
    """Return the fields that belong to another kind of work, each with its message."""
    isolation = job.get("isolation", "process")
    needs = (
        (PROCESS_FIELDS, ("command", "call")),
        (("children", "shell"), ("command",)),
        (CALL_FIELDS, ("call",)),
        (("auth",), ("request", "enqueue")),
    )
    wrong: dict[str, str] = {}
    for names, works in needs:
        if not any(work in job for work in works):
            need = f"needs {listed([f'`{work}`' for work in works])}, which this job does not have"
            wrong |= {name: f"`{name}` {need}" for name in names}
    if "call" in job and isolation not in ("process", INVALID):
        why = f"a call with `isolation: {isolation}` has no process of its own"
        wrong |= dict.fromkeys(PROCESS_FIELDS, why)
    if type(job.get("command")) is list:
        wrong["shell"] = "`shell` needs a `command` that is a text; a list of words runs without a shell"
    return {name: why for name, why in wrong.items() if name in job and job[name] != {"secret_refs": []}}


def check_rules(job: Fields, path: str, version: int, findings: Findings) -> None:
    """Report every rule that the merged job breaks."""
    JOB[version].check_required(job, path, findings)
    for field in JOB[version].fields:
        part = job.get(field.name)
        if type(field.shape) is Record and type(part) is dict:
            field.shape.check_required(part, f"{path}/{field.name}", findings)
    times, works = exclusive_fields(version)
    has_time = any(name in job for name in times)
    if "after" not in job or has_time:
        _check_one_of(times, job, path, findings)
    _check_one_of(works, job, path, findings)
    for name, message in _misplaced(job).items():
        findings.problem(f"{path}/{name}", message)
    _check_backoff(job, path, findings)
    _check_headers(job, path, findings)
    if version > 1:
        _check_no_effect(job, path, has_time, findings)
        _check_claim(job, path, findings)


def _check_one_of(names: list[str], job: Fields, path: str, findings: Findings) -> None:
    given = [name for name in names if name in job]
    if len(given) == 1:
        return
    needed = f"exactly one of {listed(names)}" if len(names) > 1 else f"a `{names[0]}`"
    fault = f"{listed(given, 'and')} are given" if given else "none is given"
    findings.problem(f"{path}/{given[-1]}" if given else path, f"a job has {needed}; {fault}")


def _mapping(job: Fields, *names: str) -> Fields:
    """Return a mapping inside the job; an empty one if it is missing or was refused."""
    inner: Any = job
    for name in names:
        inner = inner.get(name) if type(inner) is dict else None
    return inner if type(inner) is dict else {}


def _check_backoff(job: Fields, path: str, findings: Findings) -> None:
    retries = _mapping(job, "policy", "retries")
    low, high = retries.get("min_seconds", BACKOFF_S[0]), retries.get("max_seconds", BACKOFF_S[1])
    if low is not INVALID and high is not INVALID and low > high:
        name = "min_seconds" if "min_seconds" in retries else "max_seconds"
        findings.problem(
            f"{path}/policy/retries/{name}", f"min_seconds ({low}) is more than max_seconds ({high})"
        )


def _check_headers(job: Fields, path: str, findings: Findings) -> None:
    seen: dict[str, str] = {}
    for name in _mapping(job, "request", "headers"):
        if seen.setdefault(str(name).lower(), name) != name:
            message = f"the header is also given as {seen[name.lower()]}: header names ignore case"
            findings.warning(f"{path}/request/headers/{name}", message, "header-twice")


def _check_no_effect(job: Fields, path: str, has_time: bool, findings: Findings) -> None:
    policy = _mapping(job, "policy")
    is_chained_only = "after" in job and not has_time
    is_unlimited = policy.get("concurrency") == "Allow" and policy.get("max_running", 1) != 1
    table = (
        ("late_after_seconds", "without `on_late`", "late_after_seconds" in job and "on_late" not in job),
        ("starts_at", "without a schedule", is_chained_only and "starts_at" in job),
        ("ends_at", "without a schedule", is_chained_only and "ends_at" in job),
        ("policy/max_running", "with `concurrency: Allow`", is_unlimited),
    )
    for name, condition, applies in table:
        if applies:
            key = name.rpartition("/")[2]
            findings.warning(f"{path}/{name}", f"`{key}` has no effect {condition}", "no-effect")


def _check_claim(job: Fields, path: str, findings: Findings) -> None:
    """Warn if a short store outage would end the work."""
    claim_s = _mapping(job, "policy").get("claim_seconds", CLAIM_S)
    kill_after_s = job.get("kill_after_seconds", KILL_AFTER_S)
    if claim_s is INVALID or kill_after_s is INVALID:
        return
    left_s = time_away_s(claim_s, kill_after_s)
    if left_s < OUTAGE_S:
        message = (
            f"with claim_seconds {claim_s:g}, a store outage of over {max(left_s, 0):.1f} s ends the work;"
            f" {OUTAGE_S} s are advised, which {CLAIM_S} gives"
        )
        findings.warning(f"{path}/policy/claim_seconds", message, "short-claim")


def hooks_of(job: Fields) -> list[tuple[str, Any]]:
    """Return the hooks with their names: on_failure, on_failure.1, on_failure.slack-3f2a9c01, …"""
    return [
        (_hook_name(event, i, hook), hook) for event in HOOKS for i, hook in enumerate(job.get(event, ()))
    ]


def _hook_name(event: str, index: int, hook: Any) -> str:
    if address := address_of(hook):
        from detent.manifest.alerts import service_of  # late, here and below: few jobs have hooks

        return alert_name(event, service_of(address), address)
    return f"{event}.{index}" if index else event


def address_of(hook: Any) -> str:
    """Return the address of an alert, or "" if this hook is a command or a webhook."""
    if type(hook) is dict:
        return str(hook.get("to", ""))
    from detent.manifest.alerts import service_of

    return hook if type(hook) is str and service_of(hook) else ""
