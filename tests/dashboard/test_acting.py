"""The routes that change something: what each does, its audit record and its event."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.dashboard.world import READER, World, add_jobs_of_tasks, sqlite_url

from detent.dashboard import audit
from detent.dashboard.asked import KEYS_MAX
from detent.model import Outcome, Query, Row
from detent.stores.base import NODE
from detent.views.pauses import find_pauses


def path(key: str, rest: str) -> str:
    return f"/api/fires/{quote(key, safe='')}/{rest}"


def row(world: World, key: str) -> Row:
    return world.store.find(Query(key=key))[0]


def newest(world: World) -> dict[str, Any]:
    """The newest audit record, which is also the newest event."""
    found: dict[str, Any] = world.site().get("/api/audit").json["audit"][0]
    event, fields = world.events[-1]
    assert event == "operated" and fields.items() >= {key: found[key] for key in audit.FIELDS}.items()
    return found


def test_fire_runs_a_job_now(world: World) -> None:
    answer = world.site().post("/api/jobs/shop.tick/fire", {"reason": "try it"})
    key = answer.json["fire"]
    assert answer.status == 201 and row(world, key).fire.origin == "manual"
    assert newest(world) | {"at": ""} == {
        "at": "", "user": "ana", "action": "fire", "subject": "shop.tick", "reason": "try it", "result": key,
    }  # fmt: skip


def test_a_job_that_no_node_serves_is_not_fired(world: World) -> None:
    world.store.note("shop", NODE + "host.1", "")
    answer = world.site().post("/api/jobs/shop.tick/fire")
    assert answer.status == 409 and "detent run" in answer.json["error"]
    assert newest(world)["result"].startswith("refused: shop.tick was not fired")
    assert world.site().post("/api/jobs/shop.gone/fire").status == 409


def test_a_job_that_no_manifest_defines_cannot_run(world: World) -> None:
    world.source = world.source._replace(manifests={}, apps={})
    answer = world.site().post("/api/jobs/shop.tick/fire")
    assert answer.status == 409 and "manifest" in answer.json["error"]


def test_pause_and_resume(world: World) -> None:
    site = world.site()
    answer = site.post("/api/jobs/shop.tick/pause", {"reason": "migration", "until": "2099-01-01T00:00:00Z"})
    assert answer.status == 200 and answer.json["by"] == "ana" and answer.json["reason"] == "migration"
    assert find_pauses(world.store, ["shop"])["shop.tick"].until is not None
    assert newest(world)["result"] == "until 2099-01-01T00:00:00Z"
    assert "paused" in site.get("/api/now").json["jobs"]["shop.tick"]["state"]
    assert site.get("/api/jobs/shop.tick").json["can"] == ["fire", "resume"]
    assert site.post("/api/jobs/shop.tick/resume").json == {"resumed": True}
    assert site.post("/api/jobs/shop.tick/resume").json == {"resumed": False}
    assert find_pauses(world.store, ["shop"]) == {}


@pytest.mark.parametrize(
    ("target", "body", "status"),
    [
        ("/api/jobs/shop.tick/pause", {"until": "2001-01-01T00:00:00Z"}, 400),
        ("/api/jobs/shop.tick/pause", {"until": "soon"}, 400),
        ("/api/jobs/shop.tick/pause", {"until": 5}, 400),
        ("/api/jobs/shop.tick/pause", {"reason": "x" * 201}, 400),
        ("/api/jobs/shop.tick/pause", {"reason": 5}, 400),
        ("/api/jobs/shop.tick/pause", {"wrong": 5}, 400),
        ("/api/jobs/shop.tic/pause", {}, 404),
        ("/api/jobs/other.tick/pause", {}, 404),
        ("/api/jobs/shop.tic/resume", {}, 404),
        ("/api/fires/shop.tick@1/kill", {}, 404),
        ("/api/fires/shop.tick@1/again", {}, 404),
        ("/api/queues/mail/retry", {}, 400),
        ("/api/queues/mail/retry", {"keys": []}, 400),
        ("/api/queues/mail/forget", {"keys": ["x"] * (KEYS_MAX + 1)}, 400),
        ("/api/queues/mail/forget", {"keys": [5]}, 400),
        ("/api/queues/mail/forget?app=other", {"keys": ["x"]}, 404),
    ],
)
def test_a_bad_request_changes_nothing(world: World, target: str, body: dict[str, Any], status: int) -> None:
    answer = world.site().post(target, body)
    assert answer.status == status and answer.json["error"]
    assert find_pauses(world.store, ["shop"]) == {}


def test_kill_asks_the_node_to_stop(world: World) -> None:
    key = world.put()
    world.claim()
    answer = world.site().post(path(key, "kill"), {"reason": "too slow"})
    stop = row(world, key).stop
    assert (
        answer.json == {"fire": key, "state": "stopping"}
        and stop
        and stop.reason == "killed by ana: too slow"
    )
    over = world.run()
    answer = world.site().post(path(over, "kill"))
    assert answer.status == 409 and "is over already: failed" in answer.json["error"]
    assert newest(world)["action"] == "kill"


def test_again_runs_the_job_of_a_fire_once_more(world: World) -> None:
    key = world.run()
    answer = world.site().post(path(key, "again"))
    assert answer.status == 201 and row(world, answer.json["fire"]).fire.job == "shop.tick"
    assert newest(world)["subject"] == key


def test_dead_letters_are_retried_and_forgotten(world: World) -> None:
    keys = [world.kill_letter(f"to {number}") for number in range(3)]
    site = world.site()
    answer = site.post("/api/queues/mail/retry", {"keys": [keys[0], "shop.send#none"], "reason": "fixed"})
    [retried], [error] = answer.json["retried"], answer.json["errors"]
    assert retried["fire"] == keys[0] and row(world, retried["new"]).state == "pending"
    assert error["fire"] == "shop.send#none" and newest(world)["result"] == "1 retried, 1 refused"
    again = site.post(path(keys[1], "again"))
    assert again.status == 201 and row(world, again.json["fire"]).state == "pending"
    well = world.run(outcome=Outcome("failed"))  # a fire of a schedule is no message
    assert site.post("/api/queues/mail/forget", {"keys": [keys[2], well]}).json == {"forgotten": 1}
    assert site.post("/api/queues/db/forget", {"keys": [keys[2]]}).json == {"forgotten": 0}
    assert site.get("/api/queues/mail/dead").json["dead"] == [] and row(world, well)


def test_only_an_app_in_code_can_retry(world: World) -> None:
    key = world.kill_letter()
    world.source = world.source._replace(apps={})
    answer = world.site().post("/api/queues/mail/retry", {"keys": [key]})
    assert answer.status == 409 and "detent dashboard module:app" in answer.json["error"]
    assert world.site().get(f"/api/fires/{quote(key, safe='')}").json["can"] == ["forget"]


def test_a_reader_leaves_no_trace(world: World) -> None:
    assert world.site(READER).post("/api/jobs/shop.tick/pause").status == 403
    assert world.site().get("/api/audit").json == {"audit": []} and world.events == []


def test_the_audit_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "RECORDS_MAX", 3)
    for number in range(5):
        world.site().post("/api/jobs/shop.tick/resume", {"reason": str(number)})
    found = world.site().get("/api/audit").json["audit"]
    assert [one["reason"] for one in found] == ["4", "3", "2"]


def test_a_reason_cannot_break_a_line_or_a_log(world: World) -> None:
    world.site().post("/api/jobs/shop.tick/pause", {"reason": "a\nb\x1b[31m <script>"})
    assert newest(world)["reason"] == "a b�[31m <script>"


# Arguments.


def args_record(world: World) -> str:
    return str(newest(world)["result"])


def test_a_task_runs_with_arguments_that_are_masked_in_the_audit(world: World) -> None:
    site = world.site()
    answer = site.post("/api/jobs/shop.send/fire", {"args": '["ana@example.org", "hunter22"]'})
    assert answer.status == 201
    stored = row(world, answer.json["fire"]).fire
    assert stored.origin == "push" and '["ana@example.org","hunter22"]' in stored.payload
    assert args_record(world) == f'{stored.key} with ["ana@example.org", "***"]'
    assert site.get(path(stored.key, "").removesuffix("/")).json["arguments"] == ["ana@example.org", "***"]
    world.source = world.source._replace(hides_arguments=True)
    hidden = world.site().post("/api/jobs/shop.send/fire", {"args": '{"to": "ana@example.org"}'}).json["fire"]
    assert args_record(world) == hidden


def test_a_job_whose_function_is_a_task_takes_arguments(tmp_path: Path) -> None:
    world = World(sqlite_url(tmp_path), add_jobs_of_tasks)
    site = world.site()
    for name, queue in (("shop.remind", "mail^high"), ("shop.send-daily", "mail")):
        assert site.get(f"/api/jobs/{name}").json["takes"] == ["to", "password"]
        answer = site.post(f"/api/jobs/{name}/fire", {"args": '{"to": "ana@example.org"}'})
        fire = row(world, answer.json["fire"]).fire
        assert (fire.job, fire.queue) == ("shop.send", queue)
        assert row(world, site.post(f"/api/jobs/{name}/fire").json["fire"]).fire.job == name
    assert site.get("/api/jobs/shop.tick").json["takes"] is None
    assert site.get("/api/queues").json["tasks"] == [
        {"name": "shop.send", "queue": "mail", "takes": ["to", "password"]}
    ]


@pytest.mark.parametrize(
    ("name", "args", "status", "error"),
    [
        ("shop.send", "[", 400, 'bad arguments "[": not JSON'),
        ("shop.send", '"a"', 400, "a list by position"),
        ("shop.send", "[NaN]", 400, "NaN is not a JSON number"),
        ("shop.send", "[" * 10_000, 400, "bad arguments"),
        ("shop.send", '{"to": "a", "to": "b"}', 400, "a field is there twice"),
        ("shop.send", "", 400, "missing a required argument: 'to'"),
        ("shop.send", "[5]", 400, 'the argument "to" is of type int'),
        ("shop.send", '{"self": 1, "to": "a"}', 400, "got an unexpected keyword argument 'self'"),
        ("shop.send", ["a"], 400, "bad args: use a text"),
        ("shop.tick", "[1]", 409, "runs with the arguments of its definition only"),
        ("shop.gone", "[1]", 409, "is disabled"),
        ("shop.sent", "[1]", 409, "arguments of its definition"),
        ("other.send", "[1]", 404, "no app"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    world: World, name: str, args: object, status: int, error: str
) -> None:
    answer = world.site().post(f"/api/jobs/{name}/fire", {"args": args})
    assert answer.status == status and error in answer.json["error"]
    assert world.store.find(Query(app="shop", origins=("push",))) == []


def test_a_refusal_does_not_repeat_a_secret_in_the_audit(world: World) -> None:
    world.site().post("/api/jobs/shop.send/fire", {"args": '{"password": "hunter22",'})
    assert "bad arguments" in args_record(world) and "hunter22" not in args_record(world)
    world.source = world.source._replace(hides_arguments=True)
    world.site().post("/api/jobs/shop.send/fire", {"args": '["ana@example.org",'})
    assert args_record(world) == "refused: bad arguments"


def test_the_size_of_arguments_is_bounded(world: World) -> None:
    answer = world.site().post("/api/jobs/shop.send/fire", {"args": f'["{"x" * 70_000}"]'})
    assert answer.status == 400 and "longer than 65536 bytes" in answer.json["error"]


def test_without_the_app_in_code_nothing_takes_arguments(tmp_path: Path) -> None:
    world = World(sqlite_url(tmp_path), add_jobs_of_tasks)
    world.source = world.source._replace(apps={})
    answer = world.site().post("/api/jobs/shop.send-daily/fire", {"args": '["a"]'})
    assert answer.status == 409 and "detent dashboard module:app" in answer.json["error"]
    assert world.site().get("/api/jobs/shop.send-daily").json["takes"] is None
    assert world.site().get("/api/queues").json["tasks"] == []
