"""A cluster that nothing else uses, for tests of the host kubernetes."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.equipment.api_server import Object, Objects, with_defaults
from tests.hosts.hosts_world import settings

from detent.hosts.base import Host
from detent.hosts.registry import open_host
from detent.testing.check_host import HostWorld

NAMESPACE = "jobs"
IMAGE = "registry.example.org/shop:1"
FOREIGN = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "detent-like-but-not-ours", "namespace": NAMESPACE},
    "spec": {
        "schedule": "*/10 * * * *",
        "jobTemplate": {
            "spec": {
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "c", "image": "busybox", "command": ["check", "--all"]}],
                    }
                }
            }
        },
    },
}


def where(name: str) -> tuple[str, str, str]:
    kind, _, own = name.partition("/")
    return NAMESPACE, f"{kind}s", own


def add(objects: Objects, made: Object, manager: str = "kubectl-create") -> None:
    """Write as another client, which then owns every field that it sent."""
    name = f"{made['kind'].lower()}/{made['metadata']['name']}"
    fields: set[tuple[str, ...]] = {("f:spec",)} if made["kind"] == "CronJob" else {("f:data",)}
    objects.put(where(name), with_defaults(deepcopy(made)), manager, "Update", fields)


def edit(objects: Objects, name: str, change: Callable[[Object], None]) -> None:
    """As `kubectl edit` does it."""
    live = deepcopy(objects.kept[where(name)])
    change(live)
    objects.update(where(name), live, "kubectl-edit")


def change_by_hand(live: Object) -> None:
    """Another time, another variable, a field that was not there."""
    if live["kind"] == "ConfigMap":
        live["data"]["more"] = "x"
        return
    live["spec"]["schedule"] = "59 23 * * *"
    pod = live["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod["hostNetwork"] = True
    pod["containers"][0]["env"].append({"name": "SLEEP", "value": "1"})


def look(objects: Objects) -> dict[str, str]:
    """Return all objects with the owners of their fields, without the versions, which always grow."""
    found: dict[str, str] = {}
    for key, one in sorted(objects.kept.items()):
        metadata: dict[str, Any] = {
            k: v for k, v in one["metadata"].items() if k not in ("resourceVersion", "uid")
        }
        found["/".join(key)] = json.dumps({**one, "metadata": metadata}, sort_keys=True)
    return found


def kubernetes_world(folder: Path, objects: Objects, kubeconfig: Path) -> HostWorld:
    def open_one(app: str) -> Host:
        options = {"kubeconfig": str(kubeconfig), "image": IMAGE, "store_secret": "stores"}
        return open_host("kubernetes", settings(folder, app, **options))

    def add_foreign() -> None:
        add(objects, FOREIGN)
        named = {"name": "settings", "namespace": NAMESPACE}
        add(objects, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": {"a": "b"}})

    return HostWorld(
        open=open_one,
        look=lambda: look(objects),
        edit=lambda name: edit(objects, name, change_by_hand),
        remove=lambda name: objects.kept.pop(where(name)) and None,
        add_foreign=add_foreign,
        unsupported_schedule="*/10 * * * * *",
    )
