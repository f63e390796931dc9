"""The SQLite store: the engine on a file that all processes of a host share."""

from __future__ import annotations

import os
from collections.abc import Callable

from detent import clock
from detent.stores.engine.engine import Engine
from detent.stores.sqlite.clocks import boot_id
from detent.stores.sqlite.driver import SqliteDriver


class SqliteStore(Engine):
    def __init__(
        self,
        path: str | os.PathLike[str],
        wall: Callable[[], float] = clock.wall,
        monotonic: Callable[[], float] = clock.monotonic,
        boot_id: Callable[[], str] = boot_id,
    ) -> None:
        super().__init__(SqliteDriver(path, wall, monotonic, boot_id))
