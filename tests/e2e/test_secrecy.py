"""Secrets given by reference appear nowhere, and files are readable only by their owner."""

import stat
from pathlib import Path

from tests.equipment.fleet import NEVER, Fleet, wait_for

FIRST, SECOND, THIRD = "s3cret-of-the-environment", "s3cret-of-a-file", "s3cret-of-the-table"


def test_a_secret_appears_nowhere(fleet: Fleet) -> None:
    file = fleet.directory / "key"
    file.write_text(SECOND + "\n")
    dead = "http://127.0.0.1:9/run"  # no server listens there; the error must not contain the secret either
    refs = {"auth": {"secret_refs": ["env:SIGNER", f"file:{file}"]}, "request": {"url": dead}}
    retries = {"policy": {"retries": {"max_attempts": 1}}}
    show = "env; tr '\\0' '\\n' < /proc/$PPID/environ; sleep 60"
    fleet.write(
        {"name": "call", "schedule": NEVER, **refs, **retries},
        {"name": "named", "schedule": NEVER, **refs, **retries, "auth": {"secret_refs": ["TABLE", "absent"]}},
        {"name": "show", "schedule": NEVER, "command": show},
        secrets={"TABLE": "env:OTHER"},
        node={"drain_seconds": 0},
    )
    node = fleet.start(SIGNER=FIRST, OTHER=THIRD)
    for job in ("call", "named"):
        row = fleet.wait_over(fleet.fire(job))
        assert row.outcome is not None and row.outcome.kind == "failed"
    shown = fleet.fire("show")
    wait_for(lambda: any(b"DETENT_FIRE=" in path.read_bytes() for path in _outputs(fleet)), what="output")

    places = {str(path): path.read_bytes() for path in _files(fleet) if path != file}
    places |= {str(path): _read(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    assert node.end() == 0
    places |= {f"{path}, later": path.read_bytes() for path in _files(fleet) if path != file}
    assert fleet.row(shown).attempts[0].tail
    assert fleet.database.with_name("detent.db-wal").name in {Path(name).name for name in places}
    for secret in (FIRST, SECOND, THIRD):
        assert [name for name, content in places.items() if secret.encode() in content] == []


def test_the_log_masks_a_secret_in_the_output_of_the_work(fleet: Fleet) -> None:
    file = fleet.directory / "key"
    file.write_text(SECOND)
    says = f"cat {file}; echo; echo password=sesame; exit 3"
    fleet.write(
        {"name": "says", "schedule": NEVER, "command": says},
        {"name": "other", "schedule": NEVER, "command": "true"},
        secrets={"KEY": f"file:{file}"},
    )
    node = fleet.start()
    fleet.wait_over(fleet.fire("says"))
    event = node.wait("retries-exhausted")
    assert event["body_excerpt"].splitlines() == ["***", "password=***"]


def test_files_are_readable_only_by_their_owner(fleet: Fleet) -> None:
    fleet.write({"name": "job", "schedule": NEVER, "command": "echo hello; sleep 60"})
    fleet.start()
    fleet.fire("job")
    wait_for(lambda: _outputs(fleet), what="output")

    below = list(fleet.database.parent.rglob("*"))
    assert {path.suffix for path in below} >= {".db", ".db-wal", ".db-shm", ".lock", ".log"}
    assert {_mode(path) for path in below if path.is_file()} == {0o600}
    assert {_mode(path) for path in [fleet.database.parent, *below] if path.is_dir()} == {0o700}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _outputs(fleet: Fleet) -> list[Path]:
    """The output of the running commands."""
    return list(fleet.instances.glob("*/*.log"))


def _files(fleet: Fleet) -> list[Path]:
    return [path for path in fleet.directory.rglob("*") if path.is_file()]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
