"""`detent nodes`: the fields of heartbeats, and warnings about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.cli_world import MANIFEST, Detent, Past, Result, call, node

from detent import clock
from detent.node.holders import JobList
from detent.rules.fingerprint import fingerprint


@pytest.fixture
def past(folder: Path) -> Past:
    past = Past(folder)
    past.store.set_jobs("demo", 0, {name: job.revision for name, job in past.jobs.items()})
    return past


def beat(past: Past, life: str, **said: Any) -> None:
    ours = fingerprint((name, job.revision) for name, job in past.jobs.items())
    about = {
        "host": "elsewhere", "queues": ["default"], "pid": 7, "version": "9.9", "jobs": 4,
        "fingerprint": ours, "began": clock.wall() - 7300, "wall": clock.wall(), **said,
    }  # fmt: skip
    past.store.note("demo", f"node/{life}", json.dumps(about), 30)


def rows(said: Result) -> list[list[str]]:
    return [line.split() for line in said.out.splitlines()]


def test_a_node_says_what_it_is_and_serves(detent: Detent, past: Past) -> None:
    beat(past, "host.life", queues=["default", "db"])
    past.claim(past.put("money", "a"))
    [record] = detent("nodes", "-o", "json").json
    assert record.pop("up_since").endswith("Z") and record.pop("heard_at").endswith("Z")
    assert abs(record.pop("clock_offset_ms")) < 1000
    assert record.pop("fingerprint")
    assert record == {
        "app": "demo", "node": "host.life", "alive": True, "host": "elsewhere", "pid": 7, "version": "9.9",
        "queues": ["default", "db"], "jobs": 4, "in_force": True, "running": 1,
    }  # fmt: skip
    heads, row = rows(detent("nodes"))
    assert " ".join(heads) == "node up heard running jobs fingerprint clock queues pid version"
    assert (row[0], row[3], row[4], row[-3:]) == ("host.life", "1", "4", ["default,db", "7", "9.9"])


def test_a_node_with_older_definitions_is_marked_and_explained(detent: Detent, past: Past) -> None:
    beat(past, "a.life")
    other = JobList({"demo.elsewhere": past.jobs["demo.money"]})
    older = JobList({"demo.money": past.jobs["demo.money"]._replace(revision="older")})
    for one in (other, older):
        past.store.note("demo", "jobs/" + one.digest, one.text, 30)
    beat(past, "c.life", list=other.digest)
    assert "superseded" not in detent("nodes").out, "different jobs stand beside each other"
    beat(past, "b.life", list=older.digest)
    said = detent("nodes")
    marked = [line.split()[0] for line in said.out.splitlines() if line.endswith("superseded")]
    assert marked == ["b.life"]
    assert said.out.splitlines()[-1].startswith(
        "b.life holds older definitions of jobs than the newest deploy"
    )
    assert [record["in_force"] for record in detent("nodes", "-o", "json").json] == [True, False, True]
    assert "b.life holds older definitions" in detent("status").out.splitlines()[0]


@pytest.mark.parametrize(("off_s", "direction"), [(9, "ahead of"), (-9, "behind"), (1, "")])
def test_a_wrong_clock_is_reported(detent: Detent, past: Past, off_s: int, direction: str) -> None:
    beat(past, "a.life", wall=clock.wall() + off_s)
    lines = detent("nodes").out.splitlines()
    assert len(lines) == (3 if direction else 2)
    assert not direction or (f"{direction} the store's" in lines[2] and "the clock of a.life" in lines[2])


def test_a_heartbeat_of_another_version_is_listed_with_what_it_says(detent: Detent, past: Past) -> None:
    past.store.note("demo", "node/new.life", '{"host": 7, "pid": "x", "wall": true, "jobs": null}', 30)
    past.store.note("demo", "node/odd.life", "not json", 30)
    assert [record["node"] for record in detent("nodes", "-o", "json").json] == ["new.life", "odd.life"]
    assert detent("nodes").code == 0


def test_no_live_node_is_reported(detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    assert detent("nodes") == (0, "", 'no store at "sqlite:///try.db" yet: nothing has run\n')
    Past(folder).store.look("demo")
    assert detent("nodes") == (0, "", "no node is alive: start `detent run`\n")


def test_the_fingerprint_is_of_the_jobs_and_not_of_their_order_or_host() -> None:
    one = fingerprint([("a.b", "1"), ("a.c/host", "2")])
    assert one == fingerprint([("a.c/other", "2"), ("a.b", "1")])
    assert one != fingerprint([("a.b", "1"), ("a.c/host", "3")])
    assert fingerprint([]) == ""


def test_a_real_node_reports_every_field(tmp_path: Path) -> None:
    (tmp_path / "detent.yaml").write_text(MANIFEST)
    with node(tmp_path) as process:
        [record] = call(tmp_path, "nodes", "-o", "json").json
    assert (record["pid"], record["jobs"], record["queues"]) == (process.pid, 4, ["default"])
    assert record["in_force"] and record["up_since"] and record["version"]
    assert len(record["fingerprint"]) == 12
    assert abs(record["clock_offset_ms"]) < 60_000
