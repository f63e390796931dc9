"""`detent dashboard` and `detent run --dashboard` as processes, and the other stores."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.world import Counting, World, run, sqlite_url
from tests.equipment.fleet import LOOK_S, wait_for
from tests.equipment.postgres_server import shared_server
from tests.equipment.redis_server import RedisServer

from detent.cli.main import main

MANIFEST = """
version: 2
app: shop
jobs:
  - {name: tick, schedule: "@every 1s", command: "echo tick"}
"""
PATIENCE_S = 30


@contextmanager
def started(folder: Path, *words: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of detent that serves the dashboard, and its address."""
    program = subprocess.Popen(
        [sys.executable, "-m", "detent", *words], cwd=folder, env={**os.environ, **env},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stderr
    try:
        for line in program.stderr:
            found = json.loads(line) if line.startswith("{") else {}
            if found.get("event") == "dashboard-started":
                break
        else:
            raise AssertionError(f"it ended with {program.wait()}")
        yield program, found["url"]
    finally:
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=PATIENCE_S)
    assert program.returncode in (0, -signal.SIGTERM)


def read(url: str, **headers: str) -> Any:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def wait_for_picture(url: str, holds: Callable[[Any], bool]) -> Any:
    """Return the first picture for which this holds."""
    return wait_for(lambda: [now for now in [read(f"{url}api/now")] if holds(now)], every_s=LOOK_S)[0]


def has_success(now: Any) -> bool:
    return "succeeded" in {mark["state"] for mark in now["marks"].values()}


def refused(url: str, **headers: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        read(url, **headers)
    caught.value.close()
    return caught.value.code


def failed(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 1
    return capfd.readouterr().err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "detent.yaml").write_text(MANIFEST)
    return tmp_path


def test_a_node_serves_the_dashboard_of_what_it_runs(folder: Path) -> None:
    with started(folder, "run", "--store", "sqlite:///x.db", "--dashboard", "127.0.0.1:0") as (_, url):
        found = wait_for_picture(url, has_success)
        assert found["jobs"]["shop.tick"]["schedule"] == "@every 1s" and len(found["nodes"]) == 1
        assert refused(f"{url}api/now", Host="evil.test") == 421


def test_the_verb_serves_a_store_and_follows_its_manifest(folder: Path) -> None:
    World(sqlite_url(folder)).run()
    store = ("--store", sqlite_url(folder), "--listen", "127.0.0.1:0")
    (folder / "detent.yaml").write_text(MANIFEST)
    with started(folder, "dashboard", "detent.yaml", *store) as (_, url):
        assert read(f"{url}api/now")["jobs"]["shop.tick"]["schedule"] == "@every 1s"
        (folder / "detent.yaml").write_text(MANIFEST.replace("1s", "2s"))
        wait_for_picture(url, lambda now: now["jobs"]["shop.tick"]["schedule"] == "@every 2s")


def test_a_token_opens_every_address(folder: Path) -> None:
    World(sqlite_url(folder))
    words = ("dashboard", "--store", sqlite_url(folder), "--listen", "127.0.0.1:0", "--read-only")
    with started(folder, *words, "--auth", "token:env:OPS", OPS="a-long-token-1") as (_, url):
        assert refused(f"{url}api/now") == 401
        assert read(f"{url}api/now", Authorization="Bearer a-long-token-1")["app"] == "shop"


def test_errors_say_what_to_do(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    World(sqlite_url(folder))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DETENT_STORE", sqlite_url(folder))
    assert "--auth" in failed(capfd, "dashboard", "--listen", "0.0.0.0:0")
    assert "use token:env:NAME" in failed(capfd, "dashboard", "--auth", "none", "--listen", "127.0.0.1:0")
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert "another program uses it" in failed(capfd, "dashboard", "--listen", address)
    assert "detent dashboard" in failed(capfd, "run", "--dashboard", "0.0.0.0:0")
    assert "memory" in failed(capfd, "run", "--store", "memory:", "--dashboard")
    assert "`detent run` creates it" in failed(capfd, "dashboard", "--store", "sqlite:///none.db")
    monkeypatch.delenv("DETENT_STORE")
    (folder / "other.yaml").write_text(MANIFEST.replace("shop", "crm") + "store: sqlite:///other.db\n")
    assert "different stores" in failed(capfd, "dashboard", "detent.yaml", "other.yaml")


def test_without_the_extra_the_error_has_the_command(folder: Path) -> None:
    World(sqlite_url(folder))
    code = "import sys; sys.modules['starlette'] = None; from detent.__main__ import main; sys.exit(main())"
    words = ["dashboard", "--store", sqlite_url(folder), "--listen", "127.0.0.1:0"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=folder)
    assert (
        done.returncode == 1 and "pip install 'detent[web]'" in done.stderr and "Traceback" not in done.stderr
    )


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_the_other_stores_answer_every_route(kind: str, tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis") if kind == "redis" else None
    world = World(server.url if server else shared_server().url)
    key, store = world.run(), Counting(world.store)
    world.kill_letter()
    world.source = world.source._replace(store=store.as_store)
    site = world.site()

    async def ask_all() -> None:
        routes = (
            "now",
            "now?window=86400",
            "jobs",
            "jobs/shop.tick",
            "fires",
            f"fires/{key}",
            f"fires/{key}/why",
        )
        for route in (*routes, "queues", "queues/mail/dead", "nodes", "tally", "audit"):
            answer = await site.ask("GET", f"/api/{route}")
            assert answer.status == 200, (route, answer.body)

    run(ask_all())
    assert {*store.calls} <= {"look", "find", "notes", "count", "apps", "newest", "tally"}
    assert site.post("/api/jobs/shop.tick/pause", {"reason": "x"}).status == 200
    assert world.site().get("/api/audit").json["audit"][0]["action"] == "pause"
    world.store.close()
    if server:
        server.end()
