"""Every host on this machine passes the suite for hosts; a host that breaks a rule does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Barrier, Lock, current_thread, main_thread

import pytest
from tests.hosts.hosts_world import cron_file_world, needs_crontab_program, systemd_world, user_crontab_world

from detent.hosts import base
from detent.hosts import reconcile as core_reconcile
from detent.hosts.crontab import host as crontab
from detent.hosts.crontab import text as crontab_text
from detent.hosts.reconcile import Change, Found
from detent.testing import check_host as suite
from detent.testing.check_host import CHECKS, Check, HostWorld, run_check

NAMES = [check.__name__ for check in CHECKS]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
@pytest.mark.parametrize("make", [cron_file_world, systemd_world], ids=["cron-file", "systemd"])
def test_a_host_keeps_a_rule_of_hosts(
    make: Callable[[Path], HostWorld], check: Check, tmp_path: Path
) -> None:
    run_check(check, make(tmp_path))


@needs_crontab_program
@pytest.mark.root
@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_users_crontab_keeps_a_rule_of_hosts(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_check(check, user_crontab_world(tmp_path, monkeypatch))


# The suite finds each planted bug by the rule that it breaks.


def added(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if change.action != "delete"]


def plant(patch: pytest.MonkeyPatch, fault: str) -> None:
    rewrite = crontab_text.rewrite
    find, change = crontab.CrontabHost.find, crontab.CrontabHost.change
    match fault:
        case "no seal":
            patch.setattr(crontab_text, "seal", lambda *parts: "0" * 12)
        case "an app is a prefix":
            patch.setattr(core_reconcile, "app_of", lambda job: job.partition(".")[0].partition("-")[0])
        case "foreign lines are tidied":
            patch.setattr(crontab, "rewrite", lambda *given: rewrite(*given).replace("\t", " "))
        case "the first line is lost":
            patch.setattr(
                crontab, "rewrite", lambda text, changes, retired: rewrite(text, changes[1:], retired)
            )
        case "written although nothing changed":
            patch.setattr(crontab, "rewrite", lambda *given: rewrite(*given) + "# applied again\n")
        case "nothing is ever taken away":
            patch.setattr(crontab, "rewrite", lambda text, changes, gone: rewrite(text, added(changes), gone))
        case "no lock":
            barrier, turn = Barrier(4), Lock()
            patch.setattr(crontab.CrontabHost, "lock", lambda host: nullcontext())

            def find_together(host: crontab.CrontabHost) -> list[Found]:
                found = find(host)
                if current_thread() is not main_thread():
                    barrier.wait(30)  # all have looked before the first one writes
                return found

            def change_in_turn(host: crontab.CrontabHost, changes: Sequence[Change]) -> None:
                with turn:
                    change(host, changes)

            patch.setattr(crontab.CrontabHost, "find", find_together)
            patch.setattr(crontab.CrontabHost, "change", change_in_turn)
        case "unsupported schedules are left out":
            patch.setattr(base, "refuse_unsupported", lambda host, unsupported_schedule: None)


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("no seal", suite.a_manual_edit_is_drift_and_is_repaired),
        ("an app is a prefix", suite.an_app_whose_name_begins_like_another_is_left_alone),
        ("foreign lines are tidied", suite.foreign_content_stays_unchanged_to_the_byte),
        ("the first line is lost", suite.applied_resources_are_found_unchanged),
        ("written although nothing changed", suite.foreign_content_stays_unchanged_to_the_byte),
        ("nothing is ever taken away", suite.only_a_job_that_is_no_longer_declared_is_removed),
        ("no lock", suite.concurrent_applies_leave_one_of_each_resource),
        (
            "unsupported schedules are left out",
            suite.an_unsupported_schedule_is_refused_before_anything_is_written,
        ),
    ],
)
def test_a_planted_fault_is_found(
    fault: str, rule: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, fault)
    with pytest.raises(AssertionError, match=suite.sentence(rule)):
        run_check(rule, cron_file_world(tmp_path))
