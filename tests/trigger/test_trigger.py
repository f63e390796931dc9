"""Real trigger processes: every exit code and its events."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.equipment.fleet import wait_for
from tests.equipment.redis_server import free_port
from tests.trigger.trigger_world import (
    Host,
    minute,
    pass_by,
    serving,
    set_watermark_back,
    slow_writes,
    this_minute,
)

from detent.rules.planning import rfc3339
from detent.stores.base import PAUSE
from detent.stores.registry import open_store

ONCE = {"retries": {"max_attempts": 1}}
QUICK = {"retries": {"max_attempts": 3, "min_seconds": 0}}


def test_success_is_0_and_a_second_trigger_finds_nothing_due(host: Host) -> None:
    host.write("job", command=["sh", "-c", 'echo "$DETENT_FIRE"'])
    due = minute(3)
    first, again = host.trigger("job", "--due", due), host.trigger("job", "--due", due)
    assert (first.code, first.names) == (0, ["fire-started", "success"])
    assert first.one("success")["fire"] == f"t.job@{due}"
    assert (again.code, again.names) == (0, ["nothing-due"])
    [row] = host.find(key=f"t.job@{due}")
    assert (row.outcome and row.outcome.kind, row.attempt) == ("succeeded", 1)
    assert host.find(key=row.fire.key)[0].attempts[0].tail == f"t.job@{due}\n".encode()


def test_without_options_the_newest_instant_fires_also_for_a_new_job(host: Host) -> None:
    host.write("job", schedules=["@every 1m"], command="true")
    began = minute(0)
    said = host.trigger("job")
    this_minute.cache_clear()
    assert (said.code, said.names) == (0, ["fire-started", "success"])
    assert began <= said.one("success")["due"] <= minute(0)


def test_a_rejection_is_1_and_is_not_retried(host: Host) -> None:
    with serving(422) as app:
        host.write("job", request={"url": app.url}, policy=QUICK)
        said = host.trigger("job", "--due", minute(3))
    assert (said.code, said.names[-1], len(app.requests)) == (1, "app-rejected", 1)
    event = said.one("app-rejected")
    assert (event["last_status"], event["outcome"], event["body_excerpt"]) == (422, "rejected", "said")


def test_exhausted_retries_are_2_with_a_line_for_each_attempt(host: Host) -> None:
    with serving(500) as app:
        host.write("job", request={"url": app.url}, policy=QUICK)
        said = host.trigger("job", "--due", minute(3))
    assert (said.code, len(app.requests)) == (2, 3)
    assert said.names.count("attempt-failed") == 2
    assert said.one("retries-exhausted")["attempts"] == 3
    assert [asked.headers["x-cron-attempt"] for asked in app.requests] == ["1", "2", "3"]
    assert len({asked.headers["x-cron-run-id"] for asked in app.requests}) == 1


def test_a_timeout_is_2_and_ends_the_work(host: Host) -> None:
    host.write("job", command="sleep 60", policy={"timeout_seconds": 1})
    said = host.trigger("job", "--due", minute(3))
    assert (said.code, said.names[-1]) == (2, "timed-out")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{", "not JSON"),
        ('{"version": 2, "app": "t", "jobs": [{"name": "job", "command": "true"}]}', "schedule"),
        (
            '{"version": 2, "app": "t", "jobs": [{"name": "other", "schedule": "@daily", "command": "a"}]}',
            "no job",
        ),
    ],
)
def test_a_bad_spec_is_3_and_is_explained(host: Host, spec: str, message: str) -> None:
    (host.specs / "t.job.json").write_text(spec)
    said = host.trigger("job")
    assert (said.code, said.events) == (3, [])
    assert message in " ".join(said.plain)


def test_a_missing_spec_and_usage_errors_are_3(host: Host) -> None:
    assert "no spec" in host.trigger("job").plain[0]
    said = host.trigger("job", "--nonsense")
    assert (said.code, said.plain[-1]) == (3, "detent trigger: error: unexpected argument: --nonsense")
    host.write("job", command="true")
    assert host.trigger("job", "--due", "yesterday").code == 3
    assert "ahead" in host.trigger("job", "--due", "2099-01-01T00:00:00Z").plain[0]


def test_no_secret_is_3_and_sends_nothing(host: Host) -> None:
    with serving(200) as app:
        host.write("job", request={"url": app.url}, auth={"secret_refs": ["env:NOT_SET"]}, policy=QUICK)
        said = host.trigger("job", "--due", minute(3))
    assert (said.code, app.requests) == (3, [])
    assert "NOT_SET" in said.one("secret-unresolved")["reason"]


def test_a_store_that_is_away_is_3(host: Host) -> None:
    host.write("job", command="true", policy={"concurrency_scope": "global"})
    host.url = f"redis://127.0.0.1:{free_port()}"
    said = host.trigger("job")
    assert (said.code, said.names) == (3, ["store-unavailable"])
    assert "does not answer" in said.events[0]["error"]


def test_scope_global_without_a_store_is_3(host: Host) -> None:
    host.write("job", command="true", policy={"concurrency_scope": "global"})
    said = host.trigger("job", store=False)
    assert said.code == 3 and "no shared store is named" in said.plain[0]


def test_scope_host_has_its_own_history(host: Host) -> None:
    host.write("job", command="true", store="redis://127.0.0.1:1")
    assert host.trigger("job", store=False).code == 0
    host.url = f"sqlite:///{host.directory}/xdg/detent/detent.db"
    assert [row.outcome and row.outcome.kind for row in host.find()] == ["succeeded"]


@pytest.mark.parametrize(("words", "code"), [((), 4), (("--tempfail",), 75), (("--contended-ok",), 0)])
def test_a_full_lane_is_4_or_the_code_that_an_option_chooses(
    host: Host, words: tuple[str, ...], code: int
) -> None:
    host.write("job", schedules=["@every 1s"], command="sleep 60")
    holder = host.start("job")
    key = holder.wait("fire-started")["fire"]
    pass_by(key)
    said = host.trigger("job", *words)
    assert (said.code, said.names[-1]) == (code, "lock-contended")
    event = said.one("lock-contended")
    assert (event["holder"], event["scope"], event["level"]) == (key, "host", "INFO")


def test_a_trigger_runs_what_it_planned_also_if_a_newer_instant_becomes_due_meanwhile(host: Host) -> None:
    host.write("job", schedules=["@every 1s"], command="true")
    key = host.trigger("job").one("success")["fire"]
    with slow_writes(host) as is_waiting:
        pass_by(key)
        late = host.start("job")
        wait_for(is_waiting)
        pass_by(f"t.job@{rfc3339(datetime.now(UTC))}")
    said = late.over()
    assert (said.code, said.names) == (0, ["fire-started", "success"])
    assert said.one("success")["fire"] > key


def test_a_fire_that_another_trigger_runs_is_4_and_names_the_holder(host: Host) -> None:
    host.write("job", command="sleep 60")
    holder, due = host.start("job", "--due", minute(3)), minute(3)
    node = holder.wait("fire-started")["node"]
    said = host.trigger("job", "--due", due)
    assert (said.code, said.names, said.one("already-launched")["holder"]) == (4, ["already-launched"], node)


def test_a_paused_job_is_skipped_and_0(host: Host) -> None:
    host.write("job", command="true")
    with closing(open_store(host.url)) as store:
        store.note("t", f"{PAUSE}t.job", "for the move")
    said = host.trigger("job")
    assert (said.code, said.names) == (0, ["skipped"])
    assert said.one("skipped")["reason"] == "paused: for the move"


def test_a_manifest_serves_as_well_as_a_spec_whatever_the_work(host: Host, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def work(n):\n    print('called', n)\n    return n + 1\n")
    host.write("job", call="app:work", args=[41], work_dir=str(tmp_path))
    manifest = host.specs / "t.job.json"
    moved = manifest.rename(tmp_path / "detent.json")
    said = host.trigger("job", "-f", str(moved), "--due", minute(3))
    assert (said.code, said.names[-1]) == (0, "success")
    [attempt] = host.find(key=said.one("success")["fire"])[0].attempts
    assert (attempt.result, attempt.tail) == ("42", b"called 41\n")


def test_hooks_are_called_before_the_trigger_ends(host: Host, tmp_path: Path) -> None:
    output = tmp_path / "output"
    with serving(200) as app:
        hook = f'echo "$DETENT_OUTCOME $DETENT_REASON" > {output}'
        host.write("job", command="exit 7", on_failure=[hook, f"{app.url}/alert"])
        said = host.trigger("job", "--due", minute(3))
    assert said.code == 2
    assert output.read_text() == "failed exit 7\n"
    [asked] = app.requests
    assert json.loads(asked.body)["outcome"] == "failed"
    wait_for(lambda: not host.find(state="pending") and not host.find(state="claimed"))


def test_a_trigger_fills_in_the_body_of_a_webhook(host: Host) -> None:
    with serving(200) as app:
        webhook = {"url": app.url, "body": '{"text": "{{job}} {{outcome}}: {{output_tail}}"}'}
        host.write("job", command="echo 'say \"no\"'; exit 7", on_failure=webhook)
        host.trigger("job", "--due", minute(3))
    [asked] = app.requests
    assert json.loads(asked.body) == {"text": 'job failed: say "no"\n'}


def test_a_trigger_alerts_when_its_job_begins_to_fail_and_when_it_recovers(host: Host) -> None:
    with serving(200) as app:
        address = app.url.replace("http://", "json://")
        for day, command in enumerate(("exit 7", "exit 7", "true", "true"), 3):
            host.write("job", command=command, on_failure=address)
            host.trigger("job", "--due", minute(day))
    titles = [json.loads(asked.body)["title"] for asked in app.requests]
    assert titles == ["t.job: failed", "t.job: recovered"]


def test_the_trace_context_is_passed_on(host: Host) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with serving(200) as app:
        host.write("job", request={"url": app.url})
        host.trigger("job", "--due", minute(3), TRACEPARENT=parent, TRACESTATE="a=b")
        host.write("shell", command='echo "$TRACEPARENT"')
        said = host.trigger("shell", "--due", minute(3), TRACEPARENT=parent)
    assert (app.requests[0].headers["traceparent"], app.requests[0].headers["tracestate"]) == (parent, "a=b")
    assert host.find(key=said.one("success")["fire"])[0].attempts[0].tail == f"{parent}\n".encode()


def test_missed_instants_are_caught_up_if_the_job_wants_that(host: Host) -> None:
    """The job is not new, and triggers were missed."""
    host.write("job", command="true", policy={"catch_up": "all"})
    first = host.trigger("job").one("success")["fire"]
    set_watermark_back(host, datetime.fromisoformat(first.partition("@")[2]) - timedelta(minutes=4))
    said = host.trigger("job")
    assert (said.code, said.names.count("success")) in ((0, 3), (0, 4))  # a minute may have begun
    late = [event["fire"] for event in said.events if event["event"] == "caught-up"]
    assert len(late) >= 2 and late == sorted(late)


def test_a_failed_hook_is_reported_and_changes_no_exit_code(host: Host) -> None:
    host.write("job", command="true", on_success="exit 9")
    said = host.trigger("job", "--due", minute(3))
    assert (said.code, said.names[-1]) == (0, "hook-failed")
    assert said.one("hook-failed")["reason"] == "exit 9"
