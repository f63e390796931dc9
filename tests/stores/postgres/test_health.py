"""What `doctor` and a node's start read of a PostgreSQL server, on a connection that breaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.equipment.postgres_server import Server
from tests.equipment.proxy import Proxy

from detent.errors import StoreUnavailable
from detent.stores.postgres.health import look

ASKED = b"full_page_writes"  # in the request


@pytest.fixture
def way(server: Server) -> Iterator[Proxy]:
    with closing(Proxy(server.socket)) as proxy:
        yield proxy


def by(way: Proxy) -> str:
    return f"postgresql://postgres@127.0.0.1:{way.port}/postgres"


def test_a_connection_that_breaks_is_replaced(way: Proxy, server: Server) -> None:
    way.lose(1, to=ASKED)
    assert look(by(way)) == look(server.url)
    assert way.lost == 1


def test_connections_that_break_again_and_again_are_an_outage(way: Proxy) -> None:
    way.lose(9, to=ASKED)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        look(by(way))
