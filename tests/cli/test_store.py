"""The verbs that read a store, with a known history."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from tests.cli.cli_terminal import Terminal, without_colours
from tests.cli.cli_world import MANIFEST, Detent, Past, call, until

from detent import clock
from detent.model import Ask, Claim, Outcome, Verdict
from detent.rules.planning import fire_at

GOOD = Outcome("succeeded")
BAD = Outcome("failed", "exit 3")


@pytest.fixture
def past(folder: Path) -> Past:
    return Past(folder)


# Nothing yet.


@pytest.mark.parametrize("words", [["history"], ["history", "backup"], ["list"]])
def test_looking_does_not_create_a_store(detent: Detent, folder: Path, words: list[str]) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    said = detent(*words)
    assert said.code == 0
    assert said.err == 'no store at "sqlite:///try.db" yet: nothing has run\n'
    assert not (folder / "try.db").exists()
    assert detent("history", "-o", "json").json == []


@pytest.mark.parametrize("words", [["logs", "backup"], ["kill", "backup"], ["fire", "backup"]])
def test_without_a_store_there_is_nothing_to_act_on(detent: Detent, folder: Path, words: list[str]) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    said = detent(*words)
    assert (said.code, said.out) == (1, "")
    assert "`detent run`" in said.err
    assert not (folder / "try.db").exists()


def test_a_store_without_fires_says_so(detent: Detent, past: Past) -> None:
    past.beat()
    assert detent("history") == (0, "", "no fires yet\n")
    assert "has no fires yet" in detent("logs", "backup").err


# History.


def test_history_is_newest_first_and_complete(detent: Detent, past: Past) -> None:
    past.over("backup", "a", GOOD, 200)
    past.over("money", "b", BAD, 100)
    past.claim(past.put("report", "c", 10))
    heads, *rows = detent("history").out.splitlines()
    assert heads.split() == ["fire", "due", "outcome", "attempts", "took", "node", "reason"]
    assert [row.split()[2] for row in rows] == ["running", "failed", "succeeded"]
    assert rows[1].split()[3:] == ["1", "1.5", "s", "host.life", "exit", "3"]
    assert len(detent("history", "-n", "1").out.splitlines()) == 2
    assert len(detent("history", "money").out.splitlines()) == 2


def test_history_for_programs_has_the_words_of_the_contract(detent: Detent, past: Past) -> None:
    fire = past.over("money", "b", BAD, 100)
    [row] = detent("history", "demo.money", "-o", "json").json
    [attempt] = row.pop("attempts")
    assert attempt.pop("started_at").endswith("Z") and attempt.pop("ended_at").endswith("Z")
    assert row.pop("over_at").endswith("Z") and row.pop("fence") == attempt.pop("fence")
    assert row == {
        "app": "demo",
        "job": "money",
        "fire": fire.key,
        "run_id": fire.run_id,
        "origin": "manual",
        "due_at": f"{fire.due_at:%Y-%m-%dT%H:%M:%SZ}",
        "first_at": None,
        "instants": 1,
        "state": "over",
        "outcome": "failed",
        "reason": "exit 3",
        "cause": "work",
        "node": "host.life",
        "took_ms": 1500,
    }
    assert attempt == {
        "attempt": 1,
        "node": "host.life",
        "outcome": "failed",
        "reason": "exit 3",
        "cause": "work",
        "status": 3,
        "took_ms": 1500,
        "result": None,
    }


def test_hooks_are_hidden_unless_asked_for(detent: Detent, past: Past) -> None:
    past.hook(past.over("backup", "a", BAD, 50))
    assert len(detent("history", "-o", "json").json) == 1
    assert [row["origin"] for row in detent("history", "--hooks", "-o", "json").json] == ["hook", "manual"]


def test_planned_fires_are_not_in_the_history(detent: Detent, past: Past) -> None:
    past.put("backup", "later", -90)
    assert detent("history").out == ""


def test_a_span_is_one_row_with_its_count(detent: Detent, past: Past) -> None:
    last = fire_at(past.jobs["demo.money"], clock.now().replace(microsecond=0) - timedelta(seconds=10))
    first_at = last.due_at - timedelta(hours=6)
    past.store.put([last._replace(first_at=first_at, instants=7, start_by=last.due_at)])
    ask = Ask("demo", "other.life", 1, limit=10)
    [claim] = [claim for claim in past.store.claim(ask).claims if claim.fire.instants > 1]
    past.finish(claim, Verdict(Outcome("missed", "too late")))
    [row] = detent("history", "money", "-o", "json").json
    assert (row["outcome"], row["instants"]) == ("missed", 7)
    assert f"too late; 7 instants since {first_at:%Y-%m-%dT%H:%M:%SZ}" in detent("history", "money").out


def test_a_waiting_retry_shows_when_it_is_due_again(detent: Detent, past: Past) -> None:
    past.finish(past.claim(past.put("backup", "a")), Verdict(BAD, again_in_s=50))
    line = detent("history").out.splitlines()[1]
    assert "waiting" in line and "failed, exit 3; retried in" in line
    [row] = detent("history", "-o", "json").json
    assert (row["state"], row["outcome"], row["attempts"][0]["outcome"]) == ("pending", None, "failed")


def test_a_store_can_be_read_without_its_manifest(detent: Detent, past: Past, folder: Path) -> None:
    fire = past.over("backup", "a", GOOD, 20, tail=b"hello\n")
    (folder / "detent.yaml").unlink()
    named = ("--store", "sqlite:///try.db")
    assert detent("history", *named, "-o", "json").json[0]["fire"] == fire.key
    assert detent("logs", "demo.backup", *named).out == "hello\n"
    assert 'did you mean "demo.backup"?' in detent("logs", "demo.bakup", *named).err


# List.


def test_list_shows_the_state_of_each_job(detent: Detent, past: Past) -> None:
    past.over("backup", "a", BAD, 100)
    past.over("backup", "b", GOOD, 50)
    past.claim(past.put("money", "c"))
    past.store.note("demo", "pause/demo.report", "holidays")
    rows = {row["job"]: row for row in detent("list", "-o", "json").json}
    assert (rows["backup"]["last"]["outcome"], rows["backup"]["running"]) == ("succeeded", 0)
    assert rows["backup"]["next_due_at"].endswith(":30:00Z")
    assert (rows["money"]["running"], rows["money"]["last"]) == (1, None)
    assert (rows["report"]["paused"], rows["report"]["enabled"]) == (True, True)
    assert (rows["resting"]["enabled"], rows["resting"]["next_due_at"]) == (False, None)
    states = {line.split()[0]: line.split()[-1] for line in detent("list").out.splitlines()}
    assert (states["demo.money"], states["demo.report"], states["demo.resting"]) == (
        "running", "paused", "disabled",
    )  # fmt: skip


# Which fire is meant.


def test_a_fire_is_found_by_key_run_id_job_and_parts(detent: Detent, past: Past) -> None:
    past.over("money", "old", GOOD, 3_000, tail=b"old\n")
    fire = past.over("money", "abc", GOOD, 1_000, tail=b"new\n")
    past.over("backup", "abc", GOOD, 1_000, tail=b"other\n")
    short = fire.key.removeprefix("demo.")
    for name in (
        fire.key,
        short,
        fire.run_id,
        fire.run_id[:22],
        "money",
        "demo.money",
        fire.key[:-2],
        short[:-5],
    ):
        assert detent("logs", name).out == "new\n", name


def test_a_hook_is_found_by_its_run_id(detent: Detent, past: Past) -> None:
    hook = past.hook(past.over("backup", "a", BAD, 1_000))
    assert detent("logs", hook.run_id, "-o", "json").json["fire"] == hook.key


def test_a_part_that_fits_a_fire_and_its_hook_means_the_fire(detent: Detent, past: Past) -> None:
    fire = past.over("backup", "abc", BAD, 100)
    past.hook(fire)
    assert detent("logs", fire.key[:-1], "-o", "json").json["fire"] == fire.key


def test_a_part_that_fits_several_fires_names_them(detent: Detent, past: Past) -> None:
    fires = [past.over("money", token, GOOD, ago) for token, ago in (("a", 50), ("b", 50))]
    said = detent("logs", "money@20")
    assert said.code == 1
    assert all(fire.key in said.err for fire in fires)


def test_a_job_whose_name_looks_like_a_run_id_is_a_job(detent: Detent, past: Past) -> None:
    past.over("deadbeef", "a", GOOD, 50, tail=b"cow\n")
    assert detent("logs", "deadbeef").out == "cow\n"


@pytest.mark.parametrize("name", ["backup@2020", "0198f0a2-0000", "ffffffff-ffff-7fff-8fff-ffffffffffff"])
def test_a_fire_that_is_not_there_is_not_found(detent: Detent, past: Past, name: str) -> None:
    past.over("money", "a", GOOD, 50)
    said = detent("logs", name)
    assert (said.code, said.err) == (1, f'detent: no fire "{name}"; `detent history` lists them\n')


# Logs.


def test_logs_have_the_output_alone_on_stdout(detent: Detent, past: Past) -> None:
    fire = past.put("money", "a", 5)
    past.finish(past.claim(fire), Verdict(BAD, again_in_s=0), b"first\n", status=3)
    past.finish(past.claim(fire), Verdict(GOOD), b"second\xff\n", status=0)
    said = detent("logs", fire.key)
    assert said.out == "first\nsecond\\xff\n"  # the byte itself; pytest shows it so
    assert [line.split()[0] for line in said.err.splitlines()] == ["attempt", "attempt", "attempt", fire.key]
    assert "succeeded: 2 attempts" in said.err
    record = detent("logs", fire.key, "-o", "json").json
    assert [attempt["output"] for attempt in record["attempts"]] == [
        "first\n",
        "second\N{REPLACEMENT CHARACTER}\n",
    ]


def test_a_job_means_its_newest_fire_that_began(detent: Detent, past: Past) -> None:
    past.over("money", "ran", GOOD, 100, tail=b"ran\n")
    past.put("money", "waits", 50)
    assert detent("logs", "money").out == "ran\n"


def test_output_on_another_host_is_not_looked_for_here(detent: Detent, past: Past) -> None:
    past.claim(past.put("money", "a"))
    past.beat()
    said = detent("logs", "money")
    assert (said.code, said.out) == (0, "")
    assert "its output is on another host" in said.err


# Kill.


def test_killing_a_fire_that_waits_ends_it(detent: Detent, past: Past) -> None:
    fire = past.put("money", "a")
    said = detent("kill", "money", "-o", "json")
    assert (said.code, said.json["state"], said.json["outcome"]) == (0, "over", "cancelled")
    assert said.json["reason"].startswith("killed by ")
    again = detent("kill", fire.key)
    assert again.code == 1
    assert f"{fire.key} is over already: cancelled" in again.err


def test_killing_a_running_fire_asks_its_node_to_stop_it(detent: Detent, past: Past) -> None:
    claim = past.claim(past.put("money", "a"))
    said = detent("kill", claim.fire.key)
    assert (said.code, said.err) == (0, f"asked host.life to stop {claim.fire.key}\n")
    [stop] = past.store.renew([claim])
    assert stop and stop.kind == "cancelled"
    assert "stopping" in detent("history").out


def test_a_job_without_an_open_fire_cannot_be_killed(detent: Detent, past: Past) -> None:
    past.over("money", "a", GOOD, 50)
    assert detent("kill", "money").err == "detent: no fire of demo.money is running or waiting\n"


def test_killing_a_job_with_several_running_fires_needs_a_key(detent: Detent, past: Past) -> None:
    fires = [past.claim(past.put("deadbeef", token)).fire for token in "ab"]
    said = detent("kill", "deadbeef")
    assert said.code == 1
    assert all(fire.key in said.err for fire in fires)
    assert detent("kill", fires[0].key).code == 0


def test_waiting_for_a_kill_ends_when_the_node_has_settled_it(detent: Detent, past: Past) -> None:
    claim = past.claim(past.put("money", "a"))
    past.beat()
    settling = threading.Thread(target=_settle_when_stopped, args=(past, claim))
    settling.start()
    said = detent("kill", "money", "--wait", "-o", "json")
    settling.join()
    assert (said.code, said.json["state"], said.json["outcome"]) == (0, "over", "cancelled")


def _settle_when_stopped(past: Past, claim: Claim) -> None:
    stop = until("the store asks it to stop", lambda: past.store.renew([claim])[0])
    past.finish(claim, Verdict(stop))


# Fire.


def test_a_fire_that_no_node_would_run_is_not_put(detent: Detent, past: Past) -> None:
    past.over("money", "a", GOOD, 50)
    said = detent("fire", "money")
    assert said.code == 1
    assert "no node of demo is alive" in said.err
    past.beat(queues=["db"])
    assert 'no live node serves its queue "default"' in detent("fire", "money").err
    assert len(detent("history", "-o", "json").json) == 1


def test_a_fire_is_put_for_a_living_node(detent: Detent, past: Past) -> None:
    past.beat()
    key = detent("fire", "demo.money").out.strip()
    [row] = detent("history", "-o", "json").json
    assert (row["fire"], row["origin"], row["state"]) == (key, "manual", "pending")
    assert "is disabled" in detent("fire", "resting").err


def test_a_heartbeat_of_another_version_still_counts_as_one(detent: Detent, past: Past) -> None:
    past.store.note("demo", "node/new.life", "not json", 30)
    past.beat()
    assert detent("fire", "money").code == 0


def test_history_on_a_narrow_terminal_leaves_columns_out_instead_of_breaking_them(
    past: Past, folder: Path
) -> None:
    past.over("money", "a", Outcome("failed", "exit 3"), 100)
    past.over("backup", "b", Outcome("succeeded", ""), 50)
    lines = without_colours(Terminal(folder, "history").read_all()).splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= 80
    assert lines[0].split() == ["fire", "outcome", "took", "reason"]
    assert lines[2].split()[1:3] == ["failed", "1.5"] and lines[2].endswith("exit 3")


def test_history_without_reasons_has_room_for_when_a_fire_was_due(past: Past, folder: Path) -> None:
    past.over("money", "a", GOOD, 100)
    lines = without_colours(Terminal(folder, "history").read_all()).splitlines()
    assert lines[0].split() == ["fire", "due", "outcome", "took"]
    assert len(lines) == 2 and max(map(len, lines)) <= 80


def test_history_on_a_narrow_terminal_breaks_only_a_long_reason(past: Past, folder: Path) -> None:
    past.over("money", "a", Outcome("failed", "a long story " * 5), 100)
    lines = without_colours(Terminal(folder, "history").read_all()).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["fire", "outcome", "took", "reason"]
    assert all(not line[:40].strip() for line in lines[2:])


SHOP = """
import detent
app = detent.Detent("shop", store="sqlite:///shop.db")
@app.task()
def send(to: str) -> None: ...
"""


@pytest.mark.parametrize("name", ["send", "shop.send"])
def test_history_takes_the_name_of_a_task_that_has_messages(folder: Path, name: str) -> None:
    (folder / "shop.py").write_text(SHOP)
    assert call(folder, "queue", "shop:app", "push", "send", '["a"]').code == 0
    said = call(folder, "history", name, "-f", "shop:app")
    assert (said.code, said.err) == (0, "")
    assert "shop.send#" in said.out


def test_a_job_that_is_not_in_a_manifest_without_jobs_is_a_whole_sentence(folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP)
    said = call(folder, "history", "sned", "-f", "shop:app")
    assert said.err == 'detent: no job "sned" in the manifest, which has no jobs\n'
