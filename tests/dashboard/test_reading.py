"""The routes that read: what each returns, and that every limit is one."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.dashboard.world import READER, Site, World, run

from detent.dashboard.picture import EACH
from detent.model import Outcome, Query
from detent.runners.lifeline import TAIL_MAX

WELL = Outcome("succeeded")


def path(key: str, rest: str = "") -> str:
    return f"/api/fires/{quote(key, safe='')}{rest}"


def test_now_shows_jobs_marks_running_and_what_needs_attention(world: World) -> None:
    failed, running = world.run(), world.put()
    world.claim()
    found = world.site().get("/api/now").json
    assert found["app"] == "shop" and found["apps"] == ["shop"] and found["stale"] is None
    assert found["headline"] == {"ok": False, "text": found["problems"][0]} | {
        "text": "; ".join(found["problems"])
    }
    tick = found["jobs"]["shop.tick"]
    assert tick["schedule"] == "@every 10s" and tick["spark"] == "fr" and tick["state"] == "running, failing"
    assert (
        tick["last"]["fire"] == failed
        and tick["last"]["outcome"] == "failed"
        and tick["succeeded_at"] is None
    )
    assert found["jobs"]["shop.gone"]["state"] == "disabled" and "shop.backup" in found["jobs"]
    assert found["marks"][failed]["attempts"][0][2] == "failed"
    assert found["marks"][running]["state"] == "running" and found["marks"][running]["attempts"][0][1] is None
    assert [row["fire"] for row in found["running"]] == [running] and found["running_count"] == 1
    assert {"what": "failing", "job": "shop.tick", "fire": failed}.items() <= found["attention"][0].items()
    assert found["jobs"]["shop.tick"]["next_due_at"] and found["soon"]["shop.tick"][0][1] == 10
    assert found["nodes"][0]["node"] == "host.1"


def test_a_job_that_succeeded_since_is_not_failing(world: World) -> None:
    world.run()
    world.run(outcome=WELL)
    found = world.site().get("/api/now").json
    assert found["jobs"]["shop.tick"]["state"] == "" and found["jobs"]["shop.tick"]["spark"] == "fs"
    assert found["jobs"]["shop.tick"]["succeeded_at"] is not None


def test_a_spark_has_the_newest_fires(world: World) -> None:
    for _ in range(EACH + 2):
        world.run(outcome=WELL)
    assert world.site().get("/api/now").json["jobs"]["shop.tick"]["spark"] == "s" * EACH


def test_jobs_come_in_pages(world: World) -> None:
    site, found, after = world.site(), [], ""
    while after is not None:
        page = site.get(f"/api/jobs?limit=2&after={after}").json
        found, after = found + [one["name"] for one in page["jobs"]], page["after"]
    assert found == ["shop.backup", "shop.gone", "shop.tick"]


def test_a_job_has_its_definition_its_policy_and_what_one_can_do(world: World) -> None:
    found = world.site().get("/api/jobs/shop.backup").json
    assert found["description"] == "dump the database" and found["timezone"] == "Europe/Berlin"
    assert ["schedule", "0 2 * * * Europe/Berlin"] in found["fields"] and found["policy"]["max_attempts"] == 1
    assert found["words"] == "at 02:00 every day (Europe/Berlin)" and found["can"] == ["fire", "pause"]
    assert world.site(READER).get("/api/jobs/shop.backup").json["can"] == []
    assert world.site().get("/api/jobs/shop.gone").json["can"] == ["pause"]


@pytest.mark.parametrize(
    "name", ["backup", "shop", "shop.back", "shop.backupx", "other.backup", "..%2F..%2Fetc"]
)
def test_names_are_matched_whole(world: World, name: str) -> None:
    answer = world.site().get(f"/api/jobs/{name}")
    assert answer.status == 404 and "error" in answer.json


def test_the_next_instants_have_local_times(world: World) -> None:
    found = world.site().get("/api/jobs/shop.backup/next?limit=3").json
    assert len(found) == 3 and {one["local"][11:16] for one in found} == {"02:00"}
    assert world.site().get("/api/jobs/shop.gone/next").json == []


def test_fires_are_filtered_and_paged(world: World) -> None:
    failed = [world.run() for _ in range(5)]
    well = world.run("shop.backup", WELL)
    site = world.site()

    def keys(query: str) -> list[str]:
        found: list[str] = []
        before: str | None = ""
        while before is not None:
            page = site.get(f"/api/fires?limit=2&{query}&before={quote(before)}").json
            found, before = found + [row["fire"] for row in page["fires"]], page["before"]
        return found

    assert sorted(keys("")) == sorted([*failed, well])
    assert sorted(keys("job=shop.tick")) == sorted(failed) == sorted(keys("outcome=failed"))
    assert keys("outcome=succeeded,missed") == [well] == keys("job=shop.backup")
    assert keys("node=host.1&queue=default") and keys("node=other") == [] and keys("queue=mail") == []
    assert keys("from=2099-01-01T00:00:00Z") == [] and keys("to=2001-01-01T00:00:00Z") == []


@pytest.mark.parametrize(
    "query",
    [
        "/api/fires?limit=501", "/api/fires?limit=0", "/api/fires?limit=x", "/api/fires?outcome=bad",
        "/api/fires?x=1", "/api/fires?before=x", "/api/fires?before=2026-01-01%20k", "/api/fires?state=x",
        "/api/fires?from=yesterday",
        "/api/fires?to=0001-01-01T00:00:00Z", "/api/now?window=5", "/api/now?window=%C2%B2", "/api/now?x=",
        "/api/jobs?limit=1000", "/api/jobs/shop.tick/next?limit=101", "/api/tally?hours=49",
        "/api/audit?limit=501",
        f"/api/fires?job={'x' * 1001}", f"/api/now?since={'x' * 9000}", "/api/events?window=1",
    ],
)  # fmt: skip
def test_every_parameter_is_bounded(world: World, query: str) -> None:
    answer = world.site().get(query)
    assert answer.status == 400 and answer.json["error"]


def test_a_fire_has_its_attempts_steps_and_what_one_can_do(world: World) -> None:
    key = world.run()
    found = world.site().get(path(key)).json
    assert (
        found["fire"] == key and found["attempts"][0]["reason"] == "exit code 3" and found["can"] == ["again"]
    )
    assert [name for name, at in found["steps"] if at] == ["due", "started", "ended"] and found[
        "late_ms"
    ] >= 0
    assert world.site(READER).get(path(key)).json["can"] == []
    world.put()
    running = world.claim()[0].fire.key
    assert world.site().get(path(running)).json["can"] == ["kill"]
    assert world.site().get(path("shop.tick@2001-01-01T00:00:00Z")).status == 404


def test_why_says_what_happened(world: World) -> None:
    found = world.site().get(path(world.run(), "/why")).json
    assert found["reasons"][0] == "it failed: exit code 3" and "on node host.1" in found["reasons"][1]


def test_output_is_the_last_part_with_its_controls(world: World) -> None:
    key = world.run(output=b"\x1b[31mred\x1b[0m \xff")
    found = world.site().get(path(key, "/output")).json
    assert found == {
        "fire": key, "attempt": 1, "state": "over", "note": None, "output": "\x1b[31mred\x1b[0m �",
        "cut": False,
    }  # fmt: skip
    long = world.run(output=b"x" * TAIL_MAX)
    assert world.site().get(path(long, "/output?attempt=1")).json["cut"] is True
    assert world.site().get(path(long, "/output?attempt=2")).status == 404
    saved = world.site().get(path(key, "/output?download=1"))
    assert (
        saved.headers["content-type"].startswith("text/plain")
        and "attachment" in saved.headers["content-disposition"]
    )
    world.put()
    waiting = world.claim()[0].fire.key
    elsewhere = world.site().get(path(waiting, "/output")).json
    assert (
        elsewhere["output"] is None
        and elsewhere["state"] == "running"
        and "another host" not in elsewhere["note"]
    )


def test_queues_show_sizes_and_who_serves_them(world: World) -> None:
    world.kill_letter()
    world.app.queue("mail").limit(10, per=60)
    world.app.task_named("send").push("x@y")
    found = world.site().get("/api/queues").json
    assert world.site().get("/api/now").json["messages"] == {"waiting": 1, "dead": 1}
    mail = next(one for one in found["queues"] if one["queue"] == "mail")
    assert (mail["pending"], mail["dead"], mail["served"]) == (1, 1, 1) and mail["rate"]["most"] == 10


def test_dead_letters_have_masked_arguments(world: World) -> None:
    key = world.kill_letter()
    found = world.site().get("/api/queues/mail/dead").json
    assert [one["fire"] for one in found["dead"]] == [key] and found["before"] is None
    assert "no address" in found["dead"][0]["reason"] and "hunter22" not in json.dumps(found)
    assert found["dead"][0]["arguments"]["password"] == "***"
    details = world.site().get(path(key)).json
    assert "hunter22" not in json.dumps(details) and details["can"] == ["retry", "forget"]
    world.source = world.source._replace(hides_arguments=True)
    assert world.site().get("/api/queues/mail/dead").json["dead"][0]["arguments"] is None
    assert world.site().get(path(key)).json["arguments"] is None


def test_nodes_come_with_a_diagnosis_of_the_store(world: World) -> None:
    found = world.site().get("/api/nodes").json
    assert found["nodes"][0]["queues"] == ["default", "mail"]
    assert found["store"]["kind"] == "sqlite" and found["store"]["diagnosis"][0]["what"] == "durability"


def test_a_tally_counts_ended_fires(world: World) -> None:
    world.run()
    found = world.site().get("/api/tally?hours=1").json
    assert found["step_s"] == 60 and isinstance(found["rows"], list)


def test_an_app_that_the_store_does_not_have_is_not_found(world: World) -> None:
    for route in ("now", "events", "jobs", "fires", "queues", "nodes", "tally", "audit"):
        assert world.site().get(f"/api/{route}?app=other").status == 404


def test_pages_name_the_root_and_the_user(world: World) -> None:
    page = world.site().get("/jobs/shop.tick")
    text = page.body.decode()
    assert (
        page.status == 200
        and 'data-user="ana"' in text
        and 'data-role="operate"' in text
        and "{{" not in text
    )


def test_only_files_of_the_front_end_are_served(world: World) -> None:
    site = world.site()
    file = site.get("/static/app.js", accept_encoding="gzip")
    assert file.status == 200 and file.headers["content-encoding"] == "gzip"
    assert site.get("/static/app.js", if_none_match=file.headers["etag"]).status == 304
    for name in (
        "../gate.py",
        "..%2Fgate.py",
        "%2e%2e/gate.py",
        "/etc/passwd",
        "",
        "screens",
        "no.js",
        "%00",
    ):
        assert site.get(f"/static/{name}").status == 404


def test_monitors_need_no_credentials_and_learn_one_word(world: World) -> None:
    nobody = world.site(None)
    assert nobody.get("/healthz").body == b"ok" and nobody.get("/readyz", host="10.0.0.7").body == b"ok"


def test_metrics_of_the_whole_store(world: World) -> None:
    answer = world.site().get("/metrics")
    assert answer.status == 200 and b'detent_nodes{app="shop"} 1.0' in answer.body
    assert world.site(None).get("/metrics").status == 401


def test_no_answer_writes_to_the_store(world: World, tmp_path: Path) -> None:
    """A second connection holds the write lock; every route still answers."""
    import sqlite3

    key = world.run()
    with sqlite3.connect(tmp_path / "shop.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        site = world.site()
        for route in ("now", "jobs", "jobs/shop.tick", "fires", "queues", "nodes", "tally", "audit"):
            assert site.get(f"/api/{route}").status == 200, route
        assert site.get(path(key)).status == site.get(path(key, "/why")).status == 200
        other.execute("ROLLBACK")


def test_a_stream_sends_the_document_and_then_what_changed(world: World) -> None:
    site = world.site()

    async def watch() -> tuple[dict[str, Any], dict[str, Any], str]:
        stream = site.open("GET", "/api/events")
        start = await stream.next()
        assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
        assert (await stream.next())["body"] == b"retry: 2000\n\n"
        _, first = await stream.event()
        key = world.put()
        while True:
            _, delta = await stream.event()
            assert delta["since"] is not None
            if key in delta.get("marks", {}):
                await stream.close()
                return first, delta, key

    first, delta, key = run(watch())
    assert (
        first["since"] is None
        and delta["marks"][key]["job"] == "shop.tick"
        and "shop.backup" not in delta.get("jobs", {})
    )


def test_a_poll_with_a_version_returns_what_changed(world: World) -> None:
    site = world.site()

    async def poll() -> tuple[dict[str, Any], dict[str, Any]]:
        first = (await site.ask("GET", "/api/now")).json
        return first, (await site.ask("GET", f"/api/now?since={first['version']}")).json

    first, second = run(poll())
    assert second["since"] == first["version"] and len(json.dumps(second)) < len(json.dumps(first)) / 2


def test_a_site_without_a_manifest_shows_what_the_store_knows(world: World) -> None:
    world.run()
    world.source = world.source._replace(manifests={}, apps={})
    found = world.site().get("/api/now").json
    assert found["jobs"]["shop.tick"]["schedule"] == "" and found["soon"] == {}
    assert world.site().get("/api/jobs/shop.tick").json["fields"] == []
    assert world.store.find(Query(app="shop"))


def test_errors_are_one_sentence(world: World) -> None:
    site: Site = world.site()
    for target, status in (("/nothing", 404), ("/api/nothing", 404), ("/api/jobs/shop.tick/fire", 404)):
        answer = site.get(target)
        assert (answer.status, [*answer.json]) == (status, ["error"])
