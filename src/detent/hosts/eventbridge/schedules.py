"""The schedules of a job in EventBridge Scheduler, one for each ring: each hands the spec to a function.

- A schedule cannot be tagged, so the mark stands in its description: the job, its revision, a seal.
- Overlaps and retries are left to the trigger: the service tries nothing again, and what it could not hand
  over goes to the dead-letter queue.
- The service fills in `<aws.scheduler.…>` wherever it stands in an input.  So nothing of a job's own may
  contain a `<`: it is written as an escape of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.formats.eventbridge.render import Expression
from detent.hosts.reconcile import Found, Resource, resource_name, seal
from detent.hosts.remote import spec_document
from detent.manifest.spec import Spec

KIND = "schedule"
NAME_MAX = 64
INPUT_MAX = 256 * 1024  # bytes that Lambda takes of an event
EVENT_AGE_MAX_S = 3_600  # older than that it is not handed over any more
RANG_AT = "<aws.scheduler.scheduled-time>"
SERVICE_OWN = ("Arn", "CreationDate", "GroupName", "LastModificationDate", "ResponseMetadata")

_MARK = re.compile(r"detent job ([a-z0-9.-]+), revision ([0-9a-f]{16})(?:, seal ([0-9a-f]{12}))?")

Schedule = dict[str, Any]


class Target(NamedTuple):
    """Whom a schedule calls, and as whom."""

    arn: str
    role_arn: str
    dead_letter_arn: str = ""
    has_store: bool = False  # the function itself knows the store


def make_schedule(spec: Spec, index: int, expression: Expression, target: Target) -> Resource:
    told = make_input(spec, target.has_store)
    if len(told.encode()) > INPUT_MAX:
        raise UsageError(f"{spec.name}: its spec has more than the {INPUT_MAX:,} bytes that Lambda takes")
    queue = {"DeadLetterConfig": {"Arn": target.dead_letter_arn}} if target.dead_letter_arn else {}
    made: Schedule = {
        "Name": resource_name(spec.name, index, NAME_MAX),
        "Description": f"detent job {spec.name}, revision {spec.revision}",
        "ScheduleExpression": expression.text,
        "ScheduleExpressionTimezone": expression.timezone,
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "State": "ENABLED",
        "Target": {
            "Arn": target.arn,
            "RoleArn": target.role_arn,
            "Input": told,
            "RetryPolicy": {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": EVENT_AGE_MAX_S},
            **queue,
        },
    }
    made["Description"] += f", seal {seal(dump(made))}"
    return Resource(made["Name"], spec.name, spec.revision, dump(made), KIND)


def make_input(spec: Spec, has_store: bool) -> str:
    """What the function is given."""
    told = json.dumps(spec_document(spec, has_store), separators=(",", ":")).replace("<", "\\u003c")
    return f'{{"detent":{{"job":"{spec.name}","rang_at":"{RANG_AT}","spec":{told}}}}}'


def dump(schedule: Schedule) -> str:
    return json.dumps(schedule, indent=2, sort_keys=True)


def read_schedule(answer: Mapping[str, Any]) -> Found:
    """A schedule as it is there."""
    said = set_fields(answer)
    mark = _MARK.fullmatch(said.get("Description", ""))
    if mark is None:
        return Found(said["Name"], dump(said), kind=KIND)
    unsealed = {**said, "Description": f"detent job {mark[1]}, revision {mark[2]}"}
    return Found(said["Name"], dump(said), mark[1], mark[2], seal(dump(unsealed)) == mark[3], kind=KIND)


def set_fields(answer: Mapping[str, Any]) -> Schedule:
    """What somebody said of a schedule, without what the service keeps of it."""
    said = {key: _plain(value) for key, value in answer.items() if key not in SERVICE_OWN}
    if said.get("ActionAfterCompletion") == "NONE":
        del said["ActionAfterCompletion"]
    return said


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
