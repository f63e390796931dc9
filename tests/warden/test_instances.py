"""The proof that an instance is dead: real processes, real locks."""

import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from detent.errors import UsageError
from detent.warden.instances import LANES, DeadInstances, Instance, instance_name

LIVE = """
import sys, signal
from pathlib import Path
from detent.warden.instances import Instance
instance = Instance(Path(sys.argv[1]), "host")
instance.begin()
print(instance.name, flush=True)
signal.pause()
"""


def a_life_of_its_own(directory: Path) -> tuple[subprocess.Popen[str], str]:
    words = [sys.executable, "-c", LIVE, str(directory)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, process.stdout.readline().strip()


def test_an_instance_is_dead_when_its_process_is_gone_and_not_before(tmp_path: Path) -> None:
    process, name = a_life_of_its_own(tmp_path)
    dead_instances = DeadInstances(tmp_path, "me")
    try:
        assert dead_instances.find() == []
        process.send_signal(signal.SIGSTOP)
        assert dead_instances.find() == []
    finally:
        process.kill()
        process.wait()
    assert dead_instances.find() == [name]
    assert dead_instances.find() == [], "each is returned once"
    dead_instances.remove(name)
    assert [path.name for path in tmp_path.iterdir()] == [LANES]


def test_only_one_process_takes_over_a_dead_instance(tmp_path: Path) -> None:
    process, name = a_life_of_its_own(tmp_path)
    process.kill()
    process.wait()
    first, second = DeadInstances(tmp_path, "a"), DeadInstances(tmp_path, "b")
    assert first.find() == [name] and second.find() == []
    first.close()
    assert second.find() == [name], "the first went away before it had removed it"
    second.close()


@pytest.mark.parametrize(
    ("node_id", "kind", "pattern"),
    [
        ("web-1", "", r"web-1\.[0-9a-f]{8}"),
        ("web 1/ä.lan", "", r"web-1-lan\.[0-9a-f]{8}"),
        ("web-1", "lock", r"web-1\.lock-[0-9a-f]{8}"),
        ("w" * 99, "hand", r"w{60}\.hand-[0-9a-f]{8}"),
    ],
)
def test_the_name_of_an_instance_is_new_and_fits_a_path(node_id: str, kind: str, pattern: str) -> None:
    names = {instance_name(node_id, kind) for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(pattern, name) for name in names)


def test_an_instance_that_ends_normally_leaves_nothing(tmp_path: Path) -> None:
    instance = Instance(tmp_path / "nodes", "web 1/ä")
    instance.begin()
    assert instance.name.startswith("web-1-")
    lock = tmp_path / "nodes" / f"{instance.name}.lock"
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    assert (
        stat.S_IMODE(Path(instance.outputs).stat().st_mode)
        == stat.S_IMODE(lock.parent.stat().st_mode)
        == 0o700
    )
    instance.end()
    assert [path.name for path in (tmp_path / "nodes").iterdir()] == [LANES]


def test_a_directory_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        Instance(tmp_path / "file" / "nodes", "n").begin()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other.lock").symlink_to("/etc/hostname")
    assert DeadInstances(tmp_path, "me").find() == []
