"""`--otel`: traces of nodes and workers, in a file and at a receiver of OTLP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.otlp_receiver import OtlpReceiver
from tests.equipment.fleet import NEVER, SOURCES, Fleet, NodeProcess, wait_for
from tests.trigger.trigger_world import serving

from detent.observe.metrics.series import NODE

ROOT = Path(__file__).parents[2]
PUSHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RETRY = {"retries": {"max_attempts": 2, "min_seconds": 0}}
APP = """
import os, subprocess
import detent

app = detent.Detent("shop", store=os.environ["STORE"], signing="raw:a-secret-of-the-shop")
app.allow("ad-hoc", request=["127.0.0.1"])

@app.task(queue="q", keep_result=True)
def outer() -> dict[str, str]:
    shown = subprocess.run(["printenv", "TRACEPARENT"], capture_output=True, text=True).stdout.strip()
    return {"key": inner.push().key, "shown": shown}

@app.job("0 0 1 1 *", enqueue=True, name="by-schedule")
@app.task(queue="q")
async def inner() -> None:
    pass

@app.task(queue="q", isolation="thread", keep_result=True)
def within() -> str:
    return inner.push().key
"""


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as one:
        yield one


def attributes(span: Any) -> dict[str, Any]:
    return {
        one.key: one.value.string_value or one.value.int_value or one.value.double_value
        for one in span.attributes
    }


def test_a_node_sends_a_span_for_a_fire_and_one_for_each_attempt(
    fleet: Fleet, receiver: OtlpReceiver
) -> None:
    with serving(500, 200) as app:
        fleet.write({"name": "job", "schedule": NEVER, "request": {"url": app.url}, "policy": RETRY})
        node = fleet.launch("--otel", **receiver.env)
        node.wait("started")
        row = fleet.wait_over(fleet.fire("job"))
        [fire] = wait_for(lambda: receiver.named("fire t.job"))
        attempts = [wait_for(lambda name=f"attempt {number}": receiver.named(name))[0] for number in (1, 2)]
        sent = [asked.headers["traceparent"] for asked in app.requests]
    assert {span.trace_id for span in attempts} == {fire.trace_id} and not fire.parent_span_id
    assert {span.parent_span_id for span in attempts} == {fire.span_id}
    assert sent == [f"00-{fire.trace_id.hex()}-{span.span_id.hex()}-01" for span in attempts]
    assert [span.status.code for span in (*attempts, fire)] == [2, 0, 0]
    about = attributes(fire)
    assert (about["detent.run_id"], about["detent.outcome"]) == (row.fire.run_id, "succeeded")
    assert node.end() == 0


def test_a_hook_belongs_to_the_trace_of_its_fire(fleet: Fleet, receiver: OtlpReceiver) -> None:
    fleet.write({"name": "job", "schedule": NEVER, "command": "exit 1", "on_failure": "true"})
    fleet.launch("--otel", **receiver.env).wait("started")
    fleet.fire("job")
    [hook] = wait_for(lambda: receiver.named("hook t.job"))
    [fire] = wait_for(lambda: receiver.named("fire t.job"))
    assert (hook.trace_id, hook.parent_span_id) == (fire.trace_id, fire.span_id)


def test_a_dead_collector_is_one_warning_and_the_next_outage_another(
    fleet: Fleet, receiver: OtlpReceiver
) -> None:
    receiver.status = 400  # which is not repeated
    fleet.write({"name": "job", "schedule": "@every 1s", "command": "true"})
    node = fleet.launch("--otel", **receiver.env)
    node.wait("success", 4)
    assert len(node.events("traces-unsent")) == 1
    receiver.status = 200
    wait_for(lambda: receiver.spans)
    receiver.status = 400
    node.wait("traces-unsent", 2)
    assert node.end() == 0 and node.plain_lines() == []


def test_a_full_disk_is_one_warning(fleet: Fleet) -> None:
    fleet.write({"name": "job", "schedule": NEVER, "command": "true"})
    node = fleet.launch("--otel", "file:/dev/full", OTEL_BSP_SCHEDULE_DELAY="50")
    node.wait("started")
    fleet.fire("job")
    assert "No space left" in node.wait("traces-unsent")["error"]
    assert node.end() == 0 and node.plain_lines() == []


def test_metrics_go_over_otlp_under_the_same_names(fleet: Fleet, receiver: OtlpReceiver) -> None:
    fleet.write({"name": "job", "schedule": NEVER, "command": "exit 1"})
    endpoint = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{receiver.url}/v1/metrics"}
    node = fleet.launch("--otel", **receiver.env, **endpoint, OTEL_METRIC_EXPORT_INTERVAL="100")
    node.wait("started")
    fleet.wait_over(fleet.fire("job"))
    metric = wait_for(lambda: receiver.metrics.get("detent_fires_total"))
    [point] = metric.sum.data_points
    assert {one.key: one.value.string_value for one in point.attributes} == {
        "app": "t",
        "job": "job",
        "outcome": "failed",
    }
    assert receiver.metrics.keys() == {one.name for one in NODE} - {"detent_store_errors_total"}
    receiver.status = 400
    assert node.wait("metrics-unsent")["level"] == "WARN"


class Shop:
    """A worker of an app in code, whose spans go to a file."""

    def __init__(self, folder: Path, *words: str, has_otel: bool = True) -> None:
        self.spans = folder / "spans"
        (folder / "shop.py").write_text(APP)
        self.env = {"STORE": f"sqlite:///{folder}/shop.db", "PYTHONPATH": f"{SOURCES}:{folder}"}
        self.env |= {"XDG_STATE_HOME": str(folder), "PATH": os.defpath}
        line = [sys.executable, "-m", "detent", *words]
        line += ["--otel", f"file:{self.spans}"] if has_otel else []
        self.worker = NodeProcess(line, self.env, folder / "log")
        self.worker.wait("started")

    def python(self, code: str, **env: str) -> str:
        """Run code of another process of the app."""
        line = [sys.executable, "-c", f"import shop\n{code}"]
        ended = subprocess.run(line, env=self.env | env, capture_output=True, text=True, check=True)
        return ended.stdout.strip()

    def end(self) -> list[dict[str, Any]]:
        """End the worker, and return its spans."""
        assert self.worker.end() == 0 and self.worker.plain_lines() == []
        return [json.loads(line) for line in self.spans.read_text().splitlines()]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path, "worker", "shop:app")
    yield made
    made.worker.clear_up()


def process_of(spans: list[dict[str, Any]], key: str) -> dict[str, Any]:
    [found] = [span for span in spans if span["attributes"].get("messaging.message.id") == key]
    return found


def attempt_under(spans: list[dict[str, Any]], span: dict[str, Any]) -> dict[str, Any]:
    [found] = [one for one in spans if one["parent_id"] == span["context"]["span_id"]]
    return found


@pytest.mark.parametrize("task", ["outer", "within"])
def test_a_message_that_a_message_pushes_belongs_to_its_trace(shop: Shop, task: str) -> None:
    """From a process without OpenTelemetry that was started in a trace, through a call, to its message."""
    key, result = shop.python(
        f"handle = shop.{task}.push()\nprint(handle.key)\nprint(handle.get(timeout=60))", TRACEPARENT=PUSHER
    ).split("\n")
    next_key = result if task == "within" else literal_eval(result)["key"]
    wait_for(lambda: shop.spans.exists() and next_key in shop.spans.read_text())
    spans = shop.end()
    first, second = process_of(spans, key), process_of(spans, next_key)
    attempt = attempt_under(spans, first)
    assert first["parent_id"] == f"0x{PUSHER.split('-')[2]}" and first["kind"] == "SpanKind.CONSUMER"
    assert [link["context"]["span_id"] for link in first["links"]] == [first["parent_id"]]
    assert second["parent_id"] == attempt["context"]["span_id"]
    assert [link["context"]["span_id"] for link in second["links"]] == [attempt["context"]["span_id"]]
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{PUSHER.split('-')[1]}"}
    about = first["attributes"]
    assert about["messaging.system"] == "detent" and about["messaging.destination.name"] == "q"
    assert about["messaging.operation.type"] == "process"
    if task == "outer":
        assert literal_eval(result)["shown"].split("-")[2] == attempt["context"]["span_id"].removeprefix("0x")


def test_a_request_of_a_message_has_the_context_of_its_attempt(shop: Shop) -> None:
    with serving(200) as app:
        shop.python(f"shop.app.queue('ad-hoc').push_request({app.url!r})", TRACEPARENT=PUSHER)
        asked = wait_for(lambda: app.requests)[0]
    spans = shop.end()
    [attempt] = [span for span in spans if span["name"] == "attempt 1"]
    assert asked.headers["traceparent"].split("-")[1:3] == [
        PUSHER.split("-")[1],
        attempt["context"]["span_id"].removeprefix("0x"),
    ]


def test_a_message_of_an_enqueue_job_is_linked_to_the_fire(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "run", "-f", "shop:app")
    try:
        line = [sys.executable, "-m", "detent", "fire", "by-schedule", "-f", "shop:app"]
        subprocess.run(line, env=shop.env, check=True, capture_output=True)
        wait_for(lambda: shop.spans.exists() and "process q" in shop.spans.read_text())
    finally:
        spans = shop.end()
        shop.worker.clear_up()
    [fire] = [span for span in spans if span["name"] == "fire shop.by-schedule"]
    [message] = [span for span in spans if span["name"] == "process q"]
    assert message["parent_id"] == attempt_under(spans, fire)["context"]["span_id"]


def test_without_otel_a_worker_passes_on_the_context_of_the_message(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "worker", "shop:app", has_otel=False)
    try:
        said = shop.python("print(shop.outer.push().get(timeout=60)['shown'])", TRACEPARENT=PUSHER)
        assert said == PUSHER and shop.worker.end() == 0
    finally:
        shop.worker.clear_up()


def test_the_example_shows_one_trace_from_a_request_to_a_command() -> None:
    line = [sys.executable, str(ROOT / "examples/traces/show.py")]
    shown = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    trace = shown[0].removeprefix("trace 0x")
    names = [line.split()[0] for line in shown[1:-1]]
    depths = [len(line) - len(line.lstrip()) for line in shown[1:-1]]
    assert (names, depths) == (["GET", "push", "process", "attempt"], [2, 4, 6, 8])
    attempt = shown[-2].split()[-1].removeprefix("0x")
    assert shown[-1] == f"the command: printed with TRACEPARENT=00-{trace}-{attempt}-01"
