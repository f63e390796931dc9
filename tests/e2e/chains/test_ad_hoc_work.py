"""Ad hoc messages, with a real worker: off unless the queue allows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.app.app_world import APP, World
from tests.equipment.fleet import wait_for
from tests.runners.http_servers import OK, answering

from detent import Detent, UsageError
from detent.messages.ad_hoc import CALL, COMMAND, REQUEST, Allowed, ad_hoc_work
from detent.messages.envelope import MessageBody, Refusal
from detent.messages.message import MessageOptions, PushContext, Task, message
from detent.model import Call, Command, Query, Request, Row
from detent.worker.inbox import Inbox

SIGNING = "raw:the secret of these tests"
OPS = """
app.allow("ops", command=True, call="shop:allowed_*", request=HOSTS)


@app.task
def other() -> None:
    note("other")


def allowed_one(what: str) -> None:
    note(what)


def forbidden(what: str) -> None:
    note("forbidden")
"""
ALL = Allowed(True, ("shop:*",), ("*",))


def put(app: Detent, queue: str, kind: str, args: Any) -> str:
    """Signed with the right secret: only the worker can refuse it."""
    now = app.open_store().look(app.name).now
    task = Task(kind, Call(""), queue=queue)
    made = message(
        task,
        json.dumps(args),
        MessageOptions(),
        PushContext(app.name, now, kind + str(args)[-40:]),
        app.signing(),
    )
    app.open_store().put([made])
    return made.key


@pytest.fixture
def shop_app(world: World) -> Detent:
    return Detent("shop", store=world.store, signing=SIGNING)


def test_a_worker_runs_what_its_queue_allows_and_refuses_the_rest(world: World, shop_app: Detent) -> None:
    marks = [world.folder / name for name in ("shell", "words", "elsewhere")]
    with answering(OK) as public, answering(OK) as private:
        hosts = f'["127.0.0.1:{public.port}"]'
        sealed = APP.replace('STORE"])', f'STORE"], signing="{SIGNING}")')
        world.write("shop.py", sealed, OPS.replace("HOSTS", hosts))
        refused = {
            put(shop_app, "ops", CALL, {"function": "shop:forbidden", "args": ["x"]}): "not-allowed",
            put(shop_app, "ops", CALL, {"function": "os:system", "args": ["true"]}): "not-allowed",
            put(shop_app, "default", COMMAND, {"words": ["touch", str(marks[2])]}): "not-allowed",
            put(shop_app, "ops", COMMAND, {"words": [5]}): "malformed",
            put(shop_app, "ops", REQUEST, {"url": "ftp://127.0.0.1/"}): "malformed",
        }
        unreached = [
            put(shop_app, "ops", REQUEST, {"url": f"http://127.0.0.1:{private.port}/"}),
            put(shop_app, "ops", REQUEST, {"url": "http://169.254.169.254/latest/meta-data/"}),
        ]
        well = [
            put(
                shop_app, "ops", COMMAND, {"command": f'test "$A" = b && touch {marks[0]}', "env": {"A": "b"}}
            ),
            put(shop_app, "ops", COMMAND, {"words": ["touch", str(marks[1])]}),
            put(shop_app, "ops", CALL, {"function": "shop:allowed_one", "args": ["called"]}),
            put(shop_app, "ops", REQUEST, {"url": f"http://127.0.0.1:{public.port}/a", "body": "hello"}),
        ]
        keys = [*refused, *unreached, *well]
        with world.running("detent", "worker", "shop:app"):
            over = wait_for(lambda: _over(shop_app, keys), what=f"their ends: {world.log()}")
        assert public.connections == 1 and private.connections == 0
    assert {key: over[key] for key in well} == dict.fromkeys(well, ("succeeded", ""))
    assert {key: over[key][0] for key in refused} == dict.fromkeys(refused, "rejected")
    assert {key: over[key][1].partition(":")[0] for key in refused} == refused
    assert all(kind != "succeeded" for kind, _ in (over[key] for key in unreached))
    assert [mark.exists() for mark in marks] == [True, True, False]
    assert [tick.what for tick in world.ticks()] == ["called"]


def _over(app: Detent, keys: list[str]) -> dict[str, tuple[str, str]]:
    """How all of them ended; nothing, while they have not."""
    rows = [row for key in keys for row in app.open_store().find(Query(key=key))]
    ended = {
        row.fire.key: (row.outcome.kind, row.outcome.reason) for row in rows if _is_over(row) and row.outcome
    }
    return ended if len(ended) == len(keys) else {}


def _is_over(row: Row) -> bool:
    return row.state == "over"


def test_ad_hoc_messages_are_off_by_default(detent_app: Detent) -> None:
    inbox = Inbox(detent_app.tasks())
    for kind in (COMMAND, CALL, REQUEST):
        fire = message(
            Task(kind, Call("")),
            "{}",
            MessageOptions(),
            PushContext("test", detent_app.open_store().look("test").now, kind),
            (),
        )
        opened = inbox.open(fire, fire.due_at)
        assert isinstance(opened, Refusal) and opened.fault in ("not-allowed", "unknown-task")


@pytest.mark.parametrize(
    ("push", "words"),
    [
        (
            lambda queue: queue.push_command("true"),
            "allows no command from a message: allow it with app.allow",
        ),
        (lambda queue: queue.push_call("os:system"), '"os:system" is not allowed from its queue'),
        (lambda queue: queue.push_request("http://h/"), "allows no request"),
    ],
)
def test_work_that_is_not_allowed_is_not_pushed(detent_app: Detent, push: Any, words: str) -> None:
    detent_app.allow("ops", call=["shop:*"])
    with pytest.raises(UsageError) as caught:
        push(detent_app.queue("ops"))
    assert words in str(caught.value) and detent_app.queue("ops").size().pending == 0


def test_allowed_work_is_pushed_with_its_options(detent_app: Detent) -> None:
    detent_app.allow("ops", command=True, call="shop:*", request="*")
    queue = detent_app.queue("ops")
    handles = [
        queue.push_command(["ls", "-l"], max_retries=2, timeout_seconds=5),
        queue.push_call("shop:build", 1, max_retries=1),
        queue.push_request("https://example.org/", "PUT", body="x", headers={"A": "b"}),
    ]
    inbox = Inbox({}, (), detent_app.allowed())
    rows = [detent_app.open_store().find(Query(key=one.key))[0].fire for one in handles]
    assert [inbox.open(fire, fire.due_at) for fire in rows] == [
        Command(("ls", "-l")),
        Call("shop:build", "[1]"),
        Request("https://example.org/", "PUT", (("A", "b"),), "x", hosts=("*",)),
    ]
    assert [fire.policy.retries.max_attempts for fire in rows] == [3, 2, 1] and rows[0].policy.timeout_s == 5


def test_without_a_worker_only_calls_run_and_the_rest_waits_for_workers(detent_app: Detent) -> None:
    detent_app.allow("default", command=True, call="math:*")
    detent_app.task(name="other")(lambda: None)
    queue = detent_app.queue("default")
    called, command = queue.push_call("math:sqrt", 16), queue.push_command("true")
    assert {one.key: (one.outcome, one.result) for one in detent_app.drain()} == {
        called.key: ("succeeded", 4.0),
        command.key: ("lost", None),
    }
    assert (called.state(), command.state()) == ("succeeded", "delayed")


def test_a_bad_host_is_refused_by_allow(detent_app: Detent) -> None:
    with pytest.raises(UsageError, match=f"{Path(__file__).name}:.*request: "):
        detent_app.allow("ops", request=["http://example.org/"])


WRONG: dict[str, tuple[str, Any]] = {
    "a list": (COMMAND, ["ls"]),
    "no words": (COMMAND, {"words": []}),
    "an empty program": (COMMAND, {"words": [""]}),
    "a NUL": (COMMAND, {"command": "a\0b"}),
    "a list as env": (COMMAND, {"words": ["ls"], "env": ["A"]}),
    "a number in env": (COMMAND, {"words": ["ls"], "env": {"A": 1}}),
    "no function": (CALL, {}),
    "a text as arguments": (CALL, {"function": "shop:x", "args": "y"}),
    "no url": (REQUEST, {}),
    "a file": (REQUEST, {"url": "file:///etc/passwd"}),
    "a method": (REQUEST, {"url": "http://h/", "method": "CONNECT"}),
    "a header in a header": (REQUEST, {"url": "http://h/", "headers": {"A": "b\r\nC: d"}}),
    "a number as body": (REQUEST, {"url": "http://h/", "body": 5}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_message_without_work_is_malformed(name: str) -> None:
    kind, args = WRONG[name]
    opened = ad_hoc_work("ops", MessageBody(kind, json.dumps(args)), {"ops": ALL})
    assert isinstance(opened, Refusal) and opened.fault == "malformed"
