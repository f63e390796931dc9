"""The SQLite store: the engine on one file that all processes of a host share.

A unit of work is one write transaction, so that no commit is refused.  A claim expires by the monotonic clock
of this boot; a reboot expires all claims.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from detent import clock
from detent.errors import StoreUnavailable
from detent.stores.base import leap
from detent.stores.engine.driver import Expect, Group, Header, Read
from detent.stores.engine.engine import Engine
from detent.stores.sql.dialect import drive
from detent.stores.sql.driver import (
    PRUNE_MAX,
    WAKEUPS,
    Checked,
    Poller,
    SqlDriver,
    fence_of,
    give_fences,
    wake_nodes,
)
from detent.stores.sql.reads import reading
from detent.stores.sql.writes import Stamp, asking, locking
from detent.stores.sqlite.clocks import Clocks, boot_id
from detent.stores.sqlite.file import File
from detent.stores.sqlite.reserve import keep_reserve
from detent.stores.sqlite.session import SqliteSession
from detent.stores.sqlite.world import World

PRUNE_FULL_MAX = 20  # fires of one transaction on a full disk, where the log has little space


class SqliteTransaction:
    def __init__(self, session: SqliteSession, world: World) -> None:
        self.session, self._world, self.depth = session, world, 1

    def _header(self, app: str) -> Header:
        world = self._world
        found = self.session.rows("SELECT generation, controls FROM apps WHERE app = ?", (app,))
        generation, controls = found[0] if found else (0, 0)
        return Header(world.wall, world.steady, world.epoch, world.quarantined_until, generation, controls)

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        header = self._header(app)
        return header, drive(self.session, [reading(self.session, app, one, header) for one in reads])

    def check(self, app: str, expect: Expect, groups: Sequence[Group]) -> Checked | None:
        session, header = self.session, self._header(app)
        is_new_ask, versions = drive(session, [asking(session, expect), locking(session, app, groups)])
        fence = 0
        if expect.fences:
            newest, first = session.rows(*fence_of(session, app)), leap(0, header.wall) + 1
            fence = give_fences(session, app, expect.fences, newest, first)
        stamp = Stamp(self._world.next_version(), fence)
        return Checked(header, versions, stamp) if is_new_ask else None

    def finish(self, app: str, longest_ttl_s: float, *, wakes: bool) -> None:
        self._world.lengthen(longest_ttl_s)
        if wakes:
            wake_nodes(self.session, app)


class SqliteDatabase:
    def __init__(self, file: File, clocks: Clocks) -> None:
        self.file, self.name, self._clocks = file, file.name, clocks

    @contextmanager
    def transaction(self, within_s: float, *, writes: bool) -> Iterator[SqliteTransaction]:
        """If the clocks were set, also a transaction that reads first records that, and so it writes."""
        if not writes:
            with self.file.reading() as link:
                session = SqliteSession(link.db)
                world = World(session, link, self._clocks)
                if world.is_current:
                    yield SqliteTransaction(session, world)
                    return
        with self.file.writing() as link:
            session = SqliteSession(link.db)
            world = World(session, link, self._clocks)
            world.notice_changes()
            yield SqliteTransaction(session, world)
            world.save()

    def wakeups(self, app: str) -> int:
        return self.file.look(WAKEUPS, app)

    def close(self) -> None:
        self.file.close()


class SqliteDriver(SqlDriver):
    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database, Poller(database.wakeups))
        self.file = database.file

    def prune(self, app: str, older_than_s: float, keep: int, at_once: int = PRUNE_MAX) -> int:
        try:
            gone = super().prune(app, older_than_s, keep, at_once)
        except StoreUnavailable:
            if not self.file.make_room():
                raise
            return super().prune(app, older_than_s, keep, PRUNE_FULL_MAX)
        keep_reserve(self.file.path)  # for the next full disk
        return gone


class SqliteStore(Engine):
    driver: SqliteDriver

    def __init__(
        self,
        path: str | os.PathLike[str],
        wall: Callable[[], float] = clock.wall,
        monotonic: Callable[[], float] = clock.monotonic,
        boot_id: Callable[[], str] = boot_id,
    ) -> None:
        super().__init__(SqliteDriver(SqliteDatabase(File(path), Clocks(wall, monotonic, boot_id()))))
