"""The example apps, fired by a real node with the manifest that they serve."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.equipment.fleet import Fleet
from tests.equipment.redis_server import free_port
from tests.receive.receive_world import ROOT, SECRET, Server, runs, serving

from detent.errors import UsageError
from detent.loading.sources import read_manifest

EXAMPLES = ROOT / "examples" / "receive"
STARTS = {
    "fastapi_app": ["-m", "uvicorn", "fastapi_app:app", "--app-dir", str(EXAMPLES), "--port", "PORT"],
    "flask_app": ["-m", "gunicorn", "flask_app:app", "--chdir", str(EXAMPLES), "-b", "127.0.0.1:PORT"],
    "django_app": [str(EXAMPLES / "django_app.py"), "runserver", "--noreload", "PORT"],
}


@pytest.fixture(params=STARTS)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    port = free_port()
    words = [sys.executable, *(word.replace("PORT", str(port)) for word in STARTS[request.param])]
    env = {"APP_URL": f"http://127.0.0.1:{port}", "RECEIPTS": f"sqlite:///{tmp_path}/receipts.db"}
    server = Server(words, tmp_path, port, env)
    try:
        server.wait()
        yield server
    finally:
        server.end()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    try:
        yield fleet
    finally:
        fleet.clear_up()


def test_an_example_is_fired_by_the_manifest_that_it_serves(app: Server, fleet: Fleet) -> None:
    with urlopen(f"{app.url}/", timeout=30) as home:
        assert b"an app like any other" in home.read()
    with urlopen(f"{app.url}/.well-known/cron-manifest", timeout=30) as served:
        fleet.file.write_bytes(served.read())
    fleet.start(CRON_SECRET=SECRET)
    over = json.loads(fleet.ask("fire", "send-invoices", "--wait", "-o", "json"))
    assert over["outcome"] == "succeeded"
    (attempt,) = over["attempts"]
    assert (attempt["status"], json.loads(attempt["output"])["attempt"]) == (200, 1)
    assert json.loads(fleet.ask("fire", "poll-bank", "--wait", "-o", "json"))["outcome"] == "succeeded"
    fleet.assert_quiet()


def test_a_manifest_that_asks_for_a_signature_is_read_by_detent_with_the_secret(tmp_path: Path) -> None:
    env = {"CRON_SECRET": SECRET, "OTHER": "another-one"}
    with serving(["uvicorn"], tmp_path, SIGNED="1") as (server,):
        url = f"{server.url}/.well-known/cron-manifest"
        manifest = read_manifest(url, env, "env:CRON_SECRET")
        with pytest.raises(UsageError, match="401"):
            read_manifest(url, env, "env:OTHER")
    assert manifest.app == "billing" and "billing.note" in {job.name for job in manifest.jobs}


def test_a_trigger_whose_store_lost_its_data_gets_the_answer_without_a_second_run(tmp_path: Path) -> None:
    receipts = f"sqlite:///{tmp_path / 'receipts.db'}"
    with serving(["waitress"], tmp_path, RECEIPTS=receipts) as (server,):
        with urlopen(f"{server.url}/.well-known/cron-manifest", timeout=30) as served:
            (tmp_path / "detent.json").write_bytes(served.read())
        for number in range(2):  # each with a store of its own, as if the first one had been lost
            words = ["trigger", "billing.note", "-f", "detent.json", "--due", "2026-03-01T02:00:00Z"]
            words += ["--store", f"sqlite:///{tmp_path}/{number}.db", "--lock-dir", str(tmp_path)]
            environ = {**os.environ, "CRON_SECRET": SECRET, "DETENT_CONFIG": ""}
            line = [sys.executable, "-m", "detent", *words]
            done = subprocess.run(line, env=environ, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in runs(tmp_path)] == ["billing.note@2026-03-01T02:00:00Z"]
