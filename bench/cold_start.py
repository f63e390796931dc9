"""The cold start of the command line: CPU of a whole process, as a multiple of `python3 -c pass`.

The same interpreter starts all of them, in turn.  The CPU is what the kernel counted for the process and for
the processes that it waited for: for a trigger, its warden and its work.  Each trigger runs another instant,
and does what a fire does: record, claim, run, settle.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

from node_process import environment, manifest_of
from peers import TRUE, is_there, missing_note
from report import Bench, Budget, Cell, Effort, Result, Table, main, median
from servers import redis_server

JOBS = 10
BARE = "python3 -c pass"
HTTPX = "import httpx; assert httpx.post({url!r}, content=b'').status_code == 200"
LIMITS = {"command": 7.0, "http": 7.0, "https": 7.0}  # of a trigger, as a ratio
REDIS_MORE = 1.5

Words = Callable[[], list[str]]


class Specs:
    """The specs of jobs to trigger, each time for the next instant of a day in the past."""

    def __init__(self, folder: Path, stores: dict[str, str]) -> None:
        self._folder, self._stores, self._triggers = folder, stores, count()

    def write(self, name: str, **work: Any) -> None:
        job = {"name": name, "schedule": "* * * * *", **work}
        (self._folder / f"bench.{name}.json").write_text(json.dumps(manifest_of([job])))

    def trigger(self, name: str, store: str) -> Words:
        def words() -> list[str]:
            at = time.strftime(
                "%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_700_000_000 // 60 * 60 + next(self._triggers) * 60)
            )
            program = Path(sys.executable).with_name("detent")
            start = [str(program)] if program.exists() else [sys.executable, "-m", "detent"]
            places = ["--spec-dir", str(self._folder), "--lock-dir", str(self._folder / "locks")]
            return [*start, "trigger", f"bench.{name}", *places, "--store", self._stores[store], "--due", at]

        return words


def measure(effort: Effort) -> Result:
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as directory, ExitStack() as stack:
        folder, notes = Path(directory), list[str]()
        words = commands(folder, notes, stack)
        took: dict[str, list[float]] = {name: [] for name in words}
        for line in words.values():
            _cpu_ms(line(), folder)  # the first one writes caches that the others use
        for _ in range(effort.rounds):
            for name, line in words.items():
                took[name].append(_cpu_ms(line(), folder))
    medians = {name: median(times) for name, times in took.items()}
    notes.insert(0, f"medians of {effort.rounds} rounds; a trigger's is that of its warden and its work, too")
    return Result((_table(medians, tuple(notes)),), tuple(_budgets(medians)))


def commands(folder: Path, notes: list[str], stack: ExitStack) -> dict[str, Words]:
    ours = [sys.executable, "-m", "detent"]
    manifest = folder / "detent.json"
    jobs = [{"name": f"job-{i}", "schedule": "0 2 * * *", "command": [TRUE]} for i in range(JOBS)]
    manifest.write_text(json.dumps(manifest_of(jobs)))
    redis = stack.enter_context(redis_server())
    url, tls = stack.enter_context(serving(folder))
    specs = Specs(folder, {"SQLite": f"sqlite:///{folder / 'bench.db'}", "Redis": redis.url})
    specs.write("command", command=[TRUE])
    specs.write("http", request={"url": url})
    lines: dict[str, list[str]] = {
        BARE: [sys.executable, "-c", "pass"],
        "detent version": [*ours, "version"],
        f"detent validate, {JOBS} jobs": [*ours, "validate", "-f", str(manifest)],
        f"detent next, {JOBS} jobs": [*ours, "next", "--file", str(manifest)],
    }
    if shutil.which("curl"):
        lines["curl, http"] = ["curl", "-sS", "-X", "POST", url]
    if is_there("httpx"):
        lines["a shim on httpx, http"] = [sys.executable, "-c", HTTPX.format(url=url)]
    else:
        notes.append(missing_note("httpx"))
    words: dict[str, Words] = {name: lambda line=line: line for name, line in lines.items()}  # type: ignore[misc]
    kinds = ["command", "http"]
    if tls:
        specs.write("https", request={"url": tls})
        kinds.append("https")
    else:
        notes.append("https is left out: it needs the program openssl")
    return words | {
        f"detent trigger, {kind}, {store}": specs.trigger(kind, store)
        for kind in kinds
        for store in ("SQLite", "Redis")
    }


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, str]]:
    """A server that answers 200 over http and, with a certificate, over https; yields the URLs."""

    class Heard(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Heard)]
    urls = [f"http://127.0.0.1:{servers[0].server_port}/"]
    if certificate := _certificate(folder):
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Heard))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        servers[1].socket = context.wrap_socket(servers[1].socket, server_side=True)
        urls.append(f"https://127.0.0.1:{servers[1].server_port}/")
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    yield urls[0], urls[1] if len(urls) > 1 else ""
    for server in servers:
        server.shutdown()


def _certificate(folder: Path) -> str:
    if not shutil.which("openssl"):
        return ""
    path = folder / "tls.pem"
    words = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=here -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*words.split(), "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return str(path)


def _cpu_ms(words: list[str], folder: Path) -> float:
    """Return the CPU milliseconds of a process from its start to its end."""
    env = environment() | {"SSL_CERT_FILE": str(folder / "tls.pem"), "XDG_STATE_HOME": str(folder)}
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(words, env=env, stdin=nothing, stdout=nothing, stderr=nothing)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} exited with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def _table(medians: dict[str, float], notes: tuple[str, ...]) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple((name, ms, ms / medians[BARE]) for name, ms in medians.items())
    return Table("Cold start", ("command", "CPU ms", "÷ python3 -c pass"), rows, notes)


def _budgets(medians: dict[str, float]) -> Iterator[Budget]:
    for kind, limit in LIMITS.items():
        name = f"detent trigger, {kind}"
        if f"{name}, SQLite" in medians:
            ratio = {store: medians[f"{name}, {store}"] / medians[BARE] for store in ("SQLite", "Redis")}
            yield Budget(name, ratio["SQLite"], "×", floor=limit)
            yield Budget(
                f"{name}: Redis more than SQLite", ratio["Redis"] - ratio["SQLite"], "×", floor=REDIS_MORE
            )


BENCH = Bench("cold_start", {"tiny": Effort(1), "usual": Effort(1, 15), "full": Effort(1, 50)}, measure)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
