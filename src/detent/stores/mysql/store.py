"""The MySQL store: the engine on a database of MySQL or MariaDB that nodes on many hosts share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from detent import clock
from detent.model import Ask, Grants, Report, Verdict
from detent.stores.engine.engine import Engine
from detent.stores.mysql.driver import MysqlDriver


class MysqlStore(Engine):
    def __init__(self, url: str, boottime: Callable[[], float] = clock.boottime) -> None:
        super().__init__(MysqlDriver(url, boottime))

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        """Two transactions: a deadlock would undo the first part, whose result was already used."""
        return self.finish(reports), self.claim(ask)
