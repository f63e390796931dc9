"""The canonical form of jobs: one text for one meaning, to hash and to compare.

- It is compact JSON with non-ASCII characters, and keys in the order of the field table.
- Defaults are filled in, and `schedule` becomes `schedules`.  `auth` is always present.
- Jobs, headers, variables and arguments are sorted by name.
- Fields of version 2 follow those of version 1, and only appear if they differ from the default.
- `${VAR}` is expanded (version 2 only).  A text that looks like `${VAR}` afterwards is escaped, so that the
  form can be read again with the same meaning.
- It has no `secrets`, and no password of a store.
"""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from detent.manifest.fields import HOOK_MAPPING, HOOKS, JOB, NODE, STORE
from detent.manifest.problems import escape_dollars
from detent.manifest.shapes import Arguments, MapOf, Record
from detent.text import map_texts

REVISION_DIGITS = 16
NOT_IN_REVISION = ("description", "tags")  # they do not change what a job does
COMMAND_POLICY = {"timeout_seconds": 0, "max_attempts": 1}  # the defaults of work other than a request

_PASSWORD = r"((?<=://)[^/?#:]*:)[^/?#]*(?=@)|([?&]password=)[^&#]+"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def canonical_job(job: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Return a checked job with its defaults, ordered.  The function is idempotent."""
    given = dict(job)
    if "schedule" in given:
        given["schedules"] = [given.pop("schedule")]
    if "request" not in given:
        policy = given.get("policy", {})
        retries = {"max_attempts": COMMAND_POLICY["max_attempts"], **policy.get("retries", {})}
        given["policy"] = {"timeout_seconds": COMMAND_POLICY["timeout_seconds"], **policy, "retries": retries}
    return _filled(JOB[version], given)


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
            value = json.loads(json.dumps(value, sort_keys=True))
        elif name in HOOKS:
            value = [_filled(HOOK_MAPPING, hook) if type(hook) is dict else hook for hook in value]
        filled[name] = value
    return filled


def job_text(job: Mapping[str, Any], version: int) -> str:
    text = _compact(job)
    return text if version == 1 or "$" not in text else _compact(map_texts(job, escape_dollars))


def revision(job: Mapping[str, Any]) -> str:
    """Return a short hash of a canonical job, which changes if the job does something else."""
    kept = {name: value for name, value in job.items() if name not in NOT_IN_REVISION}
    return sha256(_compact(kept).encode()).hexdigest()[:REVISION_DIGITS]


def machine_document(
    store: Mapping[str, Any], node: Mapping[str, Any], dashboard_url: str = ""
) -> dict[str, Any]:
    """Return the canonical form of a machine's settings, without passwords and defaults."""
    document: dict[str, Any] = {"store": _filled(STORE, store), "node": _filled(NODE, node)}
    document["dashboard_url"] = dashboard_url
    if "url" in document["store"]:
        document["store"]["url"] = without_password(document["store"]["url"])
    return {name: settings for name, settings in document.items() if settings}


def without_password(url: str) -> str:
    return re.sub(_PASSWORD, lambda match: f"{match[1] or match[2]}***", url)


def manifest_text(version: int, app: str, jobs: Iterable[str], machine: Mapping[str, Any]) -> str:
    """Return the whole manifest as text.  `jobs` are the texts of its jobs, sorted by name."""
    settings = map_texts(dict(machine), escape_dollars)
    rest = "".join(f",{_compact(name)}:{_compact(value)}" for name, value in settings.items())
    return f'{{"version":{version},"app":{_compact(app)},"jobs":[{",".join(jobs)}]{rest}}}'
