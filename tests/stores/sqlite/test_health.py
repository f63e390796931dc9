"""What `doctor` reports about the file system of a SQLite store."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.stores.registry import promise_of, upkeep_of
from detent.stores.sqlite.health import promise, upkeep

MOUNTS = "1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / /data rw - {} none rw\n"


@pytest.mark.parametrize(
    ("kind", "state", "expected"),
    [
        ("ext4", "ok", "every commit is synced (ext4)"),
        ("xfs", "ok", "every commit is synced (xfs)"),
        ("overlay", "ok", "every commit is synced (overlay)"),
        ("tmpfs", "weak", "is in memory (tmpfs)"),
        ("ramfs", "weak", "is in memory (ramfs)"),
        ("nfs4", "bad", "is on a network disk (nfs4)"),
    ],
)
def test_the_file_system_decides_whether_writes_survive_a_crash(kind: str, state: str, expected: str) -> None:
    [row] = promise("/data/deep/detent.db", MOUNTS.format(kind))
    assert (row.what, row.state) == ("durability", state)
    assert expected in row.found
    assert bool(row.consequence) == bool(row.advice) == (state != "ok")


def test_mounts_elsewhere_do_not_matter() -> None:
    [row] = promise("/other/detent.db", MOUNTS.format("tmpfs"))
    assert row.state == "ok"


@pytest.mark.parametrize(("kind", "rows"), [("overlay", 1), ("ext4", 0), ("tmpfs", 0)])
def test_a_store_in_a_containers_layer_is_reported(kind: str, rows: int) -> None:
    found = upkeep("/data/detent.db", MOUNTS.format(kind))
    assert len(found) == rows
    assert all(row.state == "weak" and "volume" in row.advice for row in found)


def test_a_url_leads_to_the_checks_of_its_store(tmp_path: Path) -> None:
    assert [row.state for row in promise_of("memory:")] == ["weak"]
    assert upkeep_of("memory:") == ()
    assert promise_of(f"sqlite:///{tmp_path}/x.db") == promise(tmp_path / "x.db")
    assert not (tmp_path / "x.db").exists()
