"""`detent why`: the outcome of a fire, or why there was none, with a known history."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cli.cli_world import Detent
from tests.cli.past_node import PastNode, yesterday

from detent.cli.options import parse_time
from detent.errors import UsageError
from detent.model import Fire, Outcome, Policy, Row
from detent.rules.outcomes import (
    NEWER_INSTANT,
    contended,
    lane_awaited,
    lane_taken,
    node_lost,
    paused,
    replaced_by,
)
from detent.rules.planning import manual_fire
from detent.views.why_reasons import outcome_sentences

MANIFEST = """
version: 2
app: demo
store: sqlite:///try.db
jobs:
  - {name: nightly, schedule: "30 2 * * *", command: 'true'}
  - {name: berlin, schedule: "30 2 * * *", timezone: Europe/Berlin, command: 'true'}
  - {name: skipping, schedule: "30 2 * * *", timezone: Europe/Berlin, command: 'true', policy: {dst: skip}}
  - {name: both, schedules: ["0 9 * * MON-FRI", "@every 1h"], command: 'true'}
  - {name: often, schedule: "*/5 * * * *", command: 'true', policy: {catch_up: skip}}
  - {name: bounded, schedule: "@hourly", command: 'true', starts_at: "2026-06-01T00:00Z"}
  - {name: resting, schedule: "@daily", command: 'true', enabled: false}
"""
NOW = datetime(2026, 11, 15, 10, 20, 30)
GOOD, BAD = Outcome("succeeded"), Outcome("failed", "exit 3")


@pytest.fixture
def then(folder: Path) -> PastNode:
    (folder / "detent.yaml").write_text(MANIFEST)
    return PastNode(folder)


@pytest.fixture
def asked(detent: Detent, then: PastNode) -> Detent:
    """A store that only knows the jobs, for answers that depend on the manifest alone."""
    then.set_jobs()
    return detent


def lines(out: str) -> list[str]:
    return out.splitlines()


# There was a fire.


def test_a_fire_that_succeeded_says_where_and_how_late(detent: Detent, then: PastNode) -> None:
    due_at = yesterday("02:30")
    then.live(due_at, GOOD)
    said = detent("why", "nightly", "yesterday", "02:30")
    assert said.code == 0
    assert lines(said.out)[:3] == [
        f"demo.nightly at {due_at:%Y-%m-%d} 02:30:00 UTC",
        "it succeeded",
        "it started on time, on node host.life",
    ]
    assert lines(said.out)[4].split() == ["1", "02:30:00", "1.5", "s", "host.life", "succeeded"]
    key = f"demo.nightly@{due_at:%Y-%m-%dT%H:%M:%SZ}"
    assert f"`detent logs {key}`" in said.out
    assert detent("why", key).out == said.out
    [instant] = detent("why", "nightly", f"{due_at:%Y-%m-%dT%H:%MZ}", "-o", "json").json["instants"]
    assert [fire["fire"] for fire in instant["fires"]] == [key]
    assert instant["due"] is True


def test_attempts_are_shown_with_their_reasons_and_a_late_start(detent: Detent, then: PastNode) -> None:
    due_at = yesterday("02:30")
    then.at(due_at - timedelta(seconds=61))
    then.set_jobs()
    then.plan()
    then.at(due_at + timedelta(seconds=40))
    [claim] = [claim for claim in then.settle() if claim.fire.job == "demo.nightly"]
    then.finish(claim, BAD, again_in_s=0)
    [again] = [claim for claim in then.settle() if claim.fire.job == "demo.nightly"]
    then.finish(again, BAD)
    said = lines(detent("why", "nightly", "yesterday 02:30").out)
    assert said[1] == "it failed after 2 attempts: exit 3"
    assert re.fullmatch(r"it started 4\d\.\d s late, on node host\.life", said[2])
    assert [line.split()[0] for line in said[4:6]] == ["1", "2"]
    assert re.fullmatch(r"02:30:4\d", said[5].split()[1])


def test_a_running_fire_and_a_waiting_retry_are_shown_as_such(detent: Detent, then: PastNode) -> None:
    due_at = yesterday("02:30")
    then.at(due_at - timedelta(seconds=61))
    then.set_jobs()
    then.plan()
    then.at(due_at + timedelta(seconds=1))
    [claim] = [claim for claim in then.settle() if claim.fire.job == "demo.nightly"]
    said = lines(detent("why", "nightly", "yesterday", "02:30").out)[1]
    assert said.startswith("it has been running for ") and said.endswith(": attempt 1 on node host.life")
    then.finish(claim, BAD, again_in_s=50)
    said = lines(detent("why", "nightly", "yesterday", "02:30").out)[1]
    assert said.startswith("attempt 1 failed: exit 3; attempt 2 is due ")


def test_a_skipped_fire_names_the_pause_and_its_reason(detent: Detent, then: PastNode) -> None:
    then.store.note("demo", "pause/demo.nightly", "the database moves (by ana@host)")
    then.live(yesterday("02:30"), GOOD)
    said = detent("why", "nightly", "yesterday", "02:30").out
    assert "it was skipped: the job was paused: the database moves (by ana@host)" in said


def test_a_fire_whose_lane_was_full_names_the_holder(detent: Detent, then: PastNode) -> None:
    first = yesterday("10:00")
    then.at(first - timedelta(seconds=61))
    then.set_jobs()
    then.plan()
    then.at(first + timedelta(seconds=1))
    [holder] = [claim for claim in then.settle() if claim.fire.job == "demo.often"]
    then.at(first + timedelta(seconds=299))
    then.store.renew([holder])
    then.plan()
    then.at(first + timedelta(seconds=301))
    then.store.renew([holder])
    then.settle()
    said = detent("why", "often", "yesterday", "10:05").out
    assert (
        f"it was skipped: {holder.fire.key} was still running, and Forbid allows one fire at a time" in said
    )


def test_an_outage_is_shown_as_one_span(detent: Detent, then: PastNode) -> None:
    first = yesterday("10:00")
    then.at(first - timedelta(seconds=61))
    then.set_jobs()
    then.at(first + timedelta(hours=2))
    then.plan()
    then.settle()
    said = detent("why", "often", "yesterday", "11:00").out
    assert f"one of 24 instants from {first:%Y-%m-%d}T10:00:00Z to {first:%Y-%m-%d}T11:55:00Z" in said
    assert "while no node was alive" in said
    assert "minute 03 is not in */5" in detent("why", "often", "yesterday", "11:03").out


def test_a_fire_of_an_older_definition_says_that_the_job_was_changed(
    detent: Detent, then: PastNode, folder: Path
) -> None:
    then.live(yesterday("02:30"), GOOD)
    (folder / "detent.yaml").write_text(MANIFEST.replace('"30 2 * * *", command', '"0 4 * * *", command'))
    said = detent("why", "nightly", "yesterday", "02:30").out
    assert "it succeeded" in said and "the job has changed since" in said


def test_a_fire_by_hand_is_found_within_its_minute(detent: Detent, then: PastNode) -> None:
    fire = manual_fire(then.jobs["demo.nightly"], yesterday("15:10") + timedelta(seconds=23), "abc")
    then.store.put([fire])
    assert "it was fired by hand" in detent("why", "nightly", "yesterday", "15:10").out
    assert "it was not due then" in detent("why", "nightly", "yesterday", "15:10:00").out


def test_a_fire_at_the_very_second_comes_before_others_of_its_minute(detent: Detent, then: PastNode) -> None:
    job, minute = then.jobs["demo.nightly"], yesterday("15:10")
    fires = [manual_fire(job, minute + timedelta(seconds=after), str(after)) for after in (0, 20, 40)]
    then.store.put(fires[1:])
    several = detent("why", "nightly", "yesterday", "15:10")
    assert [line for line in lines(several.out) if line.endswith(":")] == [
        f"{fire.key}:" for fire in fires[1:]
    ]
    then.store.put(fires[:1])
    [instant] = detent("why", "nightly", "yesterday", "15:10", "-o", "json").json["instants"]
    assert [fire["fire"] for fire in instant["fires"]] == [fires[0].key]


def over(outcome: Outcome, **policy: Any) -> Row:
    fire = Fire("a.b@x", "a.b", NOW, policy=Policy()._replace(**policy), start_by=NOW)
    return Row(fire, "over", outcome=outcome, attempt=1)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (over(contended("failed", "a.b@y")), "a.b@y was running when the retry was due"),
        (over(Outcome("rejected", "HTTP 404")), "the app rejected it: HTTP 404"),
        (
            over(Outcome("timed-out", "after 5 s")),
            "and was stopped: after 5 s",
        ),
        (
            over(lane_taken("a.b@y"), max_running=3),
            "a.b@y was still running, and Forbid allows 3 fires at a time",
        ),
        (over(lane_awaited("a.b@y"), concurrency="Queue"), "a.b@y was already waiting for the lane"),
        (over(paused("")), "it was skipped: the job was paused"),
        (over(replaced_by("a.b@y")), "it was stopped to make room for a newer fire, a.b@y"),
        (
            over(node_lost("host.life")),
            "stopped while running it; it was not run again (on_lost: skip)",
        ),
        (over(NEWER_INSTANT), "catch_up: latest runs only the newest"),
        (over(Outcome("missed", "not started by then")), "it had to start by 2026-11-15T10:20:30Z"),
        (over(Outcome("cancelled", "killed by ana@host")), "it was cancelled: killed by ana@host"),
    ],
)
def test_every_outcome_has_its_sentence(row: Row, sentence: str) -> None:
    assert sentence in outcome_sentences(row, NOW)[0]


# There was none.


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nightly", "yesterday", "02:07"], "  30 2 * * *: minute 07 is not in 30"),
        (["both", "2026-11-15 09:07"], "  0 9 * * MON-FRI: minute 07 is not in 0; day of week: Sunday"),
        (["both", "2026-11-15 09:07"], "  @every 1h: it counts from 1970-01-01T00:00:00Z; this is 420 s"),
        (["both", "2026-11-15 09:07"], "the nearest due times are 09:00 and 10:00"),
        (["nightly", "2026-11-15 03:00"], "the nearest due times are 02:30 and 2026-11-16 02:30"),
        (["bounded", "2026-05-01 01:00"], "  starts_at: the job starts at 2026-06-01T00:00:00Z"),
        (["resting", "2026-05-01 00:00"], "the job is disabled in the manifest"),
        (["berlin", "2026-03-29 02:30"], "02:30 did not exist on 2026-03-29 in Europe/Berlin: the"),
        (["berlin", "2026-03-29 02:30"], "  30 2 * * *: under dst: vixie it is due right after"),
        (["berlin", "2026-03-29 02:30"], "demo.berlin at 2026-03-29 03:00:00 Europe/Berlin (2026-03-29T01"),
        (["skipping", "2026-03-29 02:30"], "  30 2 * * *: under dst: skip it does not fire"),
        (["berlin", "2025-10-26 02:30"], "02:30 was shown twice on that day in Europe/Berlin"),
        (["berlin", "2025-10-26 02:30"], "and this is the second time; under dst: vixie it fires the first"),
    ],
)  # fmt: skip
def test_a_time_at_which_a_job_was_not_due_is_explained(asked: Detent, words: list[str], text: str) -> None:
    said = asked("why", *words)
    assert said.code == 0
    assert text in said.out


def test_a_gap_under_skip_has_no_instant_to_show(asked: Detent) -> None:
    assert len(lines(asked("why", "skipping", "2026-03-29 02:30").out)) == 2
    assert asked("why", "skipping", "2026-03-29 02:30", "-o", "json").json["instants"] == []


def test_a_future_instant_is_shown_with_what_may_prevent_it(asked: Detent, then: PastNode) -> None:
    then.store.note("demo", "node/host.life", "{}", 30)
    words = ("why", "nightly", "tomorrow", "02:30")
    assert lines(asked(*words).out)[1].startswith("it is due in ") and len(lines(asked(*words).out)) == 2
    then.store.note("demo", "pause/demo.nightly", "holidays (by ana@host)")
    assert "but the job is paused: holidays (by ana@host): it will be skipped" in asked(*words).out
    then.store.note("demo", "pause/demo.nightly", "")
    then.store.note("demo", "node/host.life", "")
    assert "no node is alive" in asked(*words).out


def test_an_instant_before_the_job_was_known_says_so(detent: Detent, then: PastNode) -> None:
    then.live(yesterday("10:00"), GOOD)
    said = detent("why", "often", "yesterday", "09:00").out
    assert "there is no fire in the store" in said
    assert f"the oldest fire in the store was due at {yesterday('10:00'):%Y-%m-%d}T10:00:00Z" in said


def test_an_instant_that_no_node_has_planned_yet_says_what_will_become_of_it(
    detent: Detent, then: PastNode
) -> None:
    then.live(yesterday("10:00"), GOOD)
    said = detent("why", "often", "yesterday", "14:00").out
    assert "no node has planned it yet" in said and "no node is alive" in said
    assert "with catch_up: skip, the next node records it as missed" in said


def test_history_that_is_kept_no_longer_says_so(asked: Detent) -> None:
    assert "history is kept for 30 days (node.keep_days)" in asked("why", "nightly", "2026-01-05 02:30").out


def test_a_job_that_no_node_has_taken_over_says_so(detent: Detent, then: PastNode) -> None:
    then.store.note("demo", "node/host.life", "{}", 30)
    assert "no node has run with this manifest yet" in detent("why", "nightly", "yesterday", "02:30").out


def test_before_anything_has_run_there_is_an_answer_too(detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    assert "nothing has run" in detent("why", "nightly", "yesterday", "02:30").out
    assert not (folder / "try.db").exists()


def test_without_the_manifest_only_recorded_fires_are_explained(
    detent: Detent, then: PastNode, folder: Path
) -> None:
    then.live(yesterday("02:30"), GOOD)
    (folder / "detent.yaml").unlink()
    named = ("--store", "sqlite:///try.db")
    assert "it succeeded" in detent("why", "demo.nightly", "yesterday", "02:30", *named).out
    said = detent("why", "demo.nightly", "yesterday", "02:40", *named).out
    assert "only the manifest says whether it was due" in said


# Times.


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", "2026-11-15T10:20:00"),
        ("02:00", "2026-11-15T02:00:00"),
        ("2:00", "2026-11-15T02:00:00"),
        ("yesterday 02:00:07", "2026-11-14T02:00:07"),
        ("Tomorrow  02:00", "2026-11-16T02:00:00"),
        ("2026-03-01 02:00", "2026-03-01T02:00:00"),
        ("2026-03-01T02:00:00Z", "2026-03-01T02:00:00+00:00"),
        ("2026-03-01 02:00+01:00", "2026-03-01T02:00:00+01:00"),
    ],
)
def test_a_time_can_be_written_in_everyday_words(text: str, at: str) -> None:
    assert parse_time(text, NOW).at.isoformat() == at


@pytest.mark.parametrize(
    "text", ["noon", "", "25:00", "2026-02-30 10:00", "2026-11-15", "0001-01-01 10:00", "10:00+99:00"]
)
def test_a_bad_time_is_refused_with_the_allowed_forms(text: str, asked: Detent) -> None:
    with pytest.raises(UsageError, match="bad time"):
        parse_time(text, NOW)
    said = asked("why", "nightly", text)
    assert (said.code, said.out) == (1, "")
    assert "bad time" in said.err


def test_a_job_needs_a_time(asked: Detent) -> None:
    assert "the time is missing: write a time such as 02:00" in asked("why", "nightly").err
    assert 'did you mean "nightly"?' in asked("why", "nightyl", "02:00").err
