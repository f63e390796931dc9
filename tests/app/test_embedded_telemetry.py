"""A node within a web server: its spans and series go where those of the server's app go."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.app.app_world import APP, EVERY_SECOND, World
from tests.equipment.fleet import wait_for
from tests.equipment.redis_server import free_port

SHOP = """
import sys
from functools import partial

from fastapi import FastAPI

@app.task(queue="mail")
def send(to: str) -> None:
    pass

@app.job("@every 1s")
def tick() -> None:
    pass

api = FastAPI(lifespan=partial(app.lifespan, queues=["default", "mail"]))

@api.get("/order")
def order() -> str:
    with span():
        return send.push("ana").key

@api.get("/modules")
def modules() -> list[str]:
    return [*sys.modules]
"""
WITHOUT = "from contextlib import nullcontext as span\n"
TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

exporter = ConsoleSpanExporter(out=open("spans", "a"), formatter=lambda one: one.to_json(indent=None) + "\\n")
provider = TracerProvider(resource=Resource.create({"service.name": "the-shop"}))
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

def span():
    return trace.get_tracer("shop").start_as_current_span("checkout")
"""
MEASURED = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

def line(data):
    return data.to_json(indent=None) + "\\n"

exporter = ConsoleMetricExporter(out=open("series", "a"), formatter=line)
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(exporter, 100)]))
"""
PROMETHEUS = """
import prometheus_client
api.mount("/metrics", prometheus_client.make_asgi_app())
"""
GUNICORN = """
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.multiprocess import MultiProcessCollector

app.start()
registry = CollectorRegistry()
MultiProcessCollector(registry)
wsgi = make_wsgi_app(registry)
"""


class Server:
    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"

    def uvicorn(self) -> list[str]:
        return ["uvicorn", "--port", self.address.partition(":")[2], "--log-level", "warning", "shop:api"]

    def get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:  # it starts
            return ""


@pytest.fixture
def server() -> Server:
    return Server()


def lines(file: Path) -> list[Any]:
    """The JSON lines that are complete."""
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


def test_a_request_and_the_message_that_it_pushes_are_one_trace_of_the_app(
    world: World, server: Server
) -> None:
    world.write("shop.py", APP, TRACED, SHOP)
    with world.running(*server.uvicorn()):
        key = json.loads(wait_for(lambda: server.get("/order")))
        spans = wait_for(lambda: [one for one in lines(world.folder / "spans") if key in str(one)])
        wait_for(lambda: "fire shop.tick" in (world.folder / "spans").read_text())
    spans = lines(world.folder / "spans")
    [message] = [one for one in spans if one["attributes"].get("messaging.message.id") == key]
    path, by_id = list[str](), {one["context"]["span_id"]: one for one in spans}
    [span] = [one for one in spans if one["name"] == "call shop:send"]
    while span:
        path.append(span["name"])
        assert span["resource"]["attributes"]["service.name"] == "the-shop"
        span = by_id.get(span["parent_id"])
    assert path[:5] == ["call shop:send", "attempt 1", "process mail", "push mail", "checkout"]
    assert [link["context"]["span_id"] for link in message["links"]] == [message["parent_id"]]


def test_the_series_are_in_the_registry_of_prometheus_client(world: World, server: Server) -> None:
    world.write("shop.py", APP, WITHOUT, SHOP, PROMETHEUS)
    with world.running(*server.uvicorn()):
        wait_for(lambda: server.get("/order"))
        job, message = (
            f'detent_fires_total{{app="shop",job="{name}",outcome="succeeded"}}' for name in ("tick", "send")
        )
        served = wait_for(
            lambda: (text := server.get("/metrics/")) and job in text and message in text and text
        )
    assert 'detent_slots{app="shop",queue="mail"} 32.0' in served
    assert 'detent_store_call_duration_seconds_count{verb="claim"}' in served


def test_the_series_go_to_the_meter_provider_of_the_app_and_nowhere_else(
    world: World, server: Server
) -> None:
    world.write("shop.py", APP, MEASURED, WITHOUT, SHOP, PROMETHEUS)
    with world.running(*server.uvicorn()):
        wait_for(lambda: "detent_fires_total" in str(lines(world.folder / "series")))
        assert "detent_" not in server.get("/metrics/")
    assert "already" not in world.log()


def test_the_processes_of_gunicorn_add_up(world: World, server: Server) -> None:
    world.write("shop.py", APP, EVERY_SECOND, GUNICORN)
    (world.folder / "series").mkdir()
    world.env["PROMETHEUS_MULTIPROC_DIR"] = str(world.folder / "series")
    with world.running("gunicorn", "-b", server.address, "--no-control-socket", "-w", "2", "shop:wsgi"):
        wait_for(lambda: 'detent_slots{app="shop",queue="default"} 64.0' in server.get("/"))
        assert 'detent_build_info{python="' in server.get("/")


def test_an_app_without_telemetry_does_not_load_it(world: World, server: Server) -> None:
    world.write("shop.py", APP, WITHOUT, SHOP)
    with world.running(*server.uvicorn()):  # FastAPI itself loads the API of OpenTelemetry
        loaded = json.loads(wait_for(lambda: server.get("/modules")))
    assert {"opentelemetry.sdk", "prometheus_client"}.isdisjoint(loaded) and "detent.app.embedding" in loaded
