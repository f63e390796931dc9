"""`detent pause` and `detent resume`: what they write to the store, and which verbs show it."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.cli_world import MANIFEST, Detent, Past, Result
from tests.cli.past_node import PastNode, yesterday

from detent import clock
from detent.cli.options import seconds
from detent.model import Outcome
from detent.stores.memory.store import MemoryStore
from detent.views.formatting import printable
from detent.views.pauses import Pause, find_pauses


@pytest.fixture
def past(folder: Path) -> Past:
    past = Past(folder)
    past.store.set_jobs("demo", 0, {name: job.revision for name, job in past.jobs.items()})
    return past


def paused(past: Past) -> dict[str, Pause]:
    return {name.removeprefix("demo."): pause for name, pause in find_pauses(past.store, ["demo"]).items()}


def events(said: Result) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in said.err.splitlines()]
    return [(line["event"], line["job"]) for line in lines]


# Pausing.


def test_a_pause_says_who_why_and_until_when(detent: Detent, past: Past) -> None:
    said = detent("pause", "money", "--for", "2h", "--reason", "the database moves")
    pause = paused(past)["money"]
    assert said.code == 0
    assert said.out.startswith("demo.money is paused until ")
    assert f"): the database moves (by {pause.by})\n" in said.out
    assert "are skipped" in said.out and "still running" not in said.out
    assert (pause.reason, pause.by.count("@")) == ("the database moves", 1)
    assert pause.until
    assert abs((pause.until - pause.since).total_seconds() - 7200) < 1
    assert events(said) == [("paused", "money")]


def test_every_verb_shows_that_a_job_is_paused(detent: Detent, past: Past) -> None:
    detent("pause", "money", "--reason", "holidays")
    [listed] = [row for row in detent("list", "-o", "json").json if row["job"] == "money"]
    assert (listed["paused"], listed["pause"]["reason"]) == (True, "holidays")
    states = {line.split()[0]: line.split()[-1] for line in detent("list").out.splitlines()}
    assert states["demo.money"] == "paused"
    assert "paused: holidays (by " in detent("show", "money").out
    assert "paused: holidays (by " in detent("next", "money", "-n", "1").out
    assert "paused" not in detent("next", "report", "-n", "1").out
    assert [row["job"] for row in detent("status", "-o", "json").json["paused"]] == ["money"]


def test_only_the_instants_of_a_pause_are_shown_as_paused(detent: Detent, past: Past) -> None:
    detent("pause", "money", "--for", "90m")
    rows = detent("next", "money", "-n", "3", "-o", "json").json
    assert [row["paused"] for row in rows] == [True, clock.now().minute >= 30, False]


def test_an_instant_that_comes_due_meanwhile_is_skipped_with_the_reason(detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    then = PastNode(folder)
    then.at(yesterday("09:58"))
    then.set_jobs()
    detent("pause", "money", "--reason", "the database moves")
    then.live(yesterday("10:00"), Outcome("succeeded"))
    [row] = detent("history", "money", "-o", "json").json
    assert row["outcome"] == "skipped"
    assert row["reason"].startswith("paused: the database moves (by ")


def test_several_jobs_a_pattern_and_all_of_them_can_be_paused(detent: Detent, past: Past) -> None:
    detent("pause", "money", "demo.report")
    assert [*paused(past)] == ["money", "report"]
    detent("resume", "--all")
    detent("pause", "*e*o*")
    assert [*paused(past)] == ["report"]
    said = detent("pause", "--all")
    assert [*paused(past)] == ["backup", "deadbeef", "money", "report"]
    assert "it was already paused since" in said.out


def test_running_work_continues_and_is_named(detent: Detent, past: Past) -> None:
    claim = past.claim(past.put("money", "a"))
    said = detent("pause", "money")
    assert f"{claim.fire.key} is still running" in said.out
    assert past.store.renew([claim]) == [None]


def test_a_pause_can_end_at_a_time(detent: Detent, past: Past) -> None:
    until = clock.now().astimezone() + timedelta(hours=5)
    detent("pause", "money", "--until", f"{until:%Y-%m-%d %H:%M}")
    pause = paused(past)["money"]
    assert pause.until
    assert abs((pause.until - until).total_seconds()) < 62
    passed = clock.now().astimezone() - timedelta(minutes=2)
    detent("pause", "money", "--until", f"{passed:%H:%M}")  # of which today's has passed
    pause = paused(past)["money"]
    assert pause.until
    assert timedelta(hours=22) < pause.until - clock.now() < timedelta(hours=25)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mony"], 'no job "mony"; did you mean "money"?'),
        (["zzz*"], 'no job "zzz*"; there are backup, deadbeef, money and report'),
        (["resting"], "resting is disabled in the manifest"),
        ([], "name jobs, or use --all"),
        (["money", "--all"], "name jobs, or use --all"),
        (["money", "--until", "2020-01-01 00:00"], "it has passed already"),
        (["money", "--until", "soon"], 'bad time "soon"'),
        (["money", "--reason", "x" * 201], "the reason has 201 characters; 200 are allowed"),
    ],
)
def test_a_bad_pause_is_refused(detent: Detent, past: Past, words: list[str], message: str) -> None:
    said = detent("pause", *words)
    assert (said.code, said.out) == (1, "")
    assert message in said.err
    assert paused(past) == {}


def test_without_a_store_nothing_can_be_paused(detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    assert "`detent run` creates it" in detent("pause", "money").err
    assert not (folder / "try.db").exists()


def test_without_a_manifest_jobs_are_named_with_their_app(detent: Detent, past: Past, folder: Path) -> None:
    past.over("money", "a", Outcome("succeeded"))
    (folder / "detent.yaml").unlink()
    named = ("--store", "sqlite:///try.db")
    assert detent("pause", "demo.m*", *named).code == 0
    assert [*paused(past)] == ["money"]
    assert detent("resume", "--all", *named).code == 0
    assert paused(past) == {}


def test_a_job_of_every_host_is_paused_on_all_that_are_known(
    detent: Detent, past: Past, folder: Path
) -> None:
    everywhere = "  - {name: sweep, schedule: '@hourly', command: x, run_on: every}\n"
    (folder / "detent.yaml").write_text(MANIFEST + everywhere)
    assert detent("pause", "sweep").code == 0
    assert [*paused(past)] == [f"sweep/{socket.gethostname()}"]
    past.store.set_jobs("demo", 1, {"demo.sweep/one": "r", "demo.sweep/two.example.org": "r"})
    assert detent("pause", "sweep/two.example.org").code == 0
    assert "sweep/two.example.org" in paused(past) and "sweep/one" not in paused(past)
    detent("resume", "--all")
    assert detent("pause", "demo.sweep").code == 0
    assert [*paused(past)] == ["sweep/one", "sweep/two.example.org"]


@pytest.mark.parametrize("words", [["show", "money"], ["next", "money"]])
def test_verbs_of_the_manifest_work_without_a_readable_store(
    detent: Detent, folder: Path, words: list[str]
) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    (folder / "try.db").mkdir()
    said = detent(*words)
    assert said.code == 0 and "demo.money" in said.out
    assert said.err.startswith("cannot read which jobs are paused: ")


# Resuming.


def test_a_resumed_job_is_no_longer_paused(detent: Detent, past: Past) -> None:
    detent("pause", "money", "report", "--reason", "holidays")
    said = detent("resume", "money", "backup")
    assert said.code == 0
    assert "demo.money is resumed; it was paused: holidays (by " in said.out
    assert "demo.backup was not paused" in said.out
    assert [*paused(past)] == ["report"]
    assert events(said) == [("resumed", "money")]
    assert [row["job"] for row in detent("resume", "report", "-o", "json").json] == ["report"]
    assert detent("resume", "--all").out == "no job was paused\n"


def test_a_job_that_is_gone_can_be_resumed(detent: Detent, past: Past) -> None:
    past.store.note("demo", "pause/demo.gone", "holidays")
    assert detent("resume", "gone").out == "demo.gone is resumed; it was paused: holidays\n"
    assert paused(past) == {}
    assert 'did you mean "money"?' in detent("resume", "moni").err


# Words.


@given(st.text(max_size=40).map(printable), st.from_regex(r"[a-z]+@[a-z.-]+", fullmatch=True))
def test_a_pause_is_read_back_as_it_was_written(reason: str, who: str) -> None:
    store, since = MemoryStore(), clock.now()
    store.note("demo", "pause/demo.money", Pause("", who, reason, since, None).text)
    read = find_pauses(store, ["demo"])["demo.money"]
    assert (read.job, read.by, read.reason) == ("demo.money", who, reason)


@pytest.mark.parametrize(
    ("text", "total"), [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("30d", 2_592_000), ("1d1s", 86_401)]
)
def test_a_duration_is_read(text: str, total: int) -> None:
    assert seconds(text) == total


@pytest.mark.parametrize("text", ["", "2", "0s", "1h1h", "30m1h", "-1h", "1.5h", "99999999d", "2 h"])
def test_a_bad_duration_is_a_usage_error(detent: Detent, past: Past, text: str) -> None:
    said = detent("pause", "money", f"--for={text}")
    assert (said.code, said.out) == (2, "")
    assert "is not a duration such as 2h, 90m, 1h30m or 30d" in said.err
