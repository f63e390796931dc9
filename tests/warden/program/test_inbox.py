"""The warden's inbox: orders, some with a request for a child, in whatever pieces the bytes arrive."""

import pytest

from detent.warden.program.inbox import Inbox
from detent.warden.wire import WardenProtocol

ORDERS = [
    {"do": "ping"},
    {"do": "more", "id": "1", "messages": 2, "request": b'{"args": ["=", "\xc3\xa9"]}'},
    {"do": "more", "id": "1", "messages": 0, "request": b""},
    {"do": "bye"},
]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_each_order_is_received_with_its_own_request(size: int) -> None:
    protocol, inbox, orders = WardenProtocol(), Inbox(), []
    protocol.ping()
    protocol.add_messages("1", '{"args": ["=", "é"]}', 2)
    protocol.add_messages("1", "", 0)
    protocol.say_bye()
    data = protocol.data_to_send()
    for first in range(0, len(data), size):
        inbox.take(data[first : first + size])
        while inbox.is_order_next:
            orders.append(inbox.next_order())
    assert orders == ORDERS


def test_a_request_waits_for_its_order() -> None:
    inbox = Inbox()
    assert not inbox.is_order_next
    inbox.take(b'=["x"]\n{"do": "call"')
    assert not inbox.is_order_next
    inbox.take(b"}\n")
    assert inbox.is_order_next and inbox.next_order() == {"do": "call", "request": b'["x"]'}
    assert not inbox.is_order_next
