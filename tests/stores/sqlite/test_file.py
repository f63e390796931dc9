"""The file of the SQLite store: permissions, locks, fairness and errors."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from detent.errors import DetentError, StoreMismatch, StoreUnavailable
from detent.model import Ask, Query, Report
from detent.stores.sqlite import file as sqlite_file
from detent.stores.sqlite import schema
from detent.stores.sqlite.file import network_disk
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import DONE, fire, found

IS_ROOT = os.geteuid() == 0
HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""
WRITE = """
import sys
from detent.model import Ask, Report
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import DONE, fire
store, number = SqliteStore(sys.argv[1]), 0
while True:
    number += 1
    store.put([fire(f"a.b@{number}-{one}") for one in range(20)])
    claims = store.claim(Ask("a", "writer", number, limit=20)).claims
    store.finish([Report(claim, DONE, tail=b"x" * 4000) for claim in claims])
    print(number, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "store.db")) as one:
        yield one


# Opening.


def test_the_file_its_log_and_its_directory_are_for_their_owner_only(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "state" / "detent" / "store.db")
        store.put([fire("a.b@1")])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").rglob("*")}
        store.close()
    finally:
        os.umask(previous)
    private = 0o600
    files = dict.fromkeys(("store.db", "store.db-wal", "store.db-shm", "store.db-writer"), private)
    assert modes == {"detent": 0o700, **files}


def test_a_path_may_look_like_a_url(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=memory#b%41 c.db"
    with closing(SqliteStore(path)) as store:
        store.put([fire("a.b@1")])
    assert path.stat().st_size > 0


def test_a_relative_path_does_not_follow_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(SqliteStore("store.db")) as store:
        monkeypatch.chdir("/")
        store.put([fire("a.b@1")])
    assert (tmp_path / "store.db").exists()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        assert store.put([fire("a.b@1")]) == [True]


def link(path: Path) -> None:
    path.with_name("elsewhere").touch()
    path.symlink_to("elsewhere")


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE fires (key)")


def newer(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.find(Query())
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")


def damaged(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.put([fire(f"a.b@{number}", payload="x" * 500) for number in range(200)])
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))


STRANGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a symbolic link": (link, "symbolic link: name the file itself"),
    "a directory": (lambda path: path.mkdir(), "not a file"),
    "a named pipe": (lambda path: os.mkfifo(path), "not a file"),
    "a text": (lambda path: path.write_text("jobs:\n" * 1000), "not a detent store, or is damaged"),
    "a damaged file": (damaged, "restore a backup"),
    "another program's database": (foreign, "belongs to another program"),
    "a newer schema": (newer, "upgrade detent"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_file_of_another_program_is_refused_and_not_changed(what: str, tmp_path: Path) -> None:
    make, said = STRANGE[what]
    path = tmp_path / "store.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with closing(SqliteStore(path)) as store, pytest.raises(StoreMismatch, match=said) as error:
        store.find(Query())
    assert str(path) in str(error.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


MOUNTS = """\
22 27 0:21 / / rw,relatime - ext4 /dev/vda rw
23 22 0:22 / /srv rw,relatime shared:1 - nfs4 filer:/srv rw
24 23 0:23 / /srv/local rw,relatime - xfs /dev/vdb rw
25 22 0:24 / /my\\040share rw,relatime - cifs //filer/share rw
26 22 0:25 / /over rw,relatime - ext4 /dev/vdc rw
27 26 0:26 / /over rw,relatime - fuse.sshfs host: rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/var/lib/detent", ""),
        ("/srv/detent", "nfs4"),
        ("/srvs", ""),
        ("/srv/local/detent", ""),
        ("/my share/x", "cifs"),
        ("/over/x", "fuse.sshfs"),
    ],
)
def test_a_network_disk_is_recognized_by_the_innermost_mount(directory: str, kind: str) -> None:
    assert network_disk(Path(directory), MOUNTS) == kind


# Sharing.


@contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a write transaction."""
    words = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_file_that_is_locked_for_too_long_is_an_error_that_names_it(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put([fire("a.b@1")])
    monkeypatch.setattr(sqlite_file, "BUSY_MAX_S", 0.2)
    with held(tmp_path / "store.db"):
        assert found(store) == ["a.b@1"]  # a reader waits for no writer
        with pytest.raises(StoreUnavailable, match="is locked by another process") as error:
            store.put([fire("a.b@2")])
    assert str(tmp_path / "store.db") in str(error.value)
    assert store.put([fire("a.b@2")]) == [True]


def test_a_file_that_is_locked_for_a_while_is_waited_for(store: SqliteStore, tmp_path: Path) -> None:
    store.put([fire("a.b@1")])
    with held(tmp_path / "store.db") as holder:
        answers: list[list[bool]] = []
        putter = threading.Thread(target=lambda: answers.append(store.put([fire("a.b@2")])))
        putter.start()
        putter.join(0.2)
        assert not answers
        holder.kill()
        putter.join(5)
    assert answers == [[True]]


def test_a_thread_that_ends_leaves_no_connection_behind(store: SqliteStore, tmp_path: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("open descriptors are counted in /proc, which is not here")
    store.find(Query())
    before = len(open_files(tmp_path))
    for number in range(20):
        thread = threading.Thread(target=lambda key: store.put([fire(key)]), args=(f"a.b@{number}",))
        thread.start()
        thread.join()
    # While the file is locked, SQLite keeps the descriptor of a closed connection, for the next one.
    assert len(open_files(tmp_path)) <= before + 2
    store.close()
    assert open_files(tmp_path) == []


def open_files(directory: Path) -> list[Path]:
    opened = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return [path for path in opened if path.is_relative_to(directory)]


def test_close_ends_a_wait_and_the_store_can_be_used_again(store: SqliteStore) -> None:
    answers: list[bool] = []
    store.put([fire("a.b@1")])
    waiter = threading.Thread(target=lambda: answers.append(store.wait("a", 600)), daemon=True)
    waiter.start()
    for _ in range(200):  # it may not have begun to wait yet
        store.close()
        waiter.join(0.05)
        if answers:
            break
    assert answers == [False]
    assert store.put([fire("a.b@1"), fire("a.b@2")]) == [False, True]


# Faults.


def test_acknowledged_writes_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for _ in range(3):
        path.unlink(missing_ok=True)
        words = [sys.executable, "-c", WRITE, str(path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            acknowledged = [writer.stdout.readline() for _ in range(8)][-1]
            writer.send_signal(signal.SIGKILL)
        with closing(SqliteStore(path)) as store:
            rows = store.find(Query(app="a", state="over", limit=10_000))
            assert len(rows) >= 20 * int(acknowledged)
            assert all(row.outcome == DONE.outcome and len(row.attempts) == 1 for row in rows)
            assert store.put([fire("a.b@next")]) == [True]
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@contextmanager
def small_disk(path: Path, size: str = "1m") -> Iterator[Path]:
    path.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "detent-test", str(path)]
    if not IS_ROOT or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("a small disk is a tmpfs of its own, which only root can mount")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.root
def test_a_full_disk_is_a_clear_error_and_loses_no_settled_outcome(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, closing(SqliteStore(disk / "store.db")) as store:
        store.put([fire("a.b@1"), fire("a.b@2")])
        first, second = store.claim(Ask("a", "n1", 1, limit=2)).claims
        store.finish([Report(first, DONE)])
        ballast = disk / "ballast"
        fill(ballast)
        big = Report(second, DONE, tail=os.urandom(60_000))
        with pytest.raises(StoreUnavailable, match="full") as error:
            store.finish([big])
        assert str(disk / "store.db") in str(error.value)
        assert found(store, state="over") == ["a.b@1"]
        ballast.unlink()
        assert store.finish([big]) == [DONE]
        assert store.find(Query(key="a.b@2"))[0].attempts[0].tail == big.tail


@pytest.mark.root
def test_a_disk_too_full_to_create_a_store_is_a_clear_error(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, closing(SqliteStore(disk / "store.db")) as store:
        fill(disk / "ballast")
        with pytest.raises(StoreUnavailable, match="full"):
            store.put([fire("a.b@1")])
        (disk / "ballast").unlink()
        assert store.put([fire("a.b@1")]) == [True]


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


@pytest.mark.root
def test_a_disk_that_fills_up_while_a_store_is_created_is_a_clear_error(tmp_path: Path) -> None:
    for free_bytes in range(0, 176 << 10, 16 << 10):
        with small_disk(tmp_path / str(free_bytes)) as disk:
            fill(disk / "ballast")
            with (disk / "ballast").open("r+b") as ballast:
                ballast.truncate((disk / "ballast").stat().st_size - free_bytes)
            with (
                closing(SqliteStore(disk / "store.db")) as store,
                pytest.raises(StoreUnavailable, match="is full"),
            ):
                store.put([fire("a.b@1")])


@pytest.mark.root
@pytest.mark.parametrize("is_closed", [False, True])
def test_pruning_works_on_a_full_disk(tmp_path: Path, is_closed: bool) -> None:
    with small_disk(tmp_path / "disk", "48m") as disk, closing(SqliteStore(disk / "store.db")) as store:
        _fill_with_history(store, 600)
        assert store.prune("a", 3600, keep=10_000) == 0
        assert stat.S_IMODE((disk / "store.db-reserve").stat().st_mode) == 0o600
        store.close() if is_closed else None
        fill(disk / "ballast")
        with pytest.raises(StoreUnavailable, match=r"is full: .*run `detent prune`"):
            for _ in range(20):  # the log may have some room still
                _fill_with_history(store, 600)
        assert store.prune("a", 0, keep=0) >= 600
        assert found(store, state="over") == []
        _fill_with_history(store, 300)  # where the older rows were


@pytest.mark.root
def test_a_small_disk_has_no_reserve_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, closing(SqliteStore(disk / "store.db")) as store:
        store.put([fire("a.b@1")])
        fill(disk / "ballast")
        assert not (disk / "store.db-reserve").exists()
        with pytest.raises(
            StoreUnavailable, match=r"is full: free some space \(with 8 MiB, `detent prune` works\)"
        ):
            _fill_with_history(store, 600)


def _fill_with_history(store: SqliteStore, count: int) -> None:
    name = os.urandom(4).hex()
    store.put([fire(f"a.{name}@{number}") for number in range(count)])
    claims = store.claim(Ask("a", name, 1, limit=count)).claims
    store.finish([Report(claim, DONE, tail=bytes(8000)) for claim in claims])


@pytest.mark.root
def test_a_read_only_disk_is_a_clear_error(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "store.db"
        with closing(SqliteStore(path)) as store:
            store.put([fire("a.b@1")])
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with closing(SqliteStore(path)) as store, pytest.raises(StoreUnavailable, match="read-only") as error:
            store.put([fire("a.b@2")])
        assert str(path) in str(error.value)


@pytest.mark.parametrize("path", ["store.db", "private/store.db", "private/deeper/store.db"])
def test_missing_permissions_are_a_clear_error(path: str) -> None:
    """Permissions do not apply to root, so the test runs as the user nobody."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "private").mkdir(mode=0o500)
        with closing(SqliteStore(directory / "store.db")) as store:
            store.find(Query())
        (directory / "store.db").chmod(0o400)
        said = error_of_nobody(directory / path)
    assert f'may not write "{directory / path.partition("/")[0]}"' in said


def error_of_nobody(path: Path) -> str:
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if IS_ROOT:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            SqliteStore(path).put([fire("a.b@1")])
        except BaseException as error:
            os.write(theirs, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert said.startswith("StoreMismatch: "), said  # a node does not wait for it
    return said


def test_every_sqlite_error_becomes_a_store_error() -> None:
    file = sqlite_file.File("store.db")
    for number in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_ERROR, 0):
        error = sqlite3.OperationalError("something")
        error.sqlite_errorcode = number
        explained: DetentError = file._explain(error)
        assert isinstance(explained, StoreUnavailable)
        assert "store.db" in str(explained)
