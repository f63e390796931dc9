"""What a trigger may not load on its way: each of these would cost every fire more than it needs."""

from __future__ import annotations

import ast
import subprocess
import sys

from redis_server import RedisServer
from trigger_world import Host, minute, serving

EVER = {"argparse", "asyncio", "dataclasses", "importlib.metadata", "importlib.resources", "inspect"}
EVER |= {"logging", "opentelemetry", "psycopg", "redis", "rich", "shutil", "subprocess", "tempfile", "yaml"}
EVER |= {"detent.cli.context", "detent.documents", "detent.foreign_files", "detent.node.node", "zoneinfo"}
EVER |= {"detent.sources", "detent.stores.redis_link", "hashlib", "random", "tomllib"}
EVER |= {"detent.core.addresses", "detent.core.envelope", "detent.core.masking"}
EVER |= {"ctypes", "json", "pathlib", "typing"}
FOR_OTHERS = {
    "base64",
    "enum",
    "ipaddress",
    "re",
    "signal",
    "socket",
    "urllib.parse",
}  # requests, or a server
TELL = (
    "import sys; from detent.cli.main import main; code = main(sys.argv[1:]); print([code, [*sys.modules]])"
)


def loaded(host: Host, name: str, **env: str) -> set[str]:
    """The modules that a trigger has loaded when it ends."""
    words = [sys.executable, "-c", TELL, "trigger", f"t.{name}", "--due", minute(3), "--store", host.url]
    run = subprocess.run(words, env=host.env | env, capture_output=True, check=True, text=True)
    code, modules = ast.literal_eval(run.stdout)
    assert code == 0, run.stderr
    return set(modules)


def test_a_command_loads_neither_http_nor_drivers(host: Host) -> None:
    host.write("job", command="true")
    assert loaded(host, "job") & (EVER | FOR_OTHERS | {"http.client", "ssl", "hmac", "email"}) == set()


def test_a_request_loads_http_client_and_no_warden(host: Host) -> None:
    with serving(200) as app:
        host.write("job", request={"url": app.url}, auth={"secret_refs": ["raw:x"]})
        found = loaded(host, "job")
    needed = {"random", "typing"}  # by http.client
    assert found & (EVER - needed | {"detent.node.wardenry.loop"}) == set()


def test_a_fleet_s_store_loads_no_sqlite(host: Host, redis: RedisServer) -> None:
    host.url = redis.url
    host.write("light", command="true", policy={"concurrency_scope": "global"})
    assert loaded(host, "light") & (EVER | {"sqlite3", "http.client", "ssl"}) == set()
