"""`detent doctor`: its ok, weak and bad rows; and `detent run` with a store that is weak."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
from tests.cli.cli_world import MANIFEST, Detent, Past, call, command, environment, until

from detent import __version__
from detent.cli.look import doctor_host
from detent.cli.look.doctor_access import access_rows
from detent.cli.look.doctor_host import clock_offset
from detent.loading.config import nodes_directory
from detent.rules.fingerprint import fingerprint
from detent.stores.sqlite.health import promise
from detent.warden.program.cgroups import find_cgroup

IN_MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def manifest(folder: Path) -> Path:
    folder.chmod(0o755)
    file = folder / "detent.yaml"
    file.write_text(MANIFEST)
    file.chmod(0o644)
    return file


def rows(detent: Detent, *words: str) -> dict[str, dict[str, Any]]:
    return {row["what"]: row for row in detent("doctor", "-o", "json", *words).json}


def test_a_sound_host_has_nothing_bad_and_says_what_it_found(detent: Detent) -> None:
    found = rows(detent)
    assert detent("doctor").code == 0
    assert found["store"]["found"] == "sqlite:///try.db does not exist yet: `detent run` creates it"
    for what in ("manifest", "durability", "disk space", "orphans", "versions", "claims"):
        assert found[what]["state"] == "ok", found[what]
    assert __version__ in found["versions"]["found"]
    assert found["cgroup"]["state"] == ("ok" if find_cgroup() else "weak")
    assert all(row["consequence"] for row in found.values() if row["state"] != "ok")


def test_looking_creates_no_store(detent: Detent, folder: Path) -> None:
    detent("doctor")
    assert sorted(path.name for path in folder.iterdir()) == ["detent.yaml"]


def test_the_screen_has_a_line_for_each_row_with_its_consequence_and_advice(
    detent: Detent, manifest: Path
) -> None:
    manifest.chmod(0o666)
    said = detent("doctor")
    assert said.code == 1
    lines = said.out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("bad "))
    assert lines[at].split()[:3] == ["bad", "manifest", "detent.yaml"]
    assert lines[at + 1].strip() == "every user of this host can run commands as you"
    assert lines[at + 2].strip() == "→ chmod o-w detent.yaml"
    assert lines[-1].endswith("1 bad")


def test_a_weak_row_fails_only_on_request(detent: Detent, folder: Path) -> None:
    Past(folder)  # a store, and no node
    (folder / "try.db").touch(mode=0o600)
    assert rows(detent)["nodes"]["found"] == "no node is alive"
    assert detent("doctor").code == 0
    assert detent("doctor", "--strict").code == 1


def test_a_broken_manifest_is_a_row_and_the_rest_is_examined(detent: Detent, manifest: Path) -> None:
    manifest.write_text("version: 2\napp: demo\njobs: 7\n")
    found = rows(detent)
    assert found["manifest"]["state"] == "bad"
    assert "detent.yaml:3" in found["manifest"]["found"]
    assert "store" in found
    assert detent("doctor").code == 1


def test_without_a_manifest_the_host_is_examined(detent: Detent, manifest: Path) -> None:
    manifest.unlink()
    found = rows(detent)
    assert "manifest" not in found
    assert "cgroup" in found


def test_a_store_that_cannot_be_used_is_bad(detent: Detent, folder: Path) -> None:
    (folder / "try.db").write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    found = rows(detent)
    assert found["store"]["state"] == "bad"
    assert "not a detent store" in found["store"]["found"]
    assert "nodes" not in found


@pytest.mark.parametrize(("mode", "state"), [(0o600, "ok"), (0o644, "weak"), (0o666, "bad")])
def test_permissions_of_the_store_are_reported(detent: Detent, folder: Path, mode: int, state: str) -> None:
    Past(folder).store.notes("demo")
    (folder / "try.db").chmod(mode)
    assert rows(detent)["store file"]["state"] == state


def test_a_world_writable_directory_is_bad(detent: Detent, folder: Path) -> None:
    folder.chmod(0o777)
    found = rows(detent)
    assert found["store directory"]["state"] == found["manifest"]["state"] == "bad"
    folder.chmod(0o1777)
    assert rows(detent)["manifest"]["state"] == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory to another user")
def test_a_store_directory_of_another_user_is_bad(detent: Detent, folder: Path) -> None:
    """This includes one with the sticky bit: its owner may replace every file."""
    theirs = folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, -1)
    theirs.chmod(0o1777)
    found = rows(detent, "--store", f"sqlite:///{theirs}/try.db")["store directory"]
    assert found["state"] == "bad"
    assert "can replace your files" in found["consequence"]


@pytest.mark.parametrize(("mode", "state"), [(0o777, "bad"), (0o700, "ok")])
def test_permissions_of_the_state_directory_are_reported(
    detent: Detent, folder: Path, mode: int, state: str
) -> None:
    nodes = folder / nodes_directory("sqlite:///try.db", {})
    nodes.mkdir()
    nodes.chmod(mode)
    assert rows(detent)["state directory"]["state"] == state


ACCESS: dict[str, set[str]] = {
    "redis://10.0.0.7": {"store access"},
    "redis+cluster://127.0.0.1:1,cache.example.com:2": {"store access"},
    "redis://me@cache.example.com/0": {"store access"},
    "redis://:s3cret@cache.example.com/0": set(),
    "redis://127.0.0.1:6379/0": set(),
    "redis://localhost": set(),
    "redis://[::1]:6379": set(),
    "unix:///run/redis.sock": set(),
    "rediss://:s3cret@cache.example.com?ssl_cert_reqs=none": {"store TLS"},
    "rediss://:s3cret@cache.example.com?ssl_check_hostname=false": {"store TLS"},
    "rediss://:s3cret@cache.example.com?ssl_ca_certs=/ca.pem": set(),
    "rediss://cache.example.com?ssl_certfile=/me.pem": set(),
    "postgresql://me@db.example.com/x": {"store TLS"},
    "postgresql://me@/x?host=db.example.com&sslmode=require": {"store TLS"},
    "postgresql://me@db.example.com/x?sslmode=require&sslrootcert=/ca.pem": set(),
    "postgresql://me@db.example.com/x?sslmode=verify-full": set(),
    "postgresql://me@localhost/x": set(),
    "postgresql://me@/x?host=/run/postgresql": set(),
    "sqlite:///try.db": set(),
}


@pytest.mark.parametrize(("url", "named"), ACCESS.items())
def test_a_server_on_another_host_needs_a_password_and_tls_that_is_checked(
    url: str, named: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    found = list(access_rows(url))
    assert {row.what for row in found} == named
    assert all(row.state == "weak" and row.advice and "s3cret" not in repr(row) for row in found)


def test_a_redis_without_a_password_and_a_short_secret_are_rows(
    detent: Detent, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNER", "only-12-long")
    job = {"name": "a", "schedule": "@daily", "request": {"url": "http://127.0.0.1/"}}
    document = {"version": 2, "app": "demo", "jobs": [{**job, "auth": {"secret_refs": ["env:SIGNER"]}}]}
    manifest.write_text(json.dumps(document))
    found = rows(detent, "--store", "redis://nowhere.invalid:1")
    assert found["store access"]["state"] == "weak"
    assert found["secrets"]["found"] == 'the secret "env:SIGNER" has 12 bytes'


def test_a_manifest_that_others_can_read_should_hold_no_secret(detent: Detent, manifest: Path) -> None:
    manifest.write_text(MANIFEST + "secrets: {pay: hunter2}\n")
    assert "secrets" in rows(detent)["manifest"]["consequence"]
    manifest.chmod(0o600)
    assert rows(detent)["manifest"]["state"] == "ok"


def test_the_machine_file_is_looked_at(detent: Detent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = folder / "machine.yaml"
    machine.write_text("secrets: {pay: hunter2}\n")
    machine.chmod(0o644)
    monkeypatch.setenv("DETENT_CONFIG", str(machine))
    row = rows(detent)["machine file"]
    assert (row["state"], row["consequence"]) == ("weak", "others can read the secrets in it")
    assert "hunter2" not in str(row)


@pytest.mark.parametrize(("limit", "state"), [("FREE_ADVISED", "weak"), ("FREE_LOW", "bad")])
def test_little_disk_space_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str, state: str
) -> None:
    assert doctor_host.disk_space("disk space", folder / "not" / "yet").state == "ok"
    monkeypatch.setattr(doctor_host, limit, 1 << 80)
    row = doctor_host.disk_space("disk space", folder / "not" / "yet")
    assert (row.state, row.consequence) == (state, doctor_host.FULL)


def test_a_wrong_clock_is_weak_in_either_direction() -> None:
    assert clock_offset(0.4).state == "ok"
    assert "5.0 s ahead of" in clock_offset(5).found
    assert (clock_offset(-70).state, "70.0 s behind" in clock_offset(-70).found) == ("weak", True)


def test_jobs_that_cannot_be_ended_alone_and_short_claims_are_named(detent: Detent, manifest: Path) -> None:
    manifest.write_text(
        MANIFEST
        + '  - {name: bound, schedule: "@daily", call: "json:dumps", isolation: thread}\n'
        + "  - {name: brief, schedule: '@daily', command: 'true', policy: {claim_seconds: 5}}\n"
    )
    found = rows(detent)
    assert found["in-process calls"]["found"] == "demo.bound"
    assert (found["claims"]["state"], found["claims"]["found"]) == ("weak", "demo.brief")


def test_nodes_that_agree_are_ok_and_others_are_reported(detent: Detent, folder: Path) -> None:
    past = Past(folder)
    own = fingerprint((job.name, job.revision) for job in past.jobs.values())
    past.beat(fingerprint=own, version="1")
    row = rows(detent)["nodes"]
    assert (row["state"], row["found"]) == ("ok", '1 node on "elsewhere", with the jobs of this manifest')
    other = {"host": "b", "queues": ["default"], "fingerprint": own, "version": "2"}
    past.store.note("demo", "node/b.life", json.dumps(other), 30)
    assert "of several versions" in rows(detent)["nodes"]["found"]
    past.store.note("demo", "node/b.life", json.dumps(other | {"fingerprint": "else"}), 30)
    assert "the newest deploy runs" in rows(detent)["nodes"]["consequence"]


# A weak store.


@pytest.fixture
def in_memory() -> Iterator[Path]:
    if not IN_MEMORY.is_dir() or promise(IN_MEMORY / "x.db")[0].state != "weak":
        pytest.skip(f"{IN_MEMORY} is no tmpfs here")
    place = Path(mkdtemp(dir=IN_MEMORY))
    yield place
    rmtree(place)


def test_a_node_logs_the_weakness_of_its_store_once(folder: Path, in_memory: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST.replace("30 2 * * *", "*/7 2 * * *"))
    log = folder / "run.log"
    with log.open("wb") as stream:
        words = command("run", "--store", f"sqlite:///{in_memory}/x.db")
        node = subprocess.Popen(words, cwd=folder, env=environment(folder), stderr=stream)
    until("the node has started", lambda: '"event": "started"' in log.read_text())
    node.terminate()
    node.wait(30)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    weak = [event for event in events if event["event"] == "store-weak"]
    assert [(event["level"], event["app"]) for event in weak] == [("WARN", "demo")]
    assert "gone after a reboot" in weak[0]["error"]


def test_a_weak_store_is_refused_if_full_is_required(folder: Path, in_memory: Path) -> None:
    url = f"sqlite:///{in_memory}/x.db"
    text = MANIFEST.replace("store: sqlite:///try.db", f"store: {{url: '{url}', require: full}}")
    (folder / "detent.yaml").write_text(text)
    said = call(folder, "run")
    assert said.code == 1
    assert "too weak for `store.require: full`" in said.err
    assert "name a path on a disk" in said.err
    assert "Traceback" not in said.err
    assert list(in_memory.iterdir()) == [], "nothing was created"
