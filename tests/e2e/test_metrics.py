"""`detent run --metrics`: a real node, scraped over loopback."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.equipment.fleet import NEVER, Fleet, NodeProcess, wait_for

from detent.observe.metrics.series import BY_NAME, NODE

ANY_PORT = ("--metrics", "127.0.0.1:0")


def get(node: NodeProcess, path: str, accept: str = "") -> tuple[int, str]:
    url = f"http://{node.wait('metrics-served')['address']}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept})) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def sample(text: str, name: str, **labels: str) -> float | None:
    """The value of the sample with exactly these labels, or None."""
    for line in text.splitlines():
        found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
        if found and dict(re.findall(r'(\w+)="([^"]*)"', found[1] or "")) == labels:
            return float(found[2])
    return None


@pytest.fixture
def node(fleet: Fleet) -> NodeProcess:
    jobs = [
        {"name": "good", "schedule": NEVER, "command": "true", "policy": {"concurrency": "Allow"}},
        {"name": "bad", "schedule": NEVER, "command": "exit 3", "policy": {"retries": {"max_attempts": 2}}},
        {"name": "long", "schedule": NEVER, "command": "sleep 600", "policy": {"concurrency": "Allow"}},
    ]
    fleet.write(*jobs, node={"max_running": 7})
    node = fleet.launch(*ANY_PORT)
    node.wait("started")
    return node


def test_fires_attempts_and_store_calls_are_counted(fleet: Fleet, node: NodeProcess) -> None:
    keys = [fleet.fire("good"), fleet.fire("good"), fleet.fire("bad")]
    for key in keys:
        fleet.wait_over(key)
    fires = {"app": "t", "outcome": "succeeded", "job": "good"}
    wait_for(lambda: sample(get(node, "/metrics")[1], "detent_fires_total", **fires) == 2.0)
    wait_for(lambda: node.events("retries-exhausted"))
    text = get(node, "/metrics")[1]
    place = {"app": "t", "queue": "default"}
    assert sample(text, "detent_fires_total", app="t", job="bad", outcome="failed") == 1.0
    assert sample(text, "detent_attempts_total", **place, outcome="failed") == 2.0
    assert sample(text, "detent_attempts_total", **place, outcome="succeeded") == 2.0
    assert sample(text, "detent_fire_duration_seconds_count", **place) == 4.0
    assert sample(text, "detent_fire_lateness_seconds_count", **place) == 3.0
    assert sample(text, "detent_slots", **place) == 7.0
    assert sample(text, "detent_warden_deaths_total", app="t") == 0.0
    assert (sample(text, "detent_store_call_duration_seconds_count", verb="claim") or 0) > 0
    assert abs(sample(text, "detent_clock_offset_seconds") or 9.0) < 5.0


def test_only_the_listed_series_and_labels_are_served(fleet: Fleet, node: NodeProcess) -> None:
    fleet.wait_over(fleet.fire("bad"))
    text = get(node, "/metrics")[1]
    found = re.findall(r"^(\w+?)(?:_bucket|_count|_sum)?(?:\{(.*)\})? ", text, re.MULTILINE)
    assert {name for name, _ in found} <= BY_NAME.keys()
    for name, labels in found:
        assert {*re.findall(r'(\w+)="', labels)} - {"le"} == {*BY_NAME[name].labels}
    assert {*re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)} == {one.name for one in NODE}


def test_an_exemplar_names_the_run(fleet: Fleet, node: NodeProcess) -> None:
    row = fleet.wait_over(fleet.fire("good"))
    node.wait("success")
    text = get(node, "/metrics", "application/openmetrics-text; version=1.0.0")[1]
    exemplars = [line for line in text.splitlines() if f'# {{run_id="{row.fire.run_id}"}}' in line]
    assert {line.partition("_seconds")[0] for line in exemplars} == {
        "detent_fire_duration",
        "detent_fire_lateness",
    }
    assert row.fire.run_id not in get(node, "/metrics")[1]


def test_running_fires_and_deaths_of_the_warden_are_counted(fleet: Fleet, node: NodeProcess) -> None:
    fleet.fire("long"), fleet.fire("long")
    node.wait("fire-started", 2)
    place = {"app": "t", "queue": "default"}
    assert sample(get(node, "/metrics")[1], "detent_running", **place) == 2.0
    subprocess.run(["kill", "-9", str(node.warden)], check=True)
    node.wait("lost", 2)
    text = get(node, "/metrics")[1]
    assert sample(text, "detent_running", **place) == 0.0
    assert sample(text, "detent_warden_deaths_total", app="t") == 1.0
    assert sample(text, "detent_fires_total", app="t", job="long", outcome="lost") == 2.0


def test_a_node_is_ready_while_it_takes_work_and_its_store_answers(fleet: Fleet, node: NodeProcess) -> None:
    assert get(node, "/healthz") == (200, "ok\n") and get(node, "/readyz") == (200, "ok\n")
    assert get(node, "/else")[0] == 404
    away = fleet.database.with_name("away")
    key = fleet.fire("long")
    node.wait("fire-started", fire=key)
    with closing(sqlite3.connect(fleet.database, timeout=20)) as db:  # a moved file leaves its log behind
        wait_for(lambda: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
    away.mkdir()
    swap(fleet.database, away)  # a folder in its place is not this store
    node.wait("store-unavailable")
    assert get(node, "/readyz") == (503, "the store does not answer; the log says why\n")
    assert get(node, "/healthz") == (200, "ok\n")
    failed = re.findall(r"^detent_store_errors_total\{.*\} (\S+)", get(node, "/metrics")[1], re.MULTILINE)
    assert sum(map(float, failed)) >= 1
    swap(fleet.database, away)
    node.wait("store-back")
    assert get(node, "/readyz") == (200, "ok\n")
    node.send(signal.SIGTERM)
    node.wait("draining")
    assert get(node, "/readyz") == (503, "the node is draining\n")
    node.send(signal.SIGTERM)
    assert node.process.wait(60) == 0


def swap(one: Path, other: Path) -> None:
    """Exchange two paths at once: while there is none, the node would create a new store."""
    names = os.fsencode(one), os.fsencode(other)
    assert ctypes.CDLL(None).renameat2(-100, names[0], -100, names[1], 2) == 0  # AT_FDCWD, RENAME_EXCHANGE


def refused(tmp_path: Path, *words: str) -> Iterator[str]:
    file = tmp_path / "detent.yaml"
    file.write_text("version: 2\napp: t\njobs: [{name: a, schedule: '@daily', command: 'true'}]\n")
    line = [sys.executable, "-m", "detent", "run", "-f", str(file), "--store", "memory:", *words]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    yield ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metrics", "shop:app"], 'bad address "shop:app" of --metrics: write HOST:PORT'),
        (["--metrics", "9464"], 'bad address "9464" of --metrics'),
        (["--metrics", "192.0.2.1:9464"], "--metrics cannot listen on 192.0.2.1:9464: "),
        (["--otel", "spans"], 'bad value "spans" of --otel: write file:PATH'),
        (["--otel", "file:/no/such/folder/x"], "--otel cannot write to /no/such/folder/x: No such file"),
    ],
)
def test_a_bad_option_is_refused_with_what_is_allowed(tmp_path: Path, words: list[str], said: str) -> None:
    [error] = refused(tmp_path, *words)
    assert error.startswith(f"detent: {said}") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "module", "said"),
    [
        ("--metrics", "prometheus_client", "prometheus_client: pip install 'detent[prometheus]'"),
        ("--otel", "opentelemetry", "OpenTelemetry: pip install 'detent[otel]'"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, module: str, said: str
) -> None:
    (tmp_path / f"{module}.py").write_text("raise ModuleNotFoundError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    [error] = refused(tmp_path, option)
    assert error == f"detent: {option} needs {said}\n"
