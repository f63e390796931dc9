"""A way to a server that can be cut after the request was carried out: the answer is lost."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """Passes everything on, until it is told to lose answers."""

    def __init__(self, port: int) -> None:
        self._target, self.lost, self._loses = ("127.0.0.1", port), 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def lose(self, answers: int = 1) -> None:
        """Cut the connection instead of passing on each of the next so many answers."""
        with self._lock:
            self._loses = answers

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(ours,), daemon=True).start()

    def _serve(self, ours: socket.socket) -> None:
        with suppress(OSError), ours, socket.create_connection(self._target) as theirs:
            threading.Thread(target=self._pass_on, args=(ours, theirs), daemon=True).start()
            while answer := theirs.recv(1 << 16):
                if self._is_to_lose():
                    ours.shutdown(socket.SHUT_RDWR)
                    return
                ours.sendall(answer)

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)

    def _is_to_lose(self) -> bool:
        with self._lock:
            if not self._loses:
                return False
            self._loses, self.lost = self._loses - 1, self.lost + 1
            return True
