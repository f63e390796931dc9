"""Debian's own `crontab` program: it takes what we render, and what it refuses changes nothing."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hosts.hosts_world import FOREIGN, needs_crontab_program, put_private_crontab
from tests.hosts.hosts_world import settings as host_settings
from tests.hosts.schedule_texts import PATIENT, SCHEDULES, ZONES

from detent.errors import HostError, UsageError
from detent.hosts.crontab.host import UserTable, open_host
from detent.hosts.reconcile import pending, reconcile
from detent.manifest.check import check_manifest
from detent.manifest.spec import specs_of

PLACES = st.sampled_from(ZONES)
pytestmark = [pytest.mark.root, needs_crontab_program]


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spool of the test's own, which `crontab` works on."""
    monkeypatch.setenv("PATH", f"{put_private_crontab(tmp_path)}:{os.environ['PATH']}")
    return tmp_path


def test_crontab_accepts_every_rendered_schedule(private: Path) -> None:
    @settings(PATIENT, max_examples=5)
    @given(st.lists(st.tuples(SCHEDULES, PLACES), min_size=20, max_size=40), PLACES)
    def check(drawn: list[tuple[str, str]], zone: str) -> None:
        jobs = [
            {"name": f"j{i}", "schedule": text, "timezone": place, "command": "true"}
            for i, (text, place) in enumerate(drawn)
            if fires(text)
        ]
        host = open_host(host_settings(private, "shop", host_timezone=zone))
        desired = host.render(specs_of(check_manifest({"version": 2, "app": "shop", "jobs": jobs})))
        entries = [one for one in desired if one.kind == "entry"]
        host.change(pending(reconcile("shop", entries, [one for one in host.find() if one.kind == "entry"])))
        found = sorted(one.content for one in host.find() if one.kind == "entry")
        assert found == sorted(one.content for one in entries)  # those of an example before keep theirs

    check()


def fires(text: str) -> bool:
    document = {"version": 2, "app": "shop", "jobs": [{"name": "a", "schedule": text, "command": "true"}]}
    try:
        check_manifest(document)
    except UsageError:
        return False
    return True


def test_a_refused_crontab_changes_nothing_and_is_reported(private: Path) -> None:
    table = UserTable()
    table.write(FOREIGN)
    with pytest.raises(HostError, match=r"is unchanged.*bad minute"):
        table.write("61 * * * * true\n")
    assert table.read() == FOREIGN


def test_an_empty_crontab_is_none(private: Path) -> None:
    table = UserTable()
    assert table.read() == ""
    table.write("1 2 * * * true\n")
    table.write("")
    assert table.read() == "" and list((private / "spool").iterdir()) == []


def test_root_writes_another_users_crontab_and_that_user_can_read_its_specs(private: Path) -> None:
    host = open_host(host_settings(private, "shop", run_as="nobody"))
    document = {
        "version": 2,
        "app": "shop",
        "store": "postgresql://me:secret@db/shop",
        "jobs": [{"name": "a", "schedule": "30 2 * * *", "command": "true"}],
    }
    desired = host.render(specs_of(check_manifest(document)))
    host.change(pending(reconcile("shop", desired, host.find())))
    assert "detent-shop.a-0" in (private / "spool" / "nobody").read_text()
    spec = (private / "specs" / "shop.a.json").stat()
    assert (spec.st_uid, spec.st_mode & 0o777) == (pwd.getpwnam("nobody").pw_uid, 0o600)
