"""The schedules of a job in EventBridge Scheduler, which send the spec to a Lambda function.

- A schedule has no tags, so the mark is in its description: the job, its revision, and a seal.
- The trigger handles overlaps and retries.  The service retries nothing, and undelivered events go to the
  dead-letter queue.
- The service replaces `<aws.scheduler.…>` in the input, so each `<` of the spec is written as a JSON escape.
"""

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
INPUT_MAX = 256 * 1024  # bytes; the limit of a Lambda event
EVENT_AGE_MAX_S = 3_600  # older events are not delivered
RANG_AT = "<aws.scheduler.scheduled-time>"
SERVICE_OWN = ("Arn", "CreationDate", "GroupName", "LastModificationDate", "ResponseMetadata")

_MARK = re.compile(r"detent job ([a-z0-9.-]+), revision ([0-9a-f]{16})(?:, seal ([0-9a-f]{12}))?")

Schedule = dict[str, Any]


class Target(NamedTuple):
    """The function that a schedule calls, and the role for it."""

    arn: str
    role_arn: str
    dead_letter_arn: str = ""
    has_store: bool = False  # the function has the store's URL in its environment


def make_schedule(spec: Spec, index: int, expression: Expression, target: Target) -> Resource:
    text = make_input(spec, target.has_store)
    if len(text.encode()) > INPUT_MAX:
        raise UsageError(f"{spec.name}: its spec has more than {INPUT_MAX:,} bytes, the limit of Lambda")
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
            "Input": text,
            "RetryPolicy": {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": EVENT_AGE_MAX_S},
            **queue,
        },
    }
    made["Description"] += f", seal {seal(dump(made))}"
    return Resource(made["Name"], spec.name, spec.revision, dump(made), KIND)


def make_input(spec: Spec, has_store: bool) -> str:
    text = json.dumps(spec_document(spec, has_store), separators=(",", ":")).replace("<", "\\u003c")
    return f'{{"detent":{{"job":"{spec.name}","rang_at":"{RANG_AT}","spec":{text}}}}}'


def dump(schedule: Schedule) -> str:
    return json.dumps(schedule, indent=2, sort_keys=True)


def read_schedule(answer: Mapping[str, Any]) -> Found:
    fields = set_fields(answer)
    mark = _MARK.fullmatch(fields.get("Description", ""))
    if mark is None:
        return Found(fields["Name"], dump(fields), kind=KIND)
    unsealed = {**fields, "Description": f"detent job {mark[1]}, revision {mark[2]}"}
    return Found(fields["Name"], dump(fields), mark[1], mark[2], seal(dump(unsealed)) == mark[3], kind=KIND)


def set_fields(answer: Mapping[str, Any]) -> Schedule:
    """Return the fields that a person or detent has set, without those of the service."""
    fields = {
        key: value.isoformat() if isinstance(value, datetime) else value
        for key, value in answer.items()
        if key not in SERVICE_OWN
    }
    if fields.get("ActionAfterCompletion") == "NONE":
        del fields["ActionAfterCompletion"]
    return fields
