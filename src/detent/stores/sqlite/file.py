"""Opens the file of a SQLite store, begins its transactions, and explains its errors.

1. A connection is for one thread at a time, and is used only in a transaction.
2. SQLite's busy handler is off, because it lets processes starve.  Writers use `writer_lock`, and a process
   that finds the file locked tries again for up to `BUSY_MAX_S`.
3. Only SQLite may open an existing store: closing any other descriptor of the file would drop the locks of
   every connection in this process.
4. A transaction continues only if the path still names the file that its connection has open.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TypeVar

from detent import clock
from detent.errors import DetentError, StoreMismatch, StoreUnavailable
from detent.stores.sql.pool import SIZE_MAX, Pool
from detent.stores.sqlite.marks import VERSION, look_inside, number_of, roll_back
from detent.stores.sqlite.reserve import RESERVE, RESERVE_BYTES, free_bytes, release_reserve
from detent.stores.sqlite.writer_lock import WriterLock, pause

BUSY_MAX_S = 10.0
NETWORK_DISKS = frozenset((
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs",
    "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs",
))  # fmt: skip
# SQLite writes the log back after a thousand pages, once no reader needs it, and truncates it to this size.
_LOG_MAX_BYTES = 16 << 20
_SETTINGS = (
    "PRAGMA synchronous = FULL",  # an acknowledged commit survives a power cut
    "PRAGMA fullfsync = ON",  # macOS needs it in addition to fsync
    f"PRAGMA journal_size_limit = {_LOG_MAX_BYTES}",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA temp_store = MEMORY",
)
SHARED_MEMORY_BYTES = 64 << 10  # the -shm file needs 32 KiB; without them SQLite reports an I/O error
_opening = threading.Lock()  # rule 3, between creating a file and opening it
_Answer = TypeVar("_Answer")
_Begin = Callable[[sqlite3.Connection, float], None]


class Link:
    """A connection, and the identity of the file that it has open."""

    def __init__(self, db: sqlite3.Connection, path: str, identity: tuple[int, int]) -> None:
        self.db, self.identity, self.is_open = db, identity, True
        self.path, names = path, [path + end for end in ("-wal", "-shm")]
        self._beside = {name: found for name in names if (found := _identity(name))}

    def close(self) -> None:
        self.is_open = False
        self.db.close()

    def leave(self) -> None:
        """Close it after the file was replaced, and delete the log of the old file, if it is still there."""
        for name, identity in self._beside.items():
            if _identity(name) == identity:
                with suppress(FileNotFoundError):
                    os.unlink(name)
        self.close()


class File:
    """The file of a store.  The first use creates it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        self.name = named(self.path)
        self._pool = Pool(SIZE_MAX, self.name, lambda _: self._open())
        self._writers = threading.Lock()  # lets threads of one process wait without polling
        self._writer_lock = WriterLock(self.path)

    @contextmanager
    def writing(self) -> Iterator[Link]:
        """A write transaction.  There is at most one at a time."""
        deadline = clock.monotonic() + BUSY_MAX_S
        if not self._writers.acquire(timeout=BUSY_MAX_S):
            raise self._locked()
        try:
            with self._transaction(self._begin_writing, deadline) as link:
                yield link
        finally:
            self._writers.release()

    def reading(self) -> AbstractContextManager[Link]:
        """A transaction that reads.  It waits for no writer."""
        return self._transaction(_begin_reading, clock.monotonic() + BUSY_MAX_S)

    def look(self, statement: str, *values: str) -> int:
        """The number that this statement returns, outside a transaction."""
        deadline = clock.monotonic() + BUSY_MAX_S
        with self._errors(), self._link() as link:
            return _patiently(lambda: number_of(link.db, statement, *values), deadline)

    def make_room(self) -> bool:
        """On a full disk, release the reserve and write the log back.  False: there is no reserve."""
        if not release_reserve(self.path):
            return False
        self.look("PRAGMA wal_checkpoint(TRUNCATE)")
        return True

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _transaction(self, begin: _Begin, deadline: float) -> Iterator[Link]:
        with self._errors(), self._link() as link:
            begin(link.db, deadline)
            try:
                if _identity(self.path) != link.identity:
                    raise StoreUnavailable(f"the store {self.name} was replaced just now: try again")
                yield link
                link.db.execute("COMMIT")
            except sqlite3.Error:
                link.close()  # this rolls back; the connection itself may be broken
                raise
            except BaseException:
                roll_back(link.db)
                raise

    def _begin_writing(self, db: sqlite3.Connection, deadline: float) -> None:
        with self._writer_lock.taken(deadline) as is_ours:
            if not is_ours:
                raise self._locked()
            _patiently(lambda: _begin(db, "BEGIN IMMEDIATE"), deadline)

    @contextmanager
    def _link(self) -> Iterator[Link]:
        """A connection to the file that the path names now."""
        while True:
            with self._pool.connection(BUSY_MAX_S) as link:
                if _identity(self.path) == link.identity:
                    yield link
                    return
                link.leave()

    # Opening.

    def _open(self) -> Link:
        deadline = clock.monotonic() + BUSY_MAX_S
        refuse_network_disk(os.path.dirname(self.path))
        with _opening:
            self._create()
            self._refuse_strange()
            db = _connect(self.path)
        try:
            _patiently(lambda: self._prepare(db), deadline)
            identity = _identity(self.path)
            if identity is None:
                raise StoreUnavailable(f"the store {self.name} was removed while it was opened: try again")
            return Link(db, self.path, identity)
        except BaseException:
            db.close()
            raise

    def _create(self) -> None:
        directory = os.path.dirname(self.path)
        _make_directory(directory)
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return
        _keep_directory(directory)

    def _refuse_strange(self) -> None:
        mode = os.lstat(self.path).st_mode
        if stat.S_ISLNK(mode):
            raise StoreMismatch(f"the store {self.name} is a symbolic link: name the file itself")
        if not stat.S_ISREG(mode):
            raise StoreMismatch(f"the store {self.name} is not a file: name one, or a path that is free")

    def _prepare(self, db: sqlite3.Connection) -> None:
        for setting in _SETTINGS:
            db.execute(setting)
        version, oldest, is_strange = look_inside(db)
        if is_strange:
            raise StoreMismatch(
                f"the database {self.name} belongs to another program: name another path for the store"
            )
        if oldest > VERSION:
            raise StoreMismatch(
                f"the store {self.name} has schema {version}, and this version of detent "
                f"supports at most {VERSION}: upgrade detent on this host, or name another store"
            )
        if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreMismatch(
                f"the disk of the store {self.name} cannot keep a write-ahead log: use a local disk"
            )
        if version < VERSION:
            from detent.stores.sqlite.schema import upgrade  # late: few processes create or upgrade a file

            upgrade(db)

    # Errors.

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._explain(error) from error
        except DetentError:
            raise
        except OSError as error:
            if isinstance(error, PermissionError) and (where := forbidden(self.path)):
                raise self._forbidden(where) from error
            raise StoreUnavailable(
                f"the store {self.name} cannot be opened: {error.strerror or error}: {error.filename}"
            ) from error

    def _explain(self, error: sqlite3.Error) -> DetentError:
        store = f"the store {self.name}"
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return self._locked()
            case sqlite3.SQLITE_FULL:
                return self._full()
            case sqlite3.SQLITE_IOERR if free_bytes(self.path) < SHARED_MEMORY_BYTES:
                return self._full()
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
                if where := forbidden(self.path):
                    return self._forbidden(where)
                return StoreUnavailable(
                    f"{store} cannot be written ({error}): the file, its -wal and -shm and its directory "
                    "must be this user's, on a disk that is not mounted read-only"
                )
            case sqlite3.SQLITE_IOERR:
                return StoreUnavailable(
                    f"the disk of {store} failed ({error}): look for a full disk, then in the system's log"
                )
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return StoreMismatch(
                    f"{store} is not a detent store, or is damaged ({error}): move it away with its -wal "
                    "and -shm, or restore a backup"
                )
        return StoreUnavailable(f"{store} failed: {error}")

    def _forbidden(self, where: str) -> StoreMismatch:
        return StoreMismatch(
            f"the store {self.name} cannot be written: the user with id {os.geteuid()} may not write "
            f"{named(where)}; run as its owner, change its permissions, or name another store"
        )

    def _full(self) -> StoreUnavailable:
        way_out = (
            "free some space, or run `detent prune`, which has space reserved for it"
            if os.path.lexists(self.path + RESERVE)
            else f"free some space (with {RESERVE_BYTES >> 20} MiB, `detent prune` works)"
        )
        return StoreUnavailable(f"the disk of the store {self.name} is full: {way_out}; no outcome is lost")

    def _locked(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"the store {self.name} is locked by another process, for more than {BUSY_MAX_S:.0f} s: "
            "look for a backup, a database browser or a stopped node that has it open"
        )


def named(path: str | os.PathLike[str]) -> str:
    """A path as a message shows it: whole, and without control characters."""
    text = os.fspath(path)
    return f'"{text if text.isprintable() else ascii(text)[1:-1]}"'


def forbidden(path: str) -> str:
    """The file or directory of the store that this user may not write; "": none, or the disk is mounted
    read-only, which may be temporary."""
    directory = os.path.dirname(path)
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        return ""
    files = [path + end for end in ("", "-wal", "-shm", "-writer") if os.path.lexists(path + end)]
    needed = [*((one, os.R_OK | os.W_OK) for one in files), (directory, os.W_OK | os.X_OK)]
    return next((one for one, mode in needed if not os.access(one, mode, effective_ids=True)), "")


def refuse_network_disk(directory: str | os.PathLike[str]) -> None:
    """Raise if the directory is on a network disk, where the locks of SQLite do not work between hosts."""
    with suppress(OSError), open("/proc/self/mountinfo", errors="replace") as mounts:
        if kind := network_disk(directory, mounts.read()):
            raise StoreMismatch(
                f"{named(directory)} is on a network disk ({kind}), where SQLite cannot keep its "
                "promises: use a local disk for the store"
            )


def network_disk(directory: str | os.PathLike[str], mounts: str) -> str:
    """The kind of network disk that a directory is on, from the text of mountinfo; "": none."""
    kind = disk_kind(directory, mounts)
    return kind if kind in NETWORK_DISKS else ""


def disk_kind(directory: str | os.PathLike[str], mounts: str) -> str:
    """The kind of file system that a directory is on; "": unknown."""
    within, best, kind = os.path.realpath(directory).rstrip("/") + "/", -1, ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4].rstrip("/") + "/"
        point = point.encode().decode("unicode_escape") if "\\" in point else point  # a space is \040
        if len(point) >= best and within.startswith(point):  # the last mount at a point counts
            best, kind = len(point), right.split()[0]
    return kind


def _connect(path: str) -> sqlite3.Connection:
    """`mode=rw`: do not create a file that was deleted meanwhile, which would get default permissions."""
    name = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(
        f"file:{name}?mode=rw",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def _begin_reading(db: sqlite3.Connection, deadline: float) -> None:
    _patiently(lambda: _begin(db, "BEGIN"), deadline)


def _begin(db: sqlite3.Connection, begin: str) -> None:
    db.execute(begin)
    try:
        db.execute("SELECT 1 FROM world").fetchone()  # SQLite takes the snapshot at the first read
    except sqlite3.Error:
        roll_back(db)
        raise


def _patiently(act: Callable[[], _Answer], deadline: float) -> _Answer:
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            locked = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not locked or clock.monotonic() >= deadline:
                raise
        pause()


def _make_directory(path: str) -> None:
    """Create the directory and its parents, each accessible to this user only."""
    if not os.path.isdir(path):
        _make_directory(os.path.dirname(path))
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)


def _keep_directory(directory: str) -> None:
    """Sync the directory, so that the name of a new file survives a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _identity(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None
