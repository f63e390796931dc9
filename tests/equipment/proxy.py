"""A TCP proxy that can be cut, closed, slowed down or turned into a black hole.

It can also cut a connection after the server executed a request, so that only the answer is lost.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from queue import SimpleQueue

END = (0.0, b"")  # of the answers of a connection
ABORTED = struct.pack("ii", 1, 0)  # SO_LINGER: to close is to reset


class Proxy:
    """Passes everything on until a test causes trouble; `restore` ends all trouble but lost answers."""

    def __init__(self, target: int | str) -> None:
        """The target is a port of this host, or the path of a socket."""
        self._target, self.lost, self._loses, self._to = target, 0, 0, b""
        self._lock = threading.Lock()
        self._flows = threading.Event()  # what comes is passed on; else it waits, as in a black hole
        self._flows.set()
        self._ways: list[tuple[socket.socket, socket.socket]] = []  # from a client, and to the server
        self._delay_s = 0.0
        self._held, self._holds_to, self._restored = threading.Event(), b"", threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._listen()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def lose(self, answers: int = 1, to: bytes = b"") -> None:
        """Cut the connection instead of passing on the next `answers` answers to requests that contain
        these bytes."""
        with self._lock:
            self._loses, self._to = answers, to

    def hold(self, to: bytes) -> threading.Event:
        """Hold back the next answer to a request with these bytes until `restore`; return an event that is
        set when the answer has arrived."""
        self._held, self._holds_to = threading.Event(), to
        return self._held

    def cut(self) -> None:
        """Reset every connection; accept new ones."""
        with self._lock:
            ways, self._ways = self._ways, []
        for end in (end for way in ways for end in way):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORTED)
                end.shutdown(socket.SHUT_RD)  # wakes the thread that reads from it, which then closes it

    def refuse(self) -> None:
        """Stop listening, and reset every connection."""
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread; closing alone does not
        self._listener.close()
        self.cut()

    def swallow(self) -> None:
        """A black hole: connections stay, and nothing arrives any more, in either direction."""
        self._flows.clear()

    def delay(self, seconds: float) -> None:
        """Delay every answer by this many seconds."""
        self._delay_s = seconds

    def restore(self) -> None:
        """End all trouble.  Data that a black hole swallowed arrives now: late, as on a real network."""
        self._delay_s = 0.0
        if self._listener.fileno() < 0:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listen()
        self._flows.set()
        self._restored.set()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                ours, _ = listener.accept()
                threading.Thread(target=self._serve, args=(ours,), daemon=True).start()

    def _serve(self, ours: socket.socket) -> None:
        answers: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
        delivery = threading.Thread(target=self._deliver, args=(ours, answers), daemon=True)
        with suppress(OSError), ours, self._reach() as theirs:
            with self._lock:
                self._ways.append((ours, theirs))
            asked: list[bytes] = []  # the parts of the newest request
            threading.Thread(target=self._pass_on, args=(ours, theirs, asked), daemon=True).start()
            delivery.start()
            try:
                while answer := theirs.recv(1 << 16):
                    request = b"".join(asked)
                    asked.clear()
                    if self._is_to_lose(request):
                        ours.shutdown(socket.SHUT_RDWR)
                        return
                    self._hold_back(request)
                    answers.put((time.monotonic() + self._delay_s, answer))
            finally:
                answers.put(END)
                delivery.join()
                ours.shutdown(socket.SHUT_RD)  # ends the other thread's read, which would keep it open

    def _hold_back(self, request: bytes) -> None:
        if self._holds_to and self._holds_to in request:
            self._holds_to = b""
            self._restored.clear()
            self._held.set()
            self._restored.wait()

    def _deliver(self, ours: socket.socket, answers: SimpleQueue[tuple[float, bytes]]) -> None:
        """Pass answers on, each when it is due: a delay does not add up if answers come in several parts."""
        with suppress(OSError):
            while (due := answers.get()) != END:
                at, answer = due
                threading.Event().wait(at - time.monotonic())
                self._flows.wait()
                ours.sendall(answer)

    def _reach(self) -> socket.socket:
        if isinstance(self._target, int):
            return socket.create_connection(("127.0.0.1", self._target))
        reached = socket.socket(socket.AF_UNIX)
        reached.connect(self._target)
        return reached

    def _pass_on(self, source: socket.socket, sink: socket.socket, asked: list[bytes]) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._flows.wait()
                if not self._is_welcome(source, data):
                    source.shutdown(socket.SHUT_RDWR)
                    break
                asked.append(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def _is_welcome(self, source: socket.socket, data: bytes) -> bool:
        """Whether the client may continue; subclasses override this."""
        return True

    def _is_to_lose(self, asked: bytes) -> bool:
        with self._lock:
            if not self._loses or self._to not in asked:
                return False
            self._loses, self.lost = self._loses - 1, self.lost + 1
            return True
