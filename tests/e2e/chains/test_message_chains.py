"""Following messages, with workers that die and with links that another program wrote."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.equipment.fleet import wait_for
from tests.worker.worker_world import Works

from detent import Detent, UsageError
from detent.messages.message import (
    DEPTH_MAX,
    LINKS,
    MessageOptions,
    PushContext,
    Task,
    link,
    links_fault,
    message,
)
from detent.model import Call, Query

LINK = {"task": "note", "args": []}


@pytest.fixture
def works(tmp_path: Path) -> Iterator[Works]:
    works = Works(tmp_path, f"sqlite:///{tmp_path / 'shop.db'}", f"shop-{secrets.token_hex(4)}")
    try:
        yield works
    finally:
        works.clear_up()
    works.assert_quiet()


def test_killed_workers_leave_each_following_message_once(works: Works) -> None:
    quick, once = works.tasks.quick, works.tasks.once
    follow = {
        "then": once.message("give", "then"),
        "catch": once.message("give", "catch"),
        "finally_": [once.message("give", "finally")],
    }
    handles = [quick.options(**follow).push("sleep", 0.05) for _ in range(12)]
    handles += [quick.options(**follow).push("fail") for _ in range(3)]
    for count in (3, 8, 13):
        worker = works.start(concurrency=2)
        wait_for(lambda least=count: len(works.seen("start")) >= least, what=f"start {count}")  # type: ignore[misc]
        worker.kill()
    works.start(concurrency=2)
    rows = works.wait_over(handles)
    put = Counter(row.fire.key.partition("#")[2] for row in works.rows() if ".once#" in row.fire.key)
    wanted = Counter[str]()
    for row in rows:
        assert row.outcome
        links = [name for name, kinds in LINKS.items() if row.outcome.kind in kinds]
        wanted.update(f"{row.fire.run_id}.{name}.0" for name in [*links, "finally"])
    assert put == wanted and {row.outcome.kind for row in rows if row.outcome} == {"succeeded", "failed"}


# Links of others: an app that signs nothing takes what anybody writes.


WRONG: dict[str, Any] = {
    "no list": {"then": LINK},
    "another word": {"later": [LINK]},
    "a text": {"then": ["note"]},
    "no task": {"then": [{"args": []}]},
    "a number as task": {"catch": [{"task": 5, "args": []}]},
    "no arguments": {"then": [{"task": "note"}]},
    "a text as arguments": {"then": [{"task": "note", "args": "x"}]},
    "what cannot be said": {"then": [{**LINK, "policy": {}}]},
    "a priority of its own": {"then": [{**LINK, "priority": "top"}]},
    "a text as delay": {"then": [{**LINK, "delay_s": "soon"}]},
    "a delay without end": {"then": [{**LINK, "delay_s": 1e300}]},
    "true as expiry": {"then": [{**LINK, "expires_s": True}]},
    "a result by name": {"then": [{"task": "note", "args": {}, "with_result": True}]},
    "a number as with_result": {"then": [{**LINK, "with_result": 1}]},
    "links that are none": {"then": [{**LINK, "links": [1]}]},
    "wrong further down": {"then": [{**LINK, "links": {"finally": [{}]}}]},
}


def chained(depth: int) -> dict[str, Any]:
    return {"then": [{**LINK, "links": chained(depth - 1)} if depth > 1 else LINK]}


@pytest.mark.parametrize("name", WRONG)
def test_a_message_whose_links_cannot_be_read_is_refused_and_nothing_breaks(
    name: str, detent_app: Detent
) -> None:
    began: list[str] = []

    def note(*what: str) -> None:
        began.append("note")

    detent_app.task(note)
    context = PushContext(detent_app.name, detent_app.open_store().look(detent_app.name).now, "forged")
    task = Task("note", Call(""))
    detent_app.open_store().put([message(task, "[]", MessageOptions(links=WRONG[name]), context, ())])
    (drained,) = detent_app.drain()
    assert (drained.outcome, began) == ("rejected", []) and drained.reason.startswith(
        "malformed: what should"
    )


def test_a_worker_survives_unreadable_links(works: Works) -> None:
    context = PushContext(works.name, datetime.now(UTC), secrets.token_hex(4))
    options, sealed = MessageOptions(links=WRONG["no list"]), works.app.signing()
    wrong = message(works.app.tasks()["quick"], '["nothing"]', options, context, sealed)
    works.app.open_store().put([wrong])
    works.start()
    works.wait_over([works.tasks.quick.push()])
    (row,) = works.app.open_store().find(Query(key=wrong.key))
    assert row.outcome and row.outcome.reason.startswith("malformed") and row.attempt == 0


def test_valid_links_are_accepted() -> None:
    options = MessageOptions("mail", "high", 1.5, "7", 60, 5.0, "k", {"finally": [LINK]})
    assert links_fault({"then": [link("note", "[1]", options), LINK], "catch": [], "finally": [LINK]}) == ""
    assert links_fault(json.loads(json.dumps(chained(DEPTH_MAX - 1)))) == ""
    assert "more than 20" in links_fault(chained(DEPTH_MAX))


# Passing on what was returned.


def test_the_result_of_a_message_is_the_first_argument_of_the_following_one(shop: Detent) -> None:
    got: list[Any] = []

    @shop.task(keep_result=True)
    def order(number: int) -> dict[str, int]:
        return {"number": number + 1}

    @shop.task(keep_result=True)
    def bill(made: dict[str, int] | None, currency: str) -> str | None:
        got.append((made, currency))
        return None

    @shop.task
    def note(*what: Any) -> None:
        got.append(what)

    after = bill.options(then=note.message_with_result(7)).message_with_result("EUR")
    order.options(then=after, finally_=note.message_with_result()).push(1)
    shop.drain()
    assert sorted(got, key=repr) == sorted([({"number": 2}, "EUR"), ({"number": 2},), (None, 7)], key=repr)


def test_only_a_kept_result_is_passed_on(shop: Detent) -> None:
    @shop.task
    def order() -> int:
        return 7

    @shop.task
    def note(what: int) -> None: ...

    with pytest.raises(UsageError, match=r'task "order": then: the result .* with keep_result=True$'):
        order.options(then=note.message_with_result()).push()
    with pytest.raises(UsageError, match="too many positional arguments"):
        order.message_with_result()


def test_a_worker_passes_a_result_on(works: Works) -> None:
    quick = works.tasks.quick
    works.start()
    first = quick.options(then=works.tasks.noted.message_with_result("after it")).push("give", ["a", 1])
    works.wait_over([first])
    assert [one.key for one in works.seen("noted: [['a', 1], 'after it']")] != []
