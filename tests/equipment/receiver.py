"""An HTTP server that keeps what it receives."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Received(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """An HTTP server that answers with these statuses in turn, and then with 200."""

    def __init__(self, *statuses: int) -> None:
        self.received: list[Received] = []
        self._statuses = list(statuses)
        receiver = self

        class Called(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append(Received(self.command, self.path, dict(self.headers), body))
                self.send_response(receiver._statuses.pop(0) if receiver._statuses else 200)
                self.end_headers()
                self.wfile.write(b"thank you\n")

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Called)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, *statuses: int) -> None:
        self._statuses[:] = statuses

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """What was received as JSON, such as the alerts of Apprise's json://."""
        return [json.loads(one.body) for one in self.received]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
