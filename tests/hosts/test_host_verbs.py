"""plan, apply, drift, adopt, unapply; list, show and history with --host: what they print and change."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.cli.cli_world import Detent, environment
from tests.hosts.hosts_world import FOREIGN_SYSTEM, look_at
from tests.runners.http_servers import heard, serving

MANIFEST = """
version: 2
app: shop
store: sqlite:///fires.db
jobs:
  - {name: backup, schedule: "30 2 * * *", command: 'echo "100% done"'}
  - {name: report, schedules: ["0 9 * * MON-FRI", "@every 7m"], request: {url: "https://example.org/r"}}
  - {name: resting, schedule: "@daily", command: 'true', enabled: false}
"""
ENTRIES = ["detent-shop.backup-0", "detent-shop.report-0", "detent-shop.report-1"]
PROGRAM = ("--detent", "/usr/local/bin/detent")
SPECS = ["shop.backup.json", "shop.report.json"]


@pytest.fixture(params=["crontab", "systemd"])
def host(request: pytest.FixtureRequest, folder: Path) -> tuple[str, ...]:
    """A host, as the options that choose it."""
    (folder / "detent.yaml").write_text(MANIFEST)
    place = (
        ["--cron-file", "crontab", "--host-timezone", "UTC"]
        if request.param == "crontab"
        else ["--unit-dir", "units"]
    )
    return ("--host", request.param, *place, *PROGRAM)


@pytest.fixture
def crontab(folder: Path) -> tuple[str, ...]:
    (folder / "detent.yaml").write_text(MANIFEST)
    return ("--host", "crontab", "--cron-file", "crontab", "--host-timezone", "UTC", *PROGRAM)


@pytest.fixture
def systemd(folder: Path) -> tuple[str, ...]:
    (folder / "detent.yaml").write_text(MANIFEST)
    return ("--host", "systemd", "--unit-dir", "units", *PROGRAM)


def where(host: tuple[str, ...]) -> tuple[str, ...]:
    """The options that are enough to find what is there."""
    return host[:4]


def seen(folder: Path) -> dict[str, str]:
    """Return everything that hosts and triggers would see."""
    places = look_at(folder / "units", folder / "specs")
    return {**places, "crontab": (folder / "crontab").read_text() if (folder / "crontab").exists() else ""}


def test_plan_shows_what_apply_does_and_changes_nothing(
    host: tuple[str, ...], detent: Detent, folder: Path
) -> None:
    planned = detent("plan", *host, "-o", "json")
    assert planned.code == 0
    assert seen(folder) == {"crontab": ""}
    applied = detent("apply", *host, "-o", "json")
    assert applied.json == planned.json
    assert {change["action"] for change in applied.json} == {"create"}
    assert set(SPECS) < {change["name"] for change in applied.json}


def test_a_second_apply_prints_nothing_and_changes_no_byte(
    host: tuple[str, ...], detent: Detent, folder: Path
) -> None:
    assert detent("apply", *host).out.startswith("created ")
    before, times = seen(folder), [path.stat().st_mtime_ns for path in (folder / "specs").iterdir()]
    again = detent("apply", *host)
    assert (again.code, again.out, again.err) == (0, "", "")
    assert seen(folder) == before
    assert [path.stat().st_mtime_ns for path in (folder / "specs").iterdir()] == times
    assert "nothing to do" in detent("plan", *host).out


def test_drift_is_reported_and_exits_with_5_if_requested(
    host: tuple[str, ...], detent: Detent, folder: Path
) -> None:
    assert detent("drift", *host, "--exit-on-drift").code == 5
    detent("apply", *host)
    clean = detent("drift", *host, "--exit-on-drift")
    assert (clean.code, clean.out) == (0, "")
    spec = folder / "specs" / "shop.backup.json"
    spec.write_text(spec.read_text().replace("100%", "0%"))
    assert detent("drift", *host).code == 0
    found = detent("drift", *host, "--exit-on-drift", "-o", "json")
    assert found.code == 5
    assert [change["name"] for change in found.json] == ["shop.backup.json"]
    detent("apply", *host)
    assert detent("drift", *host, "--exit-on-drift").code == 0


def test_list_shows_the_resources_and_unapply_removes_them(
    host: tuple[str, ...], detent: Detent, folder: Path
) -> None:
    detent("apply", *host)
    listed = detent("list", *where(host), "-o", "json").json
    assert {one["job"] for one in listed} == {"shop.backup", "shop.report"}
    assert all(one["intact"] for one in listed)
    assert detent("list", *where(host), "--app", "sho", "-o", "json").json == []
    gone = detent("unapply", *where(host))
    assert gone.code == 0 and len(gone.out.splitlines()) == len(listed)
    assert seen(folder) == {"crontab": ""}
    assert detent("list", *where(host), "-o", "json").json == []
    assert "nothing to remove" in detent("unapply", *where(host)).err


def test_unapply_needs_no_manifest_but_an_app(host: tuple[str, ...], detent: Detent, folder: Path) -> None:
    detent("apply", *host)
    (folder / "detent.yaml").unlink()
    assert "--app" in detent("unapply", *where(host)).err
    assert seen(folder) != {"crontab": ""}
    detent("unapply", *where(host), "--app", "shop")
    assert seen(folder) == {"crontab": ""}


def test_show_prints_what_the_host_has_of_a_job(host: tuple[str, ...], detent: Detent) -> None:
    assert "detent has written nothing there" in detent("show", "backup", *where(host)).err
    detent("apply", *host)
    shown = detent("show", "backup", *where(host))
    assert "# shop.backup.json: as written" in shown.out and "detent trigger" in shown.out
    assert "report" not in shown.out


def test_history_shows_who_changed_what(host: tuple[str, ...], detent: Detent) -> None:
    assert "nothing has been changed" in detent("history", *host[:2]).err
    detent("apply", *host)
    detent("unapply", *where(host))
    records = detent("history", *host[:2], "-o", "json", "-n", "100").json
    assert {one["verb"] for one in records} == {"apply", "unapply"}
    assert records[0]["verb"] == "unapply" and records[0]["app"] == "shop" and records[0]["user"]
    records = detent("history", "backup", *host[:2], "-o", "json").json
    assert {one["job"] for one in records} == {"shop.backup"}


def test_a_removed_job_is_deleted_and_a_disabled_one_is_not_created(
    host: tuple[str, ...], detent: Detent, folder: Path
) -> None:
    detent("apply", *host)
    assert "resting" not in str(seen(folder))
    lines = (folder / "detent.yaml").read_text().splitlines()
    (folder / "detent.yaml").write_text("\n".join(line for line in lines if "report" not in line))
    assert {change["action"] for change in detent("apply", *host, "-o", "json").json} == {"delete"}
    assert "report" not in str(seen(folder)) and "shop.backup" in str(seen(folder))


def test_racing_applies_leave_one_of_each(host: tuple[str, ...], detent: Detent, folder: Path) -> None:
    detent("apply", *host)
    alone = seen(folder)
    detent("unapply", *where(host))
    env = environment(folder, DETENT_SPEC_DIR=str(folder / "specs"))
    words = [sys.executable, "-m", "detent", "apply", *host]
    racers = [subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE) for _ in range(3)]
    said = [racer.communicate()[0].decode() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert sorted(map(bool, said)) == [False, False, True]
    assert seen(folder) == alone


def test_a_foreign_resource_with_our_name_blocks(
    detent: Detent, crontab: tuple[str, ...], folder: Path
) -> None:
    (folder / "specs").mkdir()
    (folder / "specs" / "shop.backup.json").write_text("{}\n")
    refused = detent("apply", *crontab)
    assert refused.code == 1 and "shop.backup.json" in refused.err and "adopt" in refused.err
    assert detent("adopt", *crontab).code == 6
    assert (folder / "specs" / "shop.backup.json").read_text() == "{}\n"
    assert not (folder / "crontab").exists()
    assert detent("adopt", *crontab, "--force").code == 0
    assert "shop.backup" in (folder / "crontab").read_text()
    assert detent("apply", *crontab).code == 0


def test_seconds_are_refused_before_anything_is_written(
    detent: Detent, crontab: tuple[str, ...], folder: Path
) -> None:
    (folder / "detent.yaml").write_text(MANIFEST.replace("30 2 * * *", "*/10 * * * * *"))
    refused = detent("apply", *crontab)
    assert refused.code == 1
    assert (
        "shop.backup" in refused.err
        and "--host systemd" in refused.err
        and "nothing was changed" in refused.err
    )
    assert seen(folder) == {"crontab": ""}


def test_an_atomic_write_keeps_mode_and_owner_and_a_backup_exists(
    detent: Detent, crontab: tuple[str, ...], folder: Path
) -> None:
    table = folder / "crontab"
    table.write_text(FOREIGN_SYSTEM)
    table.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(table, 12345, 23456)
    before = table.stat()
    detent("apply", *crontab)
    after = table.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino
    (backup,) = (folder / "state" / "detent" / "hosts" / "backups").iterdir()
    assert backup.read_text() == FOREIGN_SYSTEM
    detent("unapply", *where(crontab))
    assert table.read_text() == FOREIGN_SYSTEM


def test_a_spec_loads_as_a_manifest_and_keeps_a_password_to_its_owner(
    detent: Detent, crontab: tuple[str, ...], folder: Path
) -> None:
    detent("apply", *crontab)
    spec = folder / "specs" / "shop.backup.json"
    assert stat.S_IMODE(spec.stat().st_mode) == 0o644
    assert json.loads(spec.read_text())["store"] == {"url": f"sqlite:///{folder}/fires.db"}
    assert detent("validate", "-f", str(spec)).code == 0
    secret = "postgresql://me:hunter2@db/shop"
    planned = detent("plan", *crontab, "--store", secret)
    assert "***" in planned.out and "hunter2" not in planned.out
    assert "hunter2" not in detent("apply", *crontab, "--store", secret, "-o", "json").out
    assert stat.S_IMODE(spec.stat().st_mode) == 0o600
    assert json.loads(spec.read_text())["store"]["url"] == secret


def test_a_secret_in_the_manifest_is_not_written_down(
    detent: Detent, crontab: tuple[str, ...], folder: Path
) -> None:
    with_secret = MANIFEST.replace("store:", "secrets: {key: s3cret}\nstore:").replace(
        'request: {url: "https://example.org/r"}',
        'request: {url: "https://example.org/r"}, auth: {secret_refs: [key]}',
    )
    (folder / "detent.yaml").write_text(with_secret)
    refused = detent("apply", *crontab)
    assert refused.code == 1 and "file:/path" in refused.err and "s3cret" not in refused.err
    (folder / "detent.yaml").write_text(with_secret.replace("s3cret", "env:SHOP_KEY"))
    applied = detent("apply", *crontab)
    assert applied.code == 0 and "SHOP_KEY, which cron does not have" in applied.err
    assert json.loads((folder / "specs" / "shop.report.json").read_text())["secrets"] == {
        "key": "env:SHOP_KEY"
    }


def test_an_option_of_another_host_is_refused(detent: Detent, crontab: tuple[str, ...]) -> None:
    assert "--unit-dir is only for --host systemd" in detent("plan", *crontab, "--unit-dir", "x").err


# Signatures.

SERVED = {"name": "a", "schedule": "@daily", "auth": {"secret_refs": []}}


def test_an_unsigned_job_of_an_app_that_serves_its_manifest_is_a_warning(
    detent: Detent, crontab: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a secret is named: then it signs the fetch and stands in the specs."""
    monkeypatch.setenv("KEY", "a-secret-of-the-test")
    document: dict[str, object] = {"version": 1, "app": "shop"}

    def answer(peer: socket.socket, _: threading.Event) -> None:
        heard(peer)
        body = json.dumps(document).encode()
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with serving(answer) as served:
        url = f"http://127.0.0.1:{served.port}"
        document["jobs"] = [{**SERVED, "request": {"url": f"{url}/a"}}]
        planned = detent("plan", "-f", url, *crontab)
        assert planned.code == 0 and "shop.a: its requests to" in planned.err and "not signed" in planned.err
        signed = detent("plan", "-f", url, *crontab, "--secret-ref", "env:KEY")
        assert signed.code == 0 and "not signed" not in signed.err
        assert detent("apply", "-f", url, *crontab, "--secret-ref", "env:KEY").code == 0
    spec = json.loads((folder / "specs" / "shop.a.json").read_text())
    assert spec["jobs"][0]["auth"] == {"secret_refs": ["env:KEY"]}


def test_an_unsigned_job_beside_signed_ones_is_a_warning(
    detent: Detent, crontab: tuple[str, ...], folder: Path
) -> None:
    jobs = [
        {"name": name, "schedule": "@daily", "request": {"url": url}, "auth": {"secret_refs": secrets}}
        for name, url, secrets in [
            ("signed", "https://app.example.org/a", ["env:KEY"]),
            ("plain", "https://app.example.org/b", []),
            ("elsewhere", "https://ping.example.net/c", []),
        ]
    ]
    (folder / "detent.yaml").write_text(json.dumps({"version": 1, "app": "shop", "jobs": jobs}))
    warnings = [line for line in detent("plan", *crontab).err.splitlines() if "not signed" in line]
    assert len(warnings) == 1 and "shop.plain" in warnings[0]


# Taking over.


def adoptable(folder: Path, host: tuple[str, ...], at: str, user: str = "root") -> Path:
    """Write an entry of another owner that does the same as shop.backup, at this time."""
    command = 'echo "100% done"'
    if "crontab" in host:
        (folder / "crontab").write_text(
            f"MAILTO=ops\n{at} * * * {user} {command}\n0 1 * * * root true\n".replace("100%", "100\\%")
        )
        return folder / "crontab"
    units = folder / "units"
    units.mkdir()
    minute, hour = at.split()
    (units / "old.timer").write_text(f"[Timer]\nOnCalendar=*-*-* {hour}:{minute}:00 UTC\n")
    named = f"User={user}\n" if user != "root" else ""
    (units / "old.service").write_text(f"[Service]\nExecStart=/bin/sh -c 'echo \"100%% done\"'\n{named}")
    return units / "old.timer"


def test_an_entry_with_the_same_work_is_adopted(host: tuple[str, ...], detent: Detent, folder: Path) -> None:
    adoptable(folder, host, "30 2")
    taken = detent("adopt", *host, "-o", "json")
    assert taken.code == 0, taken.err
    assert [(one["job"], one["differences"]) for one in taken.json] == [("shop.backup", [])]
    left = seen(folder)
    assert "shop.backup" in str(left) and "shop.report" not in str(left)
    assert "30 2 * * * root echo" not in left["crontab"] and not (folder / "units" / "old.timer").exists()
    if "crontab" in host:
        assert left["crontab"].endswith("MAILTO=ops\n0 1 * * * root true\n")
    assert any((folder / "state" / "detent" / "hosts" / "backups").iterdir())
    assert detent("adopt", *host).code == 7


def test_a_different_entry_is_adopted_only_with_force(
    host: tuple[str, ...], detent: Detent, folder: Path
) -> None:
    adoptable(folder, host, "45 3")
    before = seen(folder)
    diverged = detent("adopt", *host)
    assert diverged.code == 6
    assert "30 2 * * *" in diverged.out and "--force" in diverged.err
    assert seen(folder) == before
    assert detent("adopt", *host, "--force").code == 0
    assert "shop.backup" in str(seen(folder)) and "45 3" not in seen(folder)["crontab"]


def test_an_entry_of_a_user_does_not_become_one_of_root(
    host: tuple[str, ...], detent: Detent, folder: Path
) -> None:
    """The job names no user; root is only the default of triggers, not a choice of the operator."""
    adoptable(folder, host, "30 2", user="nobody")
    before = seen(folder)
    for words in ((), ("--force",)):
        refused = detent("adopt", *host, *words)
        assert refused.code == 6, refused.out
        assert "it runs as nobody, the job as root" in refused.out
        assert "shop.backup would run as root" in refused.err and "user: nobody" in refused.err
        assert seen(folder) == before


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to write files for another user")
def test_an_entry_of_a_user_is_taken_over_by_triggers_of_that_user(
    host: tuple[str, ...], detent: Detent, folder: Path
) -> None:
    adoptable(folder, host, "30 2", user="nobody")
    assert detent("adopt", *host, "--run-as", "nobody").code == 0
    left = seen(folder)
    assert "30 2 * * * nobody /usr/local" in left["crontab"] or "--uid nobody" in str(left)


def test_an_entry_of_a_user_is_taken_over_by_a_job_of_that_user(
    host: tuple[str, ...], detent: Detent, folder: Path
) -> None:
    path = adoptable(folder, host, "30 2", user="nobody")
    manifest = folder / "detent.yaml"
    manifest.write_text(manifest.read_text().replace("name: backup,", "name: backup, user: nobody,"))
    assert "user: nobody" in manifest.read_text()
    taken = detent("adopt", *host)
    assert taken.code == 0, taken.out + taken.err
    assert "old" not in path.name or not path.exists()


def test_an_entry_that_triggers_the_job_as_a_user_does_not_become_one_of_root(
    detent: Detent, crontab: tuple[str, ...], folder: Path
) -> None:
    (folder / "crontab").write_text("30 2 * * * nobody /opt/detent trigger shop.backup\n")
    assert detent("adopt", *crontab, "--force").code == 6
    assert (folder / "crontab").read_text() == "30 2 * * * nobody /opt/detent trigger shop.backup\n"


@pytest.mark.parametrize(
    ("setting", "message", "code"),
    [
        ("DynamicUser=yes", "it runs as a dynamic user, the job as root", 6),
        ("NoNewPrivileges=yes", "it is restricted by NoNewPrivileges, and the job is not", 0),
        ("CapabilityBoundingSet=CAP_NET_RAW", "it is restricted by CapabilityBoundingSet", 0),
        ("Group=adm", "it is restricted by Group", 0),
    ],
)
def test_a_restricted_service_is_adopted_only_with_force(
    detent: Detent, systemd: tuple[str, ...], folder: Path, setting: str, message: str, code: int
) -> None:
    adoptable(folder, systemd, "30 2")
    service = folder / "units" / "old.service"
    service.write_text(service.read_text() + f"{setting}\n")
    refused = detent("adopt", *systemd)
    assert refused.code == 6 and message in refused.out
    assert detent("adopt", *systemd, "--force").code == code


def test_adopt_exits_with_7_if_no_entry_matches(host: tuple[str, ...], detent: Detent) -> None:
    nothing = detent("adopt", *host)
    assert nothing.code == 7 and "no entry matches a job of" in nothing.err


def test_a_line_that_triggers_the_job_already_is_taken_over(
    detent: Detent, crontab: tuple[str, ...], folder: Path
) -> None:
    (folder / "crontab").write_text(
        "30 2 * * * root /opt/detent trigger --lock-dir /x shop.backup >/dev/null\n"
    )
    assert detent("adopt", *crontab).code == 0
    assert (folder / "crontab").read_text().count(" trigger ") == 1


@pytest.mark.parametrize("verb", ["list", "show", "unapply", "history", "status", "prune"])
def test_a_verb_that_writes_nothing_to_a_host_has_no_options_for_writing(detent: Detent, verb: str) -> None:
    said = detent(verb, "--help").out
    assert not any(option in said for option in ("--cpu", "--image", "--role-arn", "--detent", "--render"))


def test_prune_is_about_history_only(detent: Detent) -> None:
    assert "--host" not in detent("prune", "--help").out
    said = detent("prune", "--host", "crontab")
    assert said.code == 2 and "unexpected argument: --host" in said.err
