"""A trigger must not import heavy modules, because a process starts for every fire."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.equipment.redis_server import RedisServer
from tests.trigger.trigger_world import Host, minute, serving

HEAVY = {"asyncio", "importlib.metadata", "inspect", "kubernetes", "logging", "opentelemetry", "psycopg"}
HEAVY |= {"redis", "rich", "subprocess", "tempfile", "yaml"}
RUN = "import sys; from detent.cli.main import main; code = main(sys.argv[1:]); print([code, [*sys.modules]])"


def loaded(host: Host, name: str, **env: str) -> set[str]:
    """Return the modules that a trigger has imported when it ends."""
    words = [sys.executable, "-c", RUN, "trigger", f"t.{name}", "--due", minute(3), "--store", host.url]
    run = subprocess.run(words, env=host.env | env, capture_output=True, check=True, text=True)
    code, modules = ast.literal_eval(run.stdout)
    assert code == 0, run.stderr
    return set(modules)


def test_a_trigger_of_a_command_imports_no_heavy_module(host: Host) -> None:
    host.write("job", command="true")
    assert loaded(host, "job") & (HEAVY | {"http.client", "ssl"}) == set()


def test_a_trigger_of_a_request_imports_no_heavy_module(host: Host) -> None:
    with serving(200) as app:
        host.write("job", request={"url": app.url}, auth={"secret_refs": ["raw:x"]})
        found = loaded(host, "job")
    assert found & HEAVY == set()


def test_a_trigger_on_redis_imports_neither_redis_py_nor_sqlite(host: Host, redis: RedisServer) -> None:
    host.url = redis.url
    host.write("light", command="true", policy={"concurrency_scope": "global"})
    assert loaded(host, "light") & (HEAVY | {"sqlite3", "http.client", "ssl"}) == set()
