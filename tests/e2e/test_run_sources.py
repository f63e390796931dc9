"""`detent run` reads its manifest from a URL or from standard input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from tests.equipment.fleet import Fleet, NodeProcess


class ManifestServer(ThreadingHTTPServer):
    """An app that serves its manifest; a test may change it."""

    jobs: tuple[str, ...] = ("first",)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/.well-known/cron-manifest"

    def manifest(self) -> bytes:
        request = {"url": f"http://127.0.0.1:{self.server_port}/"}
        jobs = [{"name": name, "schedule": "0 0 1 1 *", "request": request} for name in self.jobs]
        return json.dumps({"version": 1, "app": "demo", "jobs": jobs}).encode()


class Handler(BaseHTTPRequestHandler):
    server: ManifestServer

    def do_GET(self) -> None:
        body = self.server.manifest()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def app() -> Iterator[ManifestServer]:
    with ManifestServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def words(fleet: Fleet, place: str) -> list[str]:
    return [sys.executable, "-m", "detent", "run", "-f", place, "--store", fleet.url]


def test_a_node_runs_the_manifest_at_a_url_and_reads_it_again_on_sighup(
    fleet: Fleet, app: ManifestServer
) -> None:
    node = NodeProcess(words(fleet, app.url), fleet.env, fleet.directory / "node.log")
    fleet.nodes.append(node)
    assert node.wait("started")["jobs"] == 1
    app.jobs = ("first", "second")
    node.send(signal.SIGHUP)
    assert node.wait("reloaded")["added"] == ["demo.second"]
    assert node.end() == 0


def test_a_node_runs_the_manifest_of_standard_input_and_cannot_read_it_again(fleet: Fleet) -> None:
    manifest = 'version: 2\napp: demo\njobs: [{name: a, schedule: "0 0 1 1 *", command: "true"}]\n'
    with subprocess.Popen(
        words(fleet, "-"), env=fleet.env, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stderr
        process.stdin.write(manifest)
        process.stdin.close()
        events = map(json.loads, process.stderr)
        assert next(one for one in events if one["event"] == "started")["jobs"] == 1
        process.send_signal(signal.SIGHUP)
        refused = next(one for one in events if one["event"] == "reload-refused")
        assert (
            refused["error"] == "the jobs of - come from standard input, which is read once: restart the node"
        )
        process.terminate()
        assert [one["event"] for one in events][-1] == "stopped"
    assert process.returncode == 0
