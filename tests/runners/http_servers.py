"""Servers for the tests of the HTTP runner: some answer, some trickle, some never do."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from detent import clock
from detent.model import Claim, End, Fire, Request
from detent.runners.http.request import send
from detent.runners.lifeline import Lifeline

DUE = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
FIRE = Fire(key="shop.tick@2026-03-01T02:00:00Z", job="shop.tick", due_at=DUE, run_id="0195-id")
CLAIM = Claim(fire=FIRE, node="n1", fence=42, attempt=2, ttl_s=30, expires_at=DUE)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"
HOUR_S = 3600.0

Script = Callable[[socket.socket, threading.Event], None]


class Served:
    """A server on a port of its own that follows a script with each connection."""

    def __init__(self, listener: socket.socket, script: Script) -> None:
        self.listener, self.script = listener, script
        self.port: int = listener.getsockname()[1]
        self.place = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.place}/tick"
        self.over = threading.Event()
        self.requests: list[bytes] = []
        self.asked = threading.Event()
        self.connections = 0

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                self.connections += 1
                with peer, contextlib.suppress(OSError):
                    self.script(peer, self.over)

    def hear(self, peer: socket.socket) -> None:
        self.requests.append(heard(peer))
        self.asked.set()


@contextlib.contextmanager
def serving(script: Script, host: str = "127.0.0.1") -> Iterator[Served]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        served = Served(listener, script)
        thread = threading.Thread(target=served.accept, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            served.over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


@contextlib.contextmanager
def answering(answer: bytes, host: str = "127.0.0.1") -> Iterator[Served]:
    """A server that hears the request out, then gives this answer and hangs up."""

    def script(peer: socket.socket, over: threading.Event) -> None:
        served.hear(peer)
        peer.sendall(answer)

    with serving(script, host) as served:
        yield served


def make_certificate(folder: Path, host: str = "IP:127.0.0.1") -> Path:
    """Key and certificate of a host, signed by itself, in one file."""
    if not shutil.which("openssl"):
        pytest.skip("needs the program openssl to make a certificate")
    path = folder / "both.pem"
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=here -addext subjectAltName={host}"
    subprocess.run([*words.split(), "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def tls_over(peer: socket.socket, certificate: Path) -> ssl.SSLSocket:
    """The server's side of TLS; it waits for the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context.wrap_socket(peer, server_side=True)


@contextlib.contextmanager
def answering_tls(certificate: Path, answer: bytes) -> Iterator[Served]:
    def script(peer: socket.socket, over: threading.Event) -> None:
        with tls_over(peer, certificate) as wrapped:
            served.hear(wrapped)
            wrapped.sendall(answer)

    with serving(script) as served:
        yield served


def heard(peer: socket.socket) -> bytes:
    content = bytearray()  # bytes would be copied whole with each part of a long body
    while b"\r\n\r\n" not in content:
        content += _some(peer)
    end = content.index(b"\r\n\r\n") + 4
    length = int(dict(fields(bytes(content[:end]))).get("content-length", "0"))
    while len(content) < end + length:
        content += _some(peer)
    return bytes(content)


def _some(peer: socket.socket) -> bytes:
    content = peer.recv(65536)
    if not content:
        raise ConnectionError("hung up in the middle of a request")
    return content


def fields(head: bytes) -> list[tuple[str, str]]:
    lines = head.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]


def silent(peer: socket.socket, over: threading.Event) -> None:
    over.wait(60)


def trickling(start: bytes) -> Script:
    def script(peer: socket.socket, over: threading.Event) -> None:
        peer.sendall(start)
        while not over.wait(0.05):
            peer.sendall(b"x")

    return script


def trusted(seconds: float = HOUR_S) -> Lifeline:
    return Lifeline(clock.boottime() + seconds)


def attempt(request: Request | str, lifeline: Lifeline | None = None, timeout_s: float = 20) -> End:
    request = Request(request) if isinstance(request, str) else request
    return send(request, CLAIM, secrets=(), timeout_s=timeout_s, lifeline=lifeline or trusted())
