"""The warden protocol without I/O: orders become bytes, bytes in any pieces become events."""

import base64
import json
from typing import Any

import pytest

from detent.runners.call.spec import CallSpec, GuardSpec, PoolSpec
from detent.runners.command import BaseEnv, ProcessExit, Spec
from detent.warden import wire
from detent.warden.program.inbox import Inbox
from detent.warden.program.spawn import CommandOrder
from detent.warden.program.task import CallOrder
from detent.warden.wire import Gone, Held, Part, Pong, Started, WardenProtocol

BASE = BaseEnv("ours", {"PATH": "/bin"})
COMMAND = Spec(id="1", words=("echo", "ü"), env={"A": "\udcff"}, ttl_s=30.0, base=BASE)


def call(id: str, pool: str) -> CallSpec:
    return CallSpec(
        id=id, pool=PoolSpec(pool, ("python",), {}), request='{"é": 1}', tags=("T=1",), ttl_s=30.0
    )


def orders(protocol: WardenProtocol) -> list[dict[str, Any]]:
    inbox, found = Inbox(), []
    inbox.take(protocol.data_to_send())
    while inbox.is_order_next:
        found.append(inbox.next_order())
    return found


def test_a_shared_environment_is_sent_once_and_a_command_is_a_command_order() -> None:
    protocol = WardenProtocol()
    protocol.start(COMMAND, 20.0, 10.0)
    protocol.start(COMMAND._replace(id="2"), 20.0, 10.0)
    base, first, second = orders(protocol)
    assert base == {"do": "base", "name": "ours", "env": {"PATH": "/bin"}}
    assert (first.pop("do"), second["id"]) == ("spawn", "2")
    order = CommandOrder(**first)
    assert (order.words, order.env, order.term_by) == (["echo", "ü"], {"A": "\udcff"}, 10.0)


def test_a_pool_is_registered_before_its_first_call_and_the_longest_unused_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "POOLS_MAX", 2)
    protocol = WardenProtocol()
    for id, pool in enumerate(("a", "b", "a", "c")):
        protocol.start(call(str(id), pool), 20.0, 10.0)
    found = orders(protocol)
    assert [(order["do"], order["pool"]) for order in found] == [
        *(("register", "a"), ("call", "a"), ("register", "b"), ("call", "b"), ("call", "a")),
        *(("unregister", "b"), ("register", "c"), ("call", "c")),
    ]
    assert CommandOrder(**found[0]["order"]).words == ["python"]
    del found[1]["do"]
    assert CallOrder(**found[1]).request == '{"é": 1}'.encode()


def test_guards_releases_and_extensions_are_one_message_each() -> None:
    protocol = WardenProtocol()
    protocol.extend("x", 2.0, 1.0)
    protocol.stop("x", None)
    for id in ("1", "2"):
        protocol.release(id)
        protocol.guard(GuardSpec(id, ttl_s=30.0), 20.0)
    protocol.extend("x", 4.0, 3.0)
    guard, release, stop, extend = orders(protocol)
    assert [order[0] for order in guard["orders"]] == release["ids"] == ["1", "2"]
    assert stop["do"] == "stop" and extend == {"do": "extend", "terms": {"x": [4.0, 3.0]}}
    assert protocol.data_to_send() == b""


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_events_arrive_in_any_pieces(size: int) -> None:
    tail = base64.b64encode(b"\xff").decode()
    gone = {"did": "gone", "id": "1", "status": 3, "cause": "", "error": "", "took_s": 0.5, "tail": tail}
    lines = [
        [{"did": "pong"}, {"did": "started", "id": "1", "pid": 7}],
        [
            {"did": "held", "id": "2", "by": [9]},
            {"did": "part", "id": "3", "part": 2},
            gone | {"result": "4"},
        ],
    ]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    protocol, events = WardenProtocol(), []
    for first in range(0, len(data), size):
        events += protocol.receive(data[first : first + size])
    exit = ProcessExit(3, took_s=0.5, tail=b"\xff")
    assert events == [Pong(), Started("1", 7), Held("2", [9]), Part("3", 2), Gone("1", exit, "4")]
