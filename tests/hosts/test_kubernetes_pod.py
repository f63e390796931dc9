"""A pod as a CronJob asks for it, as far as a machine without a cluster can tell.

Its words, its variables and its spec are those of the rendered objects; the trigger is a real process, on a
real store.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.cli_world import SOURCES
from tests.equipment.redis_server import RedisServer
from tests.hosts.hosts_world import settings
from tests.hosts.kubernetes_world import IMAGE

from detent.hosts.registry import open_host
from detent.manifest.check import check_manifest
from detent.manifest.spec import specs_of

PATIENCE_S = 60
YOUNG_S = 30
POD = ("spec", "jobTemplate", "spec", "template", "spec")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.end()


def rendered(folder: Path, url: str, scope: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ConfigMap and the CronJob of a job."""
    job = {
        "name": "note",
        "schedule": "* * * * *",
        "command": f"echo $$DETENT_FIRE >> {folder}/ran",
        "policy": {"concurrency_scope": scope},
    }
    manifest = check_manifest({"version": 2, "app": "shop", "store": url, "jobs": [job]})
    host = open_host("kubernetes", settings(folder, "shop", render=True, image=IMAGE))
    configmap, cronjob = [yaml.safe_load(one.content) for one in host.render(specs_of(manifest))]
    return configmap, cronjob


def run_pod(folder: Path, configmap: dict[str, Any], cronjob: dict[str, Any], job_name: str) -> Any:
    """As a kubelet would: the ConfigMap is a folder, `$(NAME)` in words is a variable, `$$` a dollar."""
    pod = cronjob
    for step in POD:
        pod = pod[step]
    container = pod["containers"][0]
    specs = folder / "mounted"
    specs.mkdir(exist_ok=True)
    for name, text in configmap["data"].items():
        (specs / name).write_text(text)
    env = {one["name"]: one.get("value", "").replace("$$", "$") for one in container["env"]}
    assert container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"].endswith(
        "['batch.kubernetes.io/job-name']"
    )
    env |= {"DETENT_RANG_BY": job_name, "DETENT_SPEC_DIR": str(specs), "XDG_STATE_HOME": str(folder / "tmp")}
    env |= {"PYTHONPATH": str(SOURCES), "PATH": os.environ["PATH"], "HOME": str(folder)}
    env.setdefault("DETENT_LOCK_DIR", str(folder / "locks"))  # a pod has a /run of its own
    words = [word.replace("$(DETENT_RANG_BY)", job_name) for word in container["args"]]
    assert container["command"] == ["/usr/local/bin/detent", "trigger"]
    line = [sys.executable, "-m", "detent", "trigger", *words]
    done = subprocess.run(line, env=env, cwd=folder, capture_output=True, timeout=PATIENCE_S)
    events = [json.loads(line)["event"] for line in done.stderr.decode().splitlines() if line.startswith("{")]
    return done.returncode, events


@pytest.mark.parametrize("scope", ["global", "host"])
def test_a_pod_fires_the_minute_in_its_jobs_name_once_on_the_fleets_store(
    scope: str, tmp_path: Path, redis: RedisServer
) -> None:
    redis.call("FLUSHALL")
    objects = rendered(tmp_path, redis.url, scope)
    while datetime.now(UTC).second > YOUNG_S:  # a minute that turns meanwhile would bring a newer instant
        threading.Event().wait(0.2)
    minute = int(datetime.now(UTC).timestamp()) // 60 - 2  # the pod was slow to start
    name = f"detent-shop.note-0-{minute}"
    code, events = run_pod(tmp_path, *objects, name)
    assert (code, "success" in events) == (0, True), events
    due = f"{datetime.fromtimestamp(minute * 60, UTC):%Y-%m-%dT%H:%M:%SZ}"
    assert (tmp_path / "ran").read_text() == f"shop.note@{due}\n"
    assert redis.call("DBSIZE") > 0
    code, events = run_pod(tmp_path, *objects, name)  # the same Job is started again
    assert (code, "success" in events) == (0, False), events
    assert (tmp_path / "ran").read_text().count("\n") == 1


def test_a_manually_created_job_runs_the_due_fire(tmp_path: Path, redis: RedisServer) -> None:
    redis.call("FLUSHALL")
    code, events = run_pod(tmp_path, *rendered(tmp_path, redis.url, "global"), "tried-by-hand")
    assert code == 0 and "success" in events
