"""`detent queue`: the queues of an app from the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.app.app_world import World
from tests.cli.cli_world import Result

SHOP = """
import detent

app = detent.Detent("shop", store="sqlite:///shop.db", signing=("raw:secret",))


@app.task(queue="mail", also_from=("bulk",), breaker="smtp", breaker_threshold=1)
def send(to: str, subject: str = "hi") -> None:
    if to == "down":
        raise detent.BackendError("no answer")
    if to == "bad":
        raise ValueError("no such customer")
"""
STEPS = """
import contextlib, io, json, sys
from detent.cli.main import main

for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if words == ["drain"]:
            import shop
            code = bool(not shop.app.drain())
        else:
            code = main(["queue", *words])
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


@pytest.fixture
def shop(tmp_path: Path) -> World:
    world = World(tmp_path, "")
    world.write("shop.py", SHOP)
    return world


def say(shop: World, *commands: list[str]) -> list[Result]:
    """Run several commands in one process, because starting Python takes longer than all of them."""
    result = shop.run("python", "-c", STEPS, json.dumps(commands))
    assert result.returncode == 0, result.stderr
    return [Result(*json.loads(line)) for line in result.stdout.splitlines()]


def queue(*words: str) -> list[str]:
    return ["shop:app", *words]


def test_listing_does_not_create_a_store(shop: World, tmp_path: Path) -> None:
    for said in say(shop, queue("ls"), queue("peek"), queue("dead")):
        assert (said.code, said.out) == (0, "") and "nothing has run" in said.err
    assert not (tmp_path / "shop.db").exists()


def test_the_command_line_pushes_and_lists(shop: World) -> None:
    pushed = shop.run("detent", "queue", "shop:app", "push", "send", '["a"]')
    assert pushed.returncode == 0 and re.fullmatch("shop.send#[0-9a-f]{32}\n", pushed.stdout)
    listed = shop.run("detent", "queue", "shop:app", "ls", "-o", "json")
    assert [(one["queue"], one["pending"]) for one in json.loads(listed.stdout)] == [("bulk", 0), ("mail", 1)]


def test_a_message_is_pushed_listed_run_and_purged(shop: World) -> None:
    bad, later, first, second, sizes, peeked, drained, dead, shown = say(
        shop,
        queue("push", "send", '["bad"]'),
        queue(
            "push",
            "send",
            '{"to": "a"}',
            "--priority",
            "high",
            "--queue",
            "bulk",
            "--delay",
            "2h",
            "-o",
            "json",
        ),
        queue("push", "send", '["b"]', "--unique", "7", "-o", "json"),
        queue("push", "send", '["b"]', "--unique", "7"),
        queue("ls", "-o", "json"),
        queue("peek", "mail", "-n", "1", "-o", "json"),
        ["drain"],
        queue("dead", "-o", "json"),
        queue("dead", "mail"),
    )
    key = bad.out.strip()
    assert later.json["is_new"] and first.json == {"key": "shop.send#7", "is_new": True}
    assert (second.code, second.out) == (0, "shop.send#7\n") and "already exists" in second.err
    counted = [(one["queue"], one["pending"], one["delayed"]) for one in sizes.json]
    assert counted == [("bulk", 0, 1), ("mail", 2, 0)]
    assert [one["key"] for one in peeked.json] == [key]
    assert drained.code == 0
    (letter,) = dead.json
    assert (letter["key"], letter["reason"], letter["args"]) == (key, "ValueError: no such customer", ["bad"])
    assert "ValueError: no such customer" in shown.out
    retried, again, _, everything, pending, forgotten = say(
        shop,
        queue("retry", key),
        queue("retry", key),
        ["drain"],
        queue("retry", "--all", "--queue", "mail", "-o", "json"),
        queue("purge", "--pending"),
        queue("purge", "--dead", "-o", "json"),
    )
    assert (retried.out, again.out) == (f"{key}~1\n", "") and "there was nothing to retry" in again.err
    assert everything.json == [{"key": f"{key}~2", "is_new": True}]
    assert pending.out == "bulk: 1 message purged\nmail: 1 message purged\n"
    assert forgotten.json == [{"queue": "bulk", "purged": 0}, {"queue": "mail", "purged": 0}]


def test_the_list_shows_rates_and_breakers(shop: World) -> None:
    shop.write("shop.py", SHOP, "app.queue('mail').limit(10, per=60)\n")
    _, _, listed, whole = say(
        shop, queue("push", "send", '["down"]'), ["drain"], queue("ls"), queue("ls", "-o", "json")
    )
    lines = listed.out.splitlines()
    assert lines[0].split() == ["queue", "pending", "delayed", "running", "dead", "rate", "breakers"]
    assert re.fullmatch(r"mail +0 +0 +0 +1 +10 per 60 s, 1 used +smtp open", lines[2])
    mail = whole.json[1]
    assert mail["rate"] == {"most": 10, "per_s": 60, "smooth": False, "by_key": False, "used": 1}
    assert mail["breakers"] == {"smtp": "open"}


def test_queues_with_messages_and_queues_of_allow_are_listed(shop: World) -> None:
    """An older version of the app, and other programs, may have put messages on queues that no task names."""
    allow, push = "app.allow('scripts', command=True)", "app.queue('scripts').push_command('true')"
    shop.write("shop.py", SHOP.replace('also_from=("bulk",)', 'also_from=("old",)'), allow)
    say(shop, queue("push", "send", '["bad"]', "--queue", "old"), ["drain"])
    shop.write("shop.py", SHOP, allow, push)
    listed, dead, peeked, old = say(
        shop,
        queue("ls", "-o", "json"),
        queue("dead", "-o", "json"),
        queue("peek", "scripts", "-o", "json"),
        queue("dead", "old", "-o", "json"),
    )
    counted = {one["queue"]: (one["pending"], one["dead"]) for one in listed.json}
    assert counted == {"bulk": (0, 0), "mail": (0, 0), "old": (0, 1), "scripts": (1, 0)}
    assert [one["reason"] for one in dead.json] == ["ValueError: no such customer"]
    assert len(peeked.json) == 1 and dead.json == old.json
    shop.write("shop.py", "import detent", "app = detent.Detent('shop', store='sqlite:///shop.db')", allow)
    (listed,) = say(shop, queue("ls", "-o", "json"))
    assert [one["queue"] for one in listed.json] == ["old", "scripts"]


WRONG = [
    (queue("push", "sent"), 1, 'shop has no task "sent"; did you mean "send"?'),
    (queue("push", "send", "{"), 1, "not JSON"),
    (queue("push", "send", "5"), 1, "a list by position"),
    (queue("push", "send"), 1, "detent: task \"send\": missing a required argument: 'to'"),
    (queue("push", "send", '["a"]', "--queue", "other"), 1, 'queue: "other" is not bulk or mail'),
    (queue("retry"), 1, "name the keys to retry"),
    (queue("retry", "shop.send#x"), 1, 'there is no message "shop.send#x"'),
    (queue("peek", "other"), 1, 'shop has no queue "other"; it has bulk and mail'),
    (queue("purge"), 1, "name what to purge: --dead, --pending or both"),
    (["shop.py", "ls"], 1, '"shop.py" is not an app: name one as module:name'),
    (["shop:nothing", "ls"], 1, 'there is no "nothing" in '),
    (["empty:app", "ls"], 1, '"empty:app" has no tasks'),
    (queue("list"), 2, "invalid choice: 'list'"),
    (queue(), 2, "ACTION"),
]


def test_a_usage_error_is_one_sentence(shop: World) -> None:
    shop.write("empty.py", 'import detent\n\napp = detent.Detent("empty")\n')
    for said, (words, code, message) in zip(say(shop, *(words for words, _, _ in WRONG)), WRONG, strict=True):
        assert (said.code, said.out) == (code, ""), words
        assert message in said.err and "Traceback" not in said.err, words


def test_a_worker_does_not_start_for_an_unknown_queue(shop: World) -> None:
    result = shop.run("detent", "worker", "shop:app", "mail", "blk")
    assert result.returncode == 1
    assert result.stderr == 'detent: no task and no job of "shop" uses queue "blk"; did you mean "bulk"?\n'
