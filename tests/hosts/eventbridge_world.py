"""A group of schedules that nothing else uses, on moto's server, for tests of the host eventbridge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.formats.eventbridge_oracle import parse_cron
from tests.hosts.hosts_world import settings

from detent.hosts.base import Host
from detent.hosts.eventbridge.schedules import set_fields
from detent.hosts.registry import open_host
from detent.testing.check_host import HostWorld

FUNCTION = "arn:aws:lambda:eu-central-1:123456789012:function:detent"
ROLE = "arn:aws:iam::123456789012:role/detent-schedules"
QUEUE = "arn:aws:sqs:eu-central-1:123456789012:detent-lost"
OPTIONS = {"target_arn": FUNCTION, "role_arn": ROLE, "dead_letter_arn": QUEUE}
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "eu-central-1",
}


@contextmanager
def moto_server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer  # late: every process of the tests imports this file

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


class Group:
    """A schedule group, read and written by boto3."""

    def __init__(self, url: str, name: str) -> None:
        import boto3  # late: as above

        self.url, self.name = url, name
        self.client: Any = boto3.client("scheduler", endpoint_url=url)
        self.client.create_schedule_group(Name=name)

    def schedules(self) -> dict[str, dict[str, Any]]:
        pages = self.client.get_paginator("list_schedules").paginate(GroupName=self.name)
        names = [one["Name"] for page in pages for one in page["Schedules"]]
        return {name: set_fields(self.client.get_schedule(GroupName=self.name, Name=name)) for name in names}

    def look(self) -> Mapping[str, str]:
        """All that is there; an expression that the service would not take stands nowhere."""
        found = self.schedules()
        for one in found.values():
            if one["ScheduleExpression"].startswith("cron"):
                parse_cron(one["ScheduleExpression"])
        return {name: json.dumps(one, sort_keys=True) for name, one in found.items()}

    def edit(self, name: str, **changes: Any) -> None:
        self.client.update_schedule(GroupName=self.name, **{**self.schedules()[name], **changes})

    def remove(self, name: str) -> None:
        self.client.delete_schedule(GroupName=self.name, Name=name)

    def add(self, name: str, expression: str, target_input: str = "{}", **more: Any) -> None:
        self.client.create_schedule(
            GroupName=self.name,
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": FUNCTION, "RoleArn": ROLE, "Input": target_input},
            **more,
        )


def eventbridge_world(folder: Path, group: Group) -> HostWorld:
    def open_one(app: str) -> Host:
        options = {**OPTIONS, "group": group.name, "endpoint_url": group.url}
        return open_host("eventbridge", settings(folder, app, lambda_store=True, **options))

    return HostWorld(
        open=open_one,
        look=group.look,
        edit=lambda name: group.edit(name, ScheduleExpression="cron(59 23 * * ? *)", State="DISABLED"),
        remove=group.remove,
        add_foreign=lambda: group.add("detent-like-but-not-ours", "rate(5 minutes)"),
        unsupported_schedule="*/10 * * * * *",
    )
