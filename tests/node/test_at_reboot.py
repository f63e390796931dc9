"""`@reboot`: one fire for each boot of a host, however often a node starts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from detent import clock
from detent.errors import UsageError
from detent.manifest.check import check_manifest, jobs_on
from detent.model import Ask, Job, Outcome, Query, Report, Verdict
from detent.node.at_reboot import boot_fire, jobs_at_boot, put_boot_fires, read_boot_id
from detent.schedules.timetable import combine, fires_at_boot, parse_schedule
from detent.stores.base import PAUSE
from detent.stores.memory.store import MemoryStore

THIS, NEXT = "0123456789ab", "ba9876543210"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def jobs(host: str = "here") -> list[Job]:
    document = {
        "version": 2,
        "app": "a",
        "jobs": [
            {"name": "bot", "schedule": "@reboot", "command": "true", "run_on": "every"},
            {"name": "both", "schedules": ["@daily", "@reboot"], "command": "true"},
            {"name": "daily", "schedule": "@daily", "command": "true"},
            {"name": "elsewhere", "schedule": "@reboot", "command": "true", "queue": "db"},
        ],
    }
    return jobs_at_boot(jobs_on(check_manifest(document), host), ("default",), NOW)


def put(store: MemoryStore, boot_id: str, host: str = "here") -> None:
    put_boot_fires(store, host, boot_id, jobs(host), clock.now())


def keys(store: MemoryStore) -> list[str]:
    return sorted(row.fire.key for row in store.find(Query(app="a")))


def finish_all(store: MemoryStore, number: int) -> None:
    claims = store.claim(Ask("a", "life", number, limit=100)).claims
    store.finish([Report(claim, Verdict(Outcome("succeeded"))) for claim in claims])


def test_only_jobs_that_fire_at_boot_and_that_this_node_serves_are_fired() -> None:
    assert [job.name for job in jobs()] == ["a.bot/here", "a.both"]


def test_a_boot_fires_once_however_often_a_node_starts() -> None:
    store = MemoryStore()
    put(store, THIS), put(store, THIS)
    assert keys(store) == [f"a.bot/here@boot-{THIS}", f"a.both@boot-{THIS}"]
    put(store, NEXT)
    assert len(keys(store)) == 4


def test_a_boot_does_not_fire_again_when_its_fire_was_pruned() -> None:
    store = MemoryStore()
    put(store, THIS)
    finish_all(store, 1)
    assert store.prune("a", 0, 1000) == 2
    assert keys(store) == []
    put(store, THIS)
    assert keys(store) == []


def test_each_host_fires_for_itself_with_run_on_every() -> None:
    store = MemoryStore()
    put(store, THIS, "here"), put(store, NEXT, "there"), put(store, THIS, "here")
    assert [key for key in keys(store) if "bot/" in key] == [
        f"a.bot/here@boot-{THIS}",
        f"a.bot/there@boot-{NEXT}",
    ]


def test_the_fire_of_a_paused_job_is_recorded_and_cancelled() -> None:
    store = MemoryStore()
    store.note("a", f"{PAUSE}a.both", "{}")
    put(store, THIS)
    (row,) = store.find(Query(job="a.both"))
    assert row.state == "over" and row.outcome == Outcome("cancelled", "paused", "paused")


def test_a_fire_at_boot_may_be_started_late_whatever_the_jobs_catch_up() -> None:
    document = {
        "version": 2,
        "app": "a",
        "jobs": [{"name": "b", "schedule": "@reboot", "command": "x", "policy": {"catch_up": "skip"}}],
    }
    (job,) = check_manifest(document).jobs
    fire = boot_fire(job, THIS, NOW)
    assert fire.start_by is not None and fire.start_by - fire.due_at >= timedelta(minutes=30)


def test_without_a_boot_id_of_the_kernel_the_boot_id_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "boot_id"
    assert read_boot_id(file) == ""
    file.write_text("01234567-89ab-cdef-0123-456789abcdef\n")
    assert read_boot_id(file) == THIS


def test_a_reboot_schedule_has_no_instants() -> None:
    schedule = parse_schedule("@reboot")
    assert schedule.after(NOW) is schedule.before(NOW) is None and fires_at_boot(schedule, NOW)
    mixed = combine([schedule, parse_schedule("@daily")])
    assert mixed.after(NOW) == datetime(2026, 3, 2, tzinfo=UTC) and fires_at_boot(mixed, NOW)
    assert not fires_at_boot(parse_schedule("@daily"), NOW)


def test_a_reboot_job_fires_only_within_its_bounds() -> None:
    bounded = combine([parse_schedule("@reboot")], starts_at="2026-03-01T11:00Z", ends_at="2026-03-01T13:00Z")
    assert fires_at_boot(bounded, NOW) and not fires_at_boot(bounded, NOW + timedelta(hours=2))


def test_a_version_1_manifest_does_not_accept_reboot() -> None:
    with pytest.raises(UsageError, match="@reboot is not one of @hourly"):
        parse_schedule("@reboot", version=1)
    with pytest.raises(UsageError, match="@reboot and @every"):
        parse_schedule("@rebot")
