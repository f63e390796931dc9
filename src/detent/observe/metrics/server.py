"""Serves a node's `/metrics`, `/healthz` and `/readyz` over HTTP, from a thread of its own."""

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from detent.errors import UsageError
from detent.observe.metrics.node import NodeMetrics
from detent.observe.metrics.prometheus import PrometheusMeter

TIMEOUT_S = 10.0  # for a client to send its request
TEXT = "text/plain; charset=utf-8"


class MetricsServer:
    def __init__(self, address: tuple[str, int], meter: PrometheusMeter, node: NodeMetrics) -> None:
        host, port = address

        class Handler(BaseHTTPRequestHandler):
            timeout = TIMEOUT_S
            server_version, sys_version = "detent", ""

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(200, *meter.render(self.headers.get("Accept", "")))
                elif path in ("/healthz", "/readyz"):
                    why = node.unhealthy() if path == "/healthz" else node.unready()
                    self._answer(503 if why else 200, f"{why or 'ok'}\n".encode(), TEXT)
                else:
                    self._answer(404, b"there are /metrics, /healthz and /readyz\n", TEXT)

            def _answer(self, status: int, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: a scrape is no event."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

            def handle_error(self, request: Any, client_address: Any) -> None:
                if not isinstance(sys.exception(), OSError):  # a client that went away is no error
                    super().handle_error(request, client_address)

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise UsageError(f"--metrics cannot listen on {host}:{port}: {error.strerror or error}") from None
        self.address = f"{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="detent-metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
