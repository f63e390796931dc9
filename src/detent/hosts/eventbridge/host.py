"""EventBridge Scheduler: schedules in one group that call a Lambda function with the job's spec.

- The function's handler is `detent.hosts.eventbridge.host.handler`, which runs the trigger.
- Schedules have no versions: two machines that apply at the same time may overwrite each other, with the same
  content.  Two processes on one machine wait for each other.
"""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from detent.errors import UsageError
from detent.formats.eventbridge.render import schedule_expressions
from detent.hosts.adoption import Identity, Unmanaged, triggered_job
from detent.hosts.base import Host, Option, Settings, render_schedules
from detent.hosts.eventbridge import schedules
from detent.hosts.eventbridge.lambda_function import handler
from detent.hosts.eventbridge.service import Service
from detent.hosts.reconcile import PREFIX, Change, Found, Resource
from detent.hosts.remote import check_shared, user_warnings
from detent.manifest.spec import Spec
from detent.messages.strict_json import decode
from detent.text import quote

__all__ = ["OPTIONS", "EventBridgeHost", "handler", "open_host"]

OPTIONS = (
    Option("group", "the schedule group (default: default)", "NAME", is_location=True),
    Option("target-arn", "the Lambda function that contains detent and the jobs' code", "ARN"),
    Option("role-arn", "the role that may call it", "ARN"),
    Option("dead-letter-arn", "the queue for events that could not be delivered", "ARN"),
    Option("lambda-store", "take the store from DETENT_STORE in the function's environment"),
    Option("endpoint-url", "the URL of the service (default: AWS's)", "URL", is_location=True),
)
ADVICE = "set DETENT_STORE in the function's environment, and give --lambda-store"

_NAME = re.compile(r"[0-9a-zA-Z_.-]{1,64}")
_ARN = re.compile(r"arn:[a-z0-9-]+:[a-z0-9-]+:[a-z0-9-]*:[0-9]*:\S{1,1024}")
_RATE = re.compile(r"rate\(([0-9]+) (minute|hour|day)s?\)")
_CRON = re.compile(r"cron\((\S+) (\S+) (\S+) (\S+) (\S+) \*\)")
_RATE_UNITS = {"minute": (1, "m"), "hour": (1, "h"), "day": (24, "h")}


def open_host(settings: Settings) -> Host:
    group = settings.option("group", "default")
    if not _NAME.fullmatch(group):
        raise UsageError(
            f"--group {quote(group)} is not a valid name: use letters, digits, _ . -, at most 64"
        )
    for option in ("target_arn", "role_arn", "dead_letter_arn"):
        value = settings.option(option)
        if value and not _ARN.fullmatch(value):
            name = option.replace("_", "-")
            raise UsageError(f"--{name} {quote(value)} is not an ARN: arn:aws:service:region:account:…")
    return EventBridgeHost(settings, group)


class EventBridgeHost:
    name = "eventbridge"

    def __init__(self, settings: Settings, group: str) -> None:
        self._settings = settings
        self._group = group
        self._service = Service(group, settings.option("endpoint_url"))
        self.where = f"the group {group} of EventBridge Scheduler"
        self.identity = Identity(_role(settings.option("role_arn")))

    def lock(self) -> AbstractContextManager[None]:
        return self._settings.lock(f"eventbridge-{self._group}")

    def render(self, specs: Sequence[Spec]) -> list[Resource]:
        target = self._target()
        check_shared(self.name, specs, "" if target.has_store else ADVICE)
        return [
            schedules.make_schedule(spec, index, expression, target)
            for spec, expressions in render_schedules(
                self.name, specs, lambda spec, index: schedule_expressions(spec.times[index].instants)
            )
            for index, expression in enumerate(expressions)
        ]

    def _target(self) -> schedules.Target:
        option = self._settings.option
        for name, what in (("target_arn", "Lambda function"), ("role_arn", "role")):
            if not option(name):
                raise UsageError(f"name the {what} of the schedules with --{name.replace('_', '-')} ARN")
        return schedules.Target(
            arn=option("target_arn"),
            role_arn=option("role_arn"),
            dead_letter_arn=option("dead_letter_arn"),
            has_store=bool(self._settings.options.get("lambda_store")),
        )

    def find(self) -> list[Found]:
        return [schedules.read_schedule(one) for one in self._service.list(PREFIX)]

    def change(self, changes: Sequence[Change], retire: Sequence[Unmanaged] = ()) -> None:
        for change in changes:
            if change.action in ("create", "update") and change.after:
                if change.before:
                    self._back_up(change.name, change.before.content)
                self._service.write(change.after.content, is_new=change.before is None)
            elif change.action == "delete":
                self._service.delete(change.name)
        written = {change.name for change in changes}
        for entry in retire:
            if entry.place not in written:  # else it was replaced under the same name
                self._back_up(entry.place, entry.content)
                self._service.delete(entry.place)

    def _back_up(self, name: str, content: str) -> None:
        self._settings.back_up(f"eventbridge-{self._group}-{name}", content.encode())

    def unmanaged(self) -> list[Unmanaged]:
        found = [schedules.set_fields(one) for one in self._service.list()]
        return [_unmanaged(one) for one in found if not schedules.read_schedule(one).job]

    def warnings(self, specs: Sequence[Spec]) -> list[str]:
        warnings = list(user_warnings(specs, self.name))
        if not self._settings.option("dead_letter_arn"):
            warnings.append("undelivered events are lost: name a queue for them with --dead-letter-arn")
        for variable in sorted({variable for spec in specs for variable in spec.variables}):
            warnings.append(f"the function needs the variable {variable}, which holds a secret")
        return warnings


def _unmanaged(schedule: schedules.Schedule) -> Unmanaged:
    target = schedule.get("Target", {})
    text = str(target.get("Input", ""))
    return Unmanaged(
        name=schedule["Name"],
        place=schedule["Name"],
        content=schedules.dump(schedule),
        schedules=tuple(to_schedules(schedule.get("ScheduleExpression", ""))),
        timezone=schedule.get("ScheduleExpressionTimezone") or "UTC",
        user=_role(target.get("RoleArn", "")),
        job=_job_in_input(text) or triggered_job(text),
    )


def _role(arn: str) -> str:
    return f"the role {arn}"


def _job_in_input(text: str) -> str:
    """Return the job of an input for detent's function, or an empty text."""
    try:
        document: Any = decode(text)
        return str(document["detent"]["job"])
    except (ValueError, KeyError, TypeError):
        return ""


def to_schedules(expression: str) -> list[str]:
    """Convert an expression to our syntax; empty if that is impossible.  Its Sunday is 1."""
    if rate := _RATE.fullmatch(expression):
        factor, unit = _RATE_UNITS[rate[2]]
        return [f"@every {int(rate[1]) * factor}{unit}"]
    if cron := _CRON.fullmatch(expression):
        minute, hour, day, month, weekday = cron.groups()
        ours = re.sub(r"(?<![/#\d])\d", lambda digit: str(int(digit[0]) - 1), weekday)
        return [f"{minute} {hour} {day} {month} {ours}"]
    return []
