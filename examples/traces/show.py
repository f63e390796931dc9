"""Shows one trace: from an HTTP request through a message to the command that it started.

It serves the web app, starts a worker, sends a request, and prints the spans that both wrote to one file.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

HERE, TEMPORARY = Path(__file__).parent, tempfile.TemporaryDirectory(prefix="traces-")
FOLDER = Path(TEMPORARY.name)
SPANS = FOLDER / "spans.jsonl"
os.environ["STORE"] = f"sqlite:///{FOLDER}/shop.db"

import shop  # noqa: E402 (after its store is set)


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    shop.trace_to(SPANS)
    server = make_server("127.0.0.1", 0, shop.web, handler_class=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    words = [sys.executable, "-m", "detent", "worker", "shop:app", "--otel", f"file:{SPANS}"]
    with (FOLDER / "worker.log").open("wb") as log:
        worker = subprocess.Popen(words, cwd=HERE, env=os.environ | {"PYTHONPATH": str(HERE)}, stderr=log)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/invoice") as answer:
            key = answer.read().decode()
        row = wait_over(key)
    finally:
        worker.terminate()  # it sends its last spans
        worker.wait(60)
        server.shutdown()
    spans = [json.loads(line) for line in SPANS.read_text().splitlines()]
    print(f"trace {spans[0]['context']['trace_id']}")
    show(spans, None)
    print("the command:", row.attempts[-1].tail.decode().strip())


def wait_over(key: str) -> Any:
    from detent.model import Query

    store = shop.app.open_store()
    while True:
        [row] = store.find(Query(key=key))
        if row.state == "over":
            return row
        store.wait("shop", 0.2)


def show(spans: list[dict[str, Any]], parent: str | None, depth: int = 1) -> None:
    for span in spans:
        if span["parent_id"] == parent:
            service = span["resource"]["attributes"]["service.name"]
            print(f"{'  ' * depth}{span['name']:<{40 - 2 * depth}}{service:<8}{span['context']['span_id']}")
            show(spans, span["context"]["span_id"], depth + 1)


if __name__ == "__main__":
    main()
