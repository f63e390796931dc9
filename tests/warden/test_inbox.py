"""What a warden hears: orders, some with a request for a child, however the bytes come."""

import pytest

from detent.warden.program.inbox import Inbox
from detent.warden.wire import written

SAID = [
    {"do": "ping"},
    {"do": "call", "id": "1", "request": b'{"args": ["=", "\xc3\xa9"]}'},
    {"do": "more", "id": "1", "messages": 2, "request": b""},
    {"do": "bye"},
]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_each_order_is_heard_with_its_own_request(size: int) -> None:
    wire, heard, orders = b"".join(written(one) + b"\n" for one in SAID), Inbox(), []
    for first in range(0, len(wire), size):
        heard.take(wire[first : first + size])
        while heard.is_order_next:
            orders.append(heard.next_order())
    assert orders == SAID


def test_a_request_without_its_order_is_waited_with() -> None:
    heard = Inbox()
    assert not heard.is_order_next
    heard.take(b'=["x"]\n{"do": "call"')
    assert not heard.is_order_next
    heard.take(b"}\n")
    assert heard.is_order_next and heard.next_order() == {"do": "call", "request": b'["x"]'}
    assert not heard.is_order_next
