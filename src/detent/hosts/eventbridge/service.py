"""The API of EventBridge Scheduler for the schedules of one group, with boto3."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from typing import Any

from detent.errors import HostError, UsageError
from detent.hosts.eventbridge.schedules import Schedule

ATTEMPTS = 4  # for a throttled call


class Service:
    def __init__(self, group: str, endpoint_url: str) -> None:
        self._group = group
        self._endpoint_url = endpoint_url

    @cached_property
    def _client(self) -> Any:
        retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
        with _errors_converted():
            config = _imported("botocore.config").Config(retries=retries)
            return _imported("boto3").client(
                "scheduler", endpoint_url=self._endpoint_url or None, config=config
            )

    def list(self, prefix: str = "") -> list[Schedule]:
        query = {"GroupName": self._group, **({"NamePrefix": prefix} if prefix else {})}
        with _errors_converted():
            pages = self._client.get_paginator("list_schedules").paginate(**query)
            names = [one["Name"] for page in pages for one in page["Schedules"]]
            return [self._client.get_schedule(GroupName=self._group, Name=name) for name in names]

    def write(self, content: str, *, is_new: bool) -> None:
        with _errors_converted():
            call = self._client.create_schedule if is_new else self._client.update_schedule
            call(GroupName=self._group, **json.loads(content))

    def delete(self, name: str) -> None:
        with _errors_converted(), suppress(self._client.exceptions.ResourceNotFoundException):
            self._client.delete_schedule(GroupName=self._group, Name=name)


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise UsageError("--host eventbridge needs boto3: pip install 'detent[aws]'") from None


@contextmanager
def _errors_converted() -> Iterator[None]:
    errors = _imported("botocore.exceptions")
    try:
        yield
    except errors.ClientError as error:
        raise HostError(f"EventBridge refused: {error}; {_advice(error.response)}") from None
    except errors.BotoCoreError as error:
        raise HostError(f"EventBridge does not respond: {error}") from None


def _advice(answer: Any) -> str:
    match answer.get("Error", {}).get("Code", ""):
        case "ResourceNotFoundException":
            return "create the group with `aws scheduler create-schedule-group --name NAME`, and apply again"
        case "ConflictException":
            return "it was changed at the same time: check it, and apply again"
        case "AccessDeniedException" | "UnrecognizedClientException" | "ExpiredTokenException":
            return "request the permissions in docs/howto/use-eventbridge.md"
    return "no further changes were made"
