"""The canonical form of jobs: one text for one meaning, to hash and to compare.

- Defaults are filled in, `schedule` is rewritten to `schedules`, jobs are sorted by name, header,
  variable and argument names too; compact JSON, non-ASCII kept, keys in the order of the field table.
- `auth` is always there, with an empty list where none was given.
- Fields that version 2 brought come after those of version 1, and only where they are not the default.
- Version 2 fills in `${VAR}`; a text that still looks like one afterwards is escaped, so that the form
  means the same when it is read again.  Version 1 knows no variables.
- What is secret stays away: no `secrets`, no password of a store.
"""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from detent.manifest.fields import HOOKS, JOB, NODE, STORE, WEBHOOK
from detent.manifest.problems import escape_dollars
from detent.manifest.shapes import Arguments, MapOf, Record

REVISION_DIGITS = 16
NOT_IN_REVISION = ("description", "tags")  # they say nothing of what a job does: no other revision for them
COMMAND_POLICY = {"timeout_seconds": 0, "max_attempts": 1}  # work other than a request: no limit, no retry

_PASSWORD = r"((?<=://)[^/?#:]*:)[^/?#]*(?=@)|([?&]password=)[^&#]+"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def canonical_job(job: Mapping[str, Any], version: int) -> dict[str, Any]:
    """A checked job with its defaults, ordered.  Given its own result it answers with the same."""
    given = dict(job)
    if "schedule" in given:
        given["schedules"] = [given.pop("schedule")]
    if "request" not in given:
        given["policy"] = _command_policy(given.get("policy", {}))
    return _filled(JOB[version], given)


def _command_policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    retries = {"max_attempts": COMMAND_POLICY["max_attempts"], **policy.get("retries", {})}
    return {"timeout_seconds": COMMAND_POLICY["timeout_seconds"], **policy, "retries": retries}


def _filled(record: Record, given: Mapping[str, Any]) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for name, shape, default, _, since in record.fields:
        value = given.get(name, default)
        if value is None or (since > 1 and value == default):
            continue
        if type(shape) is Record:
            value = _filled(shape, value)
        elif type(shape) is MapOf:
            value = {key: value[key] for key in sorted(value)}
        elif type(shape) is Arguments:
            value = _sorted(value)
        elif name in HOOKS:
            value = [_filled(WEBHOOK, hook) if type(hook) is dict else hook for hook in value]
        filled[name] = value
    return filled


def _sorted(value: Any) -> Any:
    if type(value) is list:
        return [_sorted(item) for item in value]
    return {key: _sorted(value[key]) for key in sorted(value)} if type(value) is dict else value


def job_text(job: Mapping[str, Any], version: int) -> str:
    """A canonical job as text."""
    text = _compact(job)
    return text if version == 1 or "$" not in text else _compact(_escape(job))


def _escape(value: Any) -> Any:
    if type(value) is str:
        return escape_dollars(value)
    if type(value) is list:
        return [_escape(item) for item in value]
    if type(value) is dict:
        # A schedule is never expanded, and has no dollar in it anyway.
        return {name: _escape(item) for name, item in value.items()}
    return value


def revision(job: Mapping[str, Any]) -> str:
    """A short hash of a canonical job: another one where it would do another thing."""
    told = {name: value for name, value in job.items() if name not in NOT_IN_REVISION}
    digest: str = sha256(_compact(told).encode()).hexdigest()
    return digest[:REVISION_DIGITS]


def machine_document(store: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
    """What the canonical form tells of a machine's settings: no password, no default."""
    told = {"store": _filled(STORE, store), "node": _filled(NODE, node)}
    if "url" in told["store"]:
        told["store"]["url"] = without_password(told["store"]["url"])
    return {name: settings for name, settings in told.items() if settings}


def without_password(url: str) -> str:
    """A store's URL as it may be shown."""
    return re.sub(_PASSWORD, lambda match: f"{match[1] or match[2]}***", url)


def manifest_text(version: int, app: str, jobs: Iterable[str], machine: Mapping[str, Any]) -> str:
    """The whole manifest as text, from its jobs' texts sorted by name."""
    rest = "".join(f",{_compact(name)}:{_compact(_escape(value))}" for name, value in machine.items())
    return f'{{"version":{version},"app":{_compact(app)},"jobs":[{",".join(jobs)}]{rest}}}'
