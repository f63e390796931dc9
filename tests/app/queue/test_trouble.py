"""A Redis whose answers are lost: no message is stored twice, and no claim is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.equipment.proxy import Proxy
from tests.equipment.redis_server import RedisServer

from detent import Detent, PushUnknown, StoreUnavailable
from detent.app.queue.tasks import TaskFunction
from detent.stores.redis.link import script_of

# In a request that writes, and in one that claims plain messages.
COMMIT, TAKE = script_of("commit").sha.encode(), script_of("take").sha.encode()


@pytest.fixture
def way(tasks_redis: RedisServer) -> Iterator[Proxy]:
    tasks_redis.call("FLUSHALL")
    proxy = Proxy(tasks_redis.port)
    yield proxy
    proxy.close()


@pytest.fixture
def send(way: Proxy) -> TaskFunction[..., Any, Any]:
    """Its messages may run once: a message that was granted without an answer would be dead."""
    made = Detent("shop", store=way.url).task(name="send", keep_result=True)(lambda to: to)
    made.push("first")
    assert len(made.app.drain()) == 1
    return made


def test_a_push_whose_answer_is_lost_is_recorded_once(send: TaskFunction[..., Any, Any], way: Proxy) -> None:
    way.lose(1)
    handles = send.push_many([("a",), ("b",)])
    assert way.lost == 1
    assert [handle.is_new for handle in handles] == [True, True]
    assert [one.result for one in send.app.drain()] == ["a", "b"]


def test_a_unique_push_without_an_answer_is_unknown(send: TaskFunction[..., Any, Any], way: Proxy) -> None:
    way.lose(1, to=COMMIT)
    with pytest.raises(StoreUnavailable):
        send.options(unique="x").push("a")
    assert not send.options(unique="x").push("a").is_new


def test_a_push_that_a_frozen_store_did_not_answer_can_be_made_again_under_its_key(
    send: TaskFunction[..., Any, Any], tasks_redis: RedisServer, way: Proxy
) -> None:
    way.lose(2)
    with pytest.raises(PushUnknown, match="unknown whether it recorded the push of") as caught:
        send.push("a")
    (key,) = caught.value.keys
    label = key.partition("#")[2]
    assert f'options(unique="{label}")' in str(caught.value)
    again = send.options(unique=label).push("a")
    assert (again.key, again.is_new) == (key, False)
    assert [one.result for one in send.app.drain()] == ["a"]


def test_the_error_of_push_many_names_the_unknown_messages(
    send: TaskFunction[..., Any, Any], way: Proxy
) -> None:
    way.lose(2)
    with pytest.raises(PushUnknown, match=r"shop\.send#\w+ and 2 others") as caught:
        send.push_many([("a",), ("b",), ("c",)])
    assert len(set(caught.value.keys)) == 3


def test_a_claim_whose_answer_is_lost_is_granted_again(send: TaskFunction[..., Any, Any], way: Proxy) -> None:
    handle = send.push("a")
    way.lose(1, to=TAKE)
    (delivery,) = send.app.queue("default").claim()
    assert (way.lost, delivery.key, delivery.attempt) == (1, handle.key, 1)
    way.lose(1, to=COMMIT)
    delivery.ack("done")
    assert way.lost == 2
    assert handle.get(0) == "done"


def test_an_absent_store_is_reported(send: TaskFunction[..., Any, Any], way: Proxy) -> None:
    way.refuse()
    for call in (lambda: send.push("a"), lambda: send.app.queue("default").claim(), send.app.drain):
        with pytest.raises(StoreUnavailable):
            call()
