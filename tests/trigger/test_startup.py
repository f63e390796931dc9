"""A trigger must not import heavy modules, because a process starts for every fire."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.equipment.redis_server import RedisServer
from tests.runners.http_servers import answering_tls, make_certificate
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
    assert loaded(host, "job") & (HEAVY | {"calendar", "http.client", "ssl"}) == set()


def test_a_trigger_of_a_signed_request_imports_no_heavy_module(host: Host) -> None:
    with serving(200) as app:
        host.write("job", request={"url": app.url}, auth={"secret_refs": ["raw:x"]})
        found = loaded(host, "job")
    assert found & (HEAVY | {"ctypes"}) == set()


def test_a_trigger_of_an_https_request_loads_no_table_of_international_names(
    host: Host, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path)
    with answering_tls(certificate, b"HTTP/1.1 204 No Content\r\n\r\n") as served:
        host.write("job", request={"url": f"https://{served.place}/"})
        found = loaded(host, "job", SSL_CERT_FILE=str(certificate))
    assert found & (HEAVY | {"ctypes", "hmac", "stringprep"}) == set()


def test_a_trigger_on_redis_imports_neither_redis_py_nor_sqlite(host: Host, redis: RedisServer) -> None:
    host.url = redis.url
    host.write("light", command="true", policy={"concurrency_scope": "global"})
    assert loaded(host, "light") & (HEAVY | {"sqlite3", "http.client", "ssl", "stringprep"}) == set()
