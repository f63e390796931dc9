"""`detent status`: one screen, for stores with and without problems."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cli.cli_terminal import Terminal, without_colours
from tests.cli.cli_world import MANIFEST, Detent, Past, Result, call, node, until
from tests.cli.past_node import PastNode
from tests.equipment.small_disk import fill, mounted

from detent import clock
from detent.model import Ask, Fire, Outcome, Policy, Report, Verdict
from detent.rules.outcomes import paused
from detent.rules.planning import fire_at
from detent.stores.sqlite.store import SqliteStore

GOOD, BAD = Outcome("succeeded"), Outcome("failed", "exit 3")


@pytest.fixture
def past(folder: Path) -> Past:
    """A store without problems: the jobs are in force, and a node is alive."""
    past = Past(folder)
    past.store.set_jobs("demo", 0, {name: job.revision for name, job in past.jobs.items()})
    past.beat()
    return past


def section(said: Result, title: str) -> list[list[str]]:
    """The rows below a title, as words."""
    blocks = said.out.split("\n\n")
    found = [block.splitlines()[1:] for block in blocks if block.startswith(f"{title} ")]
    return [line.split() for line in found[0]] if found else []


def headline(said: Result) -> str:
    assert said.code == 0
    return said.out.splitlines()[0]


def record(detent: Detent) -> Any:
    return detent("status", "-o", "json").json


# All well.


def test_if_all_is_well_one_line_says_so(detent: Detent, past: Past) -> None:
    past.over("money", "a", GOOD, 50)
    past.claim(past.put("deadbeef", "b"))
    said = detent("status")
    assert re.fullmatch(r"all well: 1 node alive, 1 running, next (in \d+ (min|s)|now)", headline(said))
    [row] = section(said, "running")
    assert (row[0], row[-2:]) == ("demo.deadbeef", ["1", "host.life"])
    assert {row[0] for row in section(said, "next")} == {
        f"demo.{job}" for job in ("backup", "money", "report", "deadbeef")
    }
    assert section(said, "failed in 24 h") == []
    assert [row[0] for row in section(said, "node")] == ["host.life"]
    assert record(detent)["well"] is True


def test_for_programs_it_is_one_object(detent: Detent, past: Past) -> None:
    claim = past.claim(past.put("deadbeef", "b"))
    found = record(detent)
    assert [*found] == [
        "well", "headline", "problems", "time", "running", "next", "failed", "late", "retrying", "paused",
        "nodes", "unserved", "quarantined_until", "store_error",
    ]  # fmt: skip
    assert [(row["fire"], row["attempt"]) for row in found["running"]] == [(claim.fire.key, 1)]
    assert [row["due_at"] for row in found["next"]] == sorted(row["due_at"] for row in found["next"])
    assert [row["node"] for row in found["nodes"]] == ["host.life"]


def test_a_paused_job_is_no_problem_but_is_shown(detent: Detent, past: Past) -> None:
    past.store.note("demo", "pause/demo.money", "holidays (by ana@host)")
    said = detent("status")
    assert "1 job paused" in headline(said)
    assert section(said, "paused") == [["demo.money", "ana@host", "holidays"]]
    assert [row[0] for row in section(said, "next") if row[-1] == "paused"] == ["demo.money"]


# What failed.


def test_a_removed_job_is_not_reported(detent: Detent, past: Past, folder: Path) -> None:
    past.over("money", "a", BAD, 300)
    past.store.note("demo", "pause/demo.money", "holidays (by ana@host)")
    assert "failed" in headline(detent("status"))
    lines = MANIFEST.splitlines(keepends=True)
    (folder / "detent.yaml").write_text("".join(line for line in lines if "money" not in line))
    generation = past.store.look("demo").generation
    kept = {name: job.revision for name, job in past.jobs.items() if name != "demo.money"}
    past.store.set_jobs("demo", generation, kept)
    said = detent("status")
    assert headline(said).startswith("all well")
    assert "demo.money" not in said.out


def test_a_job_that_failed_is_named_with_the_fire_to_look_at(detent: Detent, past: Past) -> None:
    past.over("money", "a", BAD, 300)
    fire = past.over("money", "b", BAD, 100)
    said = detent("status")
    assert re.fullmatch(r"demo\.money failed (now|\d s ago)", headline(said))
    [[job, _, outcome, times, *reason]] = section(said, "failed in 24 h")[:1]
    assert (job, outcome, times, reason) == ("demo.money", "failed", "2", ["exit", "3"])
    assert f"`detent logs {fire.key}` shows its output" in said.out
    [failed] = record(detent)["failed"]
    assert (failed["fire"], failed["times"], failed["succeeded_at"]) == (fire.key, 2, None)


def test_a_job_that_succeeded_since_is_listed_but_is_well(detent: Detent, past: Past) -> None:
    past.over("money", "a", BAD, 300)
    past.over("money", "b", GOOD, 100)
    said = detent("status")
    assert headline(said).startswith("all well")
    assert section(said, "failed in 24 h")[0][3] == "succeeded"
    past.over("backup", "c", paused(""), 50)
    assert headline(detent("status")).startswith("all well")


def test_an_old_failure_is_not_reported(detent: Detent, past: Past) -> None:
    past.over("money", "a", BAD, 90_000)
    assert headline(detent("status")).startswith("all well")


def test_many_failures_are_counted_and_truncated(detent: Detent, folder: Path, past: Past) -> None:
    jobs = "\n".join(f"  - {{name: j{n:02}, schedule: '@yearly', command: x}}" for n in range(14))
    (folder / "detent.yaml").write_text(f"{MANIFEST}{jobs}\n")
    for n in range(12):
        fire = past.put("money", f"t{n}", 100)
        past.finish(past.claim(fire), Verdict(GOOD))
    past.over("money", "a", BAD, 30)
    past.over("backup", "b", Outcome("timed-out", "after 5 s"), 30)
    said = detent("status")
    assert headline(said) == "2 jobs failed and have not succeeded since"
    assert len(section(said, "next")) == 11 and section(said, "next")[-1] == ["and", "8", "more"]


# What is late.


def test_a_fire_that_no_node_starts_is_late_after_5_seconds(detent: Detent, past: Past) -> None:
    past.put("deadbeef", "a")
    assert headline(detent("status")).startswith("all well")
    due_at = clock.now().replace(microsecond=0) - timedelta(seconds=7)
    past.store.put([fire_at(past.jobs["demo.report"], due_at)])
    said = detent("status")
    assert headline(said) == "demo.report is late"
    assert section(said, "late")[0][0] == "demo.report"
    past.store.put([fire_at(past.jobs["demo.report"], due_at - timedelta(seconds=1))])
    [late] = record(detent)["late"]
    assert (late["job"], late["times"]) == ("report", 2)


def test_a_job_is_late_when_it_says_so_and_a_fire_that_queues_for_its_lane_after_a_minute(
    detent: Detent, past: Past
) -> None:
    money = past.jobs["demo.money"]
    patient = money._replace(policy=money.policy._replace(late_after_s=60.0, concurrency="Allow"))
    ago_s = clock.now().replace(microsecond=0) - timedelta(seconds=30)
    queued = past.jobs["demo.report"]._replace(policy=money.policy._replace(concurrency="Queue"))
    holder = fire_at(queued, ago_s)
    past.store.put([holder])
    past.claim(holder)
    past.store.put([fire_at(queued, ago_s + timedelta(seconds=1)), fire_at(patient, ago_s)])
    assert headline(detent("status")).startswith("all well")


def test_a_queue_that_no_living_node_serves_is_a_problem(detent: Detent, past: Past) -> None:
    now = clock.now().replace(microsecond=0)
    past.store.put([fire_at(past.jobs["demo.money"], now)._replace(queue="db")])
    past.store.put([_message("a", "mail"), _message("b", "mail^low"), _message("c", "default")])
    past.store.put([_message("d", "lock/1"), _message("e", "sms")], delay_s=3600)
    said = detent("status")
    assert headline(said).startswith("no live node serves the queues db, mail and sms: start")
    assert section(said, "queue without a node") == [
        ["db", "1", "demo"],
        ["mail", "2", "demo"],
        ["sms", "1", "demo"],
    ]
    past.beat(queues=["default", "db", "mail", "sms"])
    assert headline(detent("status")).startswith("all well")
    assert record(detent)["unserved"] == []


def _message(token: str, queue: str) -> Fire:
    key, policy = f"demo.task@{token}", Policy(concurrency="Allow")
    return Fire(key, "demo.task", clock.now(), queue=queue, policy=policy, origin="push")


def test_a_message_that_waits_for_a_minute_is_late_however_many_are_newer(detent: Detent, past: Past) -> None:
    past.store.put([_message("old", "default")])
    with closing(sqlite3.connect("try.db")) as db:
        db.execute("UPDATE fires SET run_at = run_at - 70")
        db.commit()
    past.store.put([_message(f"new-{n}", "default") for n in range(3000)])
    [late] = record(detent)["late"]
    assert (late["job"], late["reason"]) == ("task", "3,001 messages wait in queue default")


# The store, and whether its nodes live.


def test_a_job_that_runs_often_does_not_hide_one_that_failed(detent: Detent, past: Past) -> None:
    past.over("money", "a", BAD, 3000)
    many = [past.put("deadbeef", f"t{n}", 10) for n in range(2100)]
    claimed = 0
    for number in range(1, 8):  # a busy machine takes too long for all of them at once
        claims = past.store.claim(Ask("demo", "host.other", number, limit=300)).claims
        past.store.finish([Report(claim, Verdict(GOOD)) for claim in claims])
        claimed += len(claims)
    assert claimed == len(many)
    assert headline(detent("status")).startswith("demo.money failed")


def test_a_quarantine_after_a_lost_epoch_is_shown_with_its_end(
    detent: Detent, past: Past, folder: Path
) -> None:
    past.over("money", "a", GOOD, 10)
    past.store.close()
    copy = folder / "copy.db"
    shutil.copy(folder / "try.db", copy)
    copy.replace(folder / "try.db")
    said = detent("status")
    assert re.match(r"QUARANTINE: the store was .*nothing starts before .*in \d+ s", headline(said))
    found = record(detent)
    assert found["well"] is False and found["quarantined_until"] > found["time"]


def test_a_monitor_goes_by_the_exit_code(detent: Detent, past: Past) -> None:
    assert detent("status", "--exit-code").code == 0
    past.over("money", "a", BAD, 10)
    assert detent("status").code == 0
    assert detent("status", "--exit-code").code == detent("status", "--exit-code", "-o", "json").code == 1


def test_a_node_of_this_host_that_was_killed_is_dead_at_once(tmp_path: Path) -> None:
    (tmp_path / "detent.yaml").write_text(MANIFEST)
    with node(tmp_path) as process:
        assert call(tmp_path, "status", "--exit-code").code == 0
        process.kill()
        process.wait()
        said = until("the warden ends", lambda: _unless_well(call(tmp_path, "status", "--exit-code")))
    assert said.out.startswith("NO NODE IS ALIVE")
    assert section(said, "node")[0][-1] == "dead"
    nodes = call(tmp_path, "nodes", "-o", "json").json
    assert [one["alive"] for one in nodes] == [False]  # its heartbeat is less than half a minute old
    assert "no node is alive" in call(tmp_path, "nodes").err


def _unless_well(said: Result) -> Result | None:
    return said if said.code else None


def test_a_node_that_another_app_declared_dead_is_gone_at_once(tmp_path: Path) -> None:
    for app in ("demo", "other"):
        (tmp_path / app).mkdir()
        manifest = MANIFEST.replace("app: demo", f"app: {app}")
        (tmp_path / app / "detent.yaml").write_text(manifest.replace("try.db", "../try.db"))
    store = SqliteStore(tmp_path / "try.db")
    with node(tmp_path / "demo", store) as process, node(tmp_path / "other", store):
        process.kill()
        process.wait()
        until("it is declared dead", lambda: not store.notes("demo", "node/"))
        assert call(tmp_path / "demo", "status").out.startswith("NO NODE IS ALIVE")
        assert call(tmp_path / "other", "status", "--exit-code").code == 0
    store.close()


@pytest.mark.root
def test_a_store_whose_disk_is_full_is_a_problem(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "4m") as disk:
        (disk / "detent.yaml").write_text(MANIFEST)
        past = Past(disk)
        past.store.set_jobs("demo", 0, {name: job.revision for name, job in past.jobs.items()})
        past.beat()
        assert call(disk, "status", "--exit-code").code == 0
        fill(disk / "filler")
        said = call(disk, "status", "--exit-code", "-o", "json")
        assert said.code == 1
        assert said.json["headline"].startswith("THE STORE ACCEPTS NO WRITES: the disk of the store")
        assert "is full" in said.json["store_error"]
        past.store.close()


def test_a_late_fire_names_the_one_that_it_waits_for(detent: Detent, past: Past) -> None:
    holder = past.claim(past.put("money", "a"))
    past.store.put([fire_at(past.jobs["demo.money"], holder.fire.due_at - timedelta(seconds=100))])
    assert section(detent("status"), "late")[0][2:] == ["waits", "for", holder.fire.key]


def test_a_waiting_retry_is_shown_with_its_due_time(detent: Detent, past: Past) -> None:
    fire = past.put("money", "a")
    past.finish(past.claim(fire), Verdict(BAD, again_in_s=50))
    said = detent("status")
    assert headline(said).startswith("all well")
    [[key, _, attempts, *reason]] = section(said, "waiting for a retry")
    assert (key, attempts, reason) == (fire.key, "1", ["exit", "3"])
    [row] = record(detent)["retrying"]
    assert row["again_at"] > row["due_at"]


def test_no_live_node_is_a_problem(detent: Detent, past: Past) -> None:
    past.store.note("demo", "node/host.life", "")
    assert headline(detent("status")) == "NO NODE IS ALIVE: start `detent run`"


def test_an_instant_that_no_node_has_planned_is_late(detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    then = PastNode(folder)
    then.at(clock.now() - timedelta(hours=3))
    then.set_jobs()
    said = detent("status")
    assert re.fullmatch(
        r"NO NODE IS ALIVE, and [23] jobs are due: start `detent run`", headline(said)
    )  # backup may be due in these hours, too
    assert {row[0] for row in section(said, "late")} >= {"demo.report", "demo.money"}
    assert {row["times"] for row in record(detent)["late"]} == {1}
    assert "no node has planned it" in said.out


# Where there is little to see.


def test_before_the_first_fire_it_shows_the_next_instants(detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    said = detent("status")
    assert headline(said) == "nothing has run yet, and no node is alive: start `detent run`"
    assert len(section(said, "next")) == 4
    assert not (folder / "try.db").exists()


def test_a_store_can_be_looked_at_without_its_manifest(detent: Detent, past: Past, folder: Path) -> None:
    past.over("money", "a", BAD, 100)
    (folder / "detent.yaml").unlink()
    said = detent("status", "--store", "sqlite:///try.db")
    assert headline(said).startswith("demo.money failed")
    assert section(said, "next") == []


# On a terminal.


def test_watching_needs_a_terminal(detent: Detent, past: Past) -> None:
    assert "--watch needs a terminal" in detent("status", "--watch").err


def test_it_fits_a_terminal_of_80_columns(past: Past, folder: Path) -> None:
    past.over("money", "a", Outcome("failed", "a long story " * 10), 100)
    past.over("backup", "a", Outcome("timed-out", "after 5 s"), 100)
    past.claim(past.put("deadbeef", "b"))
    past.store.note("demo", "pause/demo.report", "the database moves to another host (by ana@host)")
    shown = Terminal(folder, "status").read_all()
    lines = without_colours(shown).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "2 jobs failed and have not succeeded since"
    assert "\x1b[31mfailed" in shown and "\x1b[31mtimed-out" in shown
    assert any(re.search(r"demo\.backup .*\(in \d+ (h|min|s)\)", line) for line in lines)


def test_watching_redraws_until_it_is_interrupted(past: Past, folder: Path) -> None:
    terminal = Terminal(folder, "status", "--watch")
    assert "all well" in terminal.read_until("all well.*?demo\\.money")
    past.over("money", "a", BAD, 10)
    terminal.read_until("demo\\.money failed")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.read_all().rstrip().endswith("\x1b[?1049l")  # the terminal is as it was
    assert terminal.process.returncode == 130
