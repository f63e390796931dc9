"""systemd accepts the units that we write, and no text of a path can add settings to them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.formats.systemd_oracle import needs_systemd_analyze
from tests.hosts.hosts_world import settings as host_settings
from tests.hosts.schedule_texts import PATHS, PATIENT

from detent.errors import UsageError
from detent.formats.systemd.units import parse_unit, split_words
from detent.hosts.base import trigger_max_s
from detent.hosts.reconcile import Resource, pending, reconcile
from detent.hosts.systemd.host import open_host
from detent.manifest.check import check_manifest
from detent.manifest.spec import specs_of

JOBS: list[dict[str, Any]] = [
    {"name": "a", "schedules": ["30 2 * * *", "0 0 13 * 5"], "timezone": "Europe/Berlin", "command": "true"},
    {"name": "b", "schedule": "*/10 * * * * *", "request": {"url": "https://example.org/"}},
    {"name": "c", "at": "2030-12-24T18:00:00Z", "call": "billing:send", "policy": {"catch_up": "skip"}},
]


def units(folder: Path, jobs: list[dict[str, Any]] = JOBS, **options: str | bool) -> dict[str, Resource]:
    host = open_host(host_settings(folder, "shop", **options))
    made = host.render(specs_of(check_manifest({"version": 2, "app": "shop", "jobs": jobs})))
    return {one.name: one for one in made if one.kind != "spec"}


@needs_systemd_analyze
@pytest.mark.parametrize(
    "options", [{}, {"user": True}, {"run_as": "nobody"}], ids=["system", "user", "run-as"]
)
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path, options: dict[str, Any]) -> None:
    made = units(tmp_path, **options)
    assert len(made) == 8
    for one in made.values():
        (tmp_path / one.name).write_text(one.content)
    said = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / name) for name in made)],
        capture_output=True,
        text=True,
    )
    assert [line for line in said.stderr.splitlines() if "detent-" in line] == []
    assert said.returncode == 0, said.stderr


def test_catch_up_decides_whether_a_timer_is_persistent(tmp_path: Path) -> None:
    made = units(tmp_path)
    assert "\nPersistent=true\n" in made["detent-shop.a-0.timer"].content
    assert "\nPersistent=false\n" in made["detent-shop.c-0.timer"].content


def test_a_trigger_without_a_timeout_has_no_end(tmp_path: Path) -> None:
    made = units(tmp_path)
    assert "RuntimeMaxSec" not in made["detent-shop.a-0.service"].content
    policy = specs_of(check_manifest({"version": 2, "app": "shop", "jobs": JOBS}))[1].job.policy
    assert f"RuntimeMaxSec={trigger_max_s(policy)}" in made["detent-shop.b-0.service"].content
    assert trigger_max_s(policy) > 3 * 60 + 2 * 60  # three attempts, and what lies between


def undoubled(word: str, sign: str) -> str:
    """The word with each pair of the sign as one; a single one would be expanded."""
    assert sign not in word.replace(sign * 2, ""), word
    return word.replace(sign * 2, sign)


@settings(PATIENT, max_examples=30)
@given(PATHS, PATHS)
def test_whatever_the_paths_contain_exactly_our_words_come_back(specs: str, program: str) -> None:
    """As systemd reads a unit: words split, specifiers and dollars expanded, twice for the transient unit."""
    host = host_settings(Path("/"), "shop")._replace(spec_dir=Path(f"/{specs}"), detent=f"/{program}")
    jobs = [{"name": "a", "schedule": "30 2 * * *", "command": "true"}]
    try:
        made = open_host(host).render(specs_of(check_manifest({"version": 2, "app": "shop", "jobs": jobs})))
    except UsageError as error:
        assert "control characters" in str(error)
        return
    service = parse_unit("a.service", next(one.content for one in made if one.kind == "service"))
    (started,) = service.given("Service", "ExecStart")
    run, unit, *rest = split_words(started.value)
    assert (run, unit) == ("/usr/bin/systemd-run", "--unit=detent-shop.a@${INVOCATION_ID}.service")
    words = [undoubled(undoubled(word, "%"), "$") for word in rest]
    called = [undoubled(word, "$") for word in words[words.index("--") + 1 :]]
    assert called == host.trigger_words("shop.a")
    assert {entry.section for entry in service.entries} == {"Unit", "Service", "X-Detent"}


def test_a_timer_that_lost_its_link_has_drifted(tmp_path: Path) -> None:
    host = open_host(host_settings(tmp_path, "shop", unit_dir=str(tmp_path / "units")))
    desired = host.render(specs_of(check_manifest({"version": 2, "app": "shop", "jobs": JOBS})))
    host.change(pending(reconcile("shop", desired, host.find())))
    link = tmp_path / "units" / "timers.target.wants" / "detent-shop.b-0.timer"
    link.unlink()
    (change,) = pending(reconcile("shop", desired, host.find()))
    assert (change.name, change.state) == (link.name, "edited")
    host.change([change])
    assert link.resolve() == tmp_path / "units" / link.name
    assert pending(reconcile("shop", desired, host.find())) == []
