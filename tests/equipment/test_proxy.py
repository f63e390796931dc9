"""The proxy behaves as a network does."""

from __future__ import annotations

import socket

from tests.equipment.proxy import Proxy

PATIENCE_S = 10.0


def test_a_client_that_waits_notices_at_once_that_the_server_has_died() -> None:
    """Otherwise each fault of a server would look like packets that are lost."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = Proxy(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as client:
            connected, _ = server.accept()
            client.sendall(b"asked")
            assert connected.recv(5) == b"asked"
            connected.close()
            assert client.recv(1) == b""
        proxy.close()
