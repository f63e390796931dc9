"""The MySQL store: the engine on a database of MySQL or MariaDB that nodes on many hosts share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from detent import clock
from detent.model import Ask, Grants, Report, Verdict
from detent.stores.engine.engine import Engine
from detent.stores.mysql.link import Link, Links
from detent.stores.mysql.schema import SYSTEMS, kind_of, prepare
from detent.stores.mysql.session import MysqlSession
from detent.stores.mysql.url import read_url
from detent.stores.sql.driver import WAKEUPS, Poller, SqlDriver
from detent.stores.sql.server import Observer, ServerTransaction


class MysqlDatabase:
    def __init__(self, url: str, observer: Observer) -> None:
        self.links, self._observer, self._system = Links(read_url(url), self._prepare), observer, ""
        self.name = self.links.name

    def _prepare(self, link: Link) -> None:
        kind = kind_of(link)
        prepare(link, kind)
        self._system = SYSTEMS[kind]

    @contextmanager
    def transaction(self, within_s: float, *, writes: bool) -> Iterator[ServerTransaction]:
        with self.links.link(within_s) as link:
            session = MysqlSession(link, self._system)
            transaction = ServerTransaction(session, self._observer)
            yield transaction
            transaction.commit()

    def wakeups(self, app: str) -> int:
        return int(self.links.look(WAKEUPS.replace("?", "%s"), app)[0][0])

    def close(self) -> None:
        self.links.close()


class MysqlStore(Engine):
    driver: SqlDriver

    def __init__(self, url: str, boottime: Callable[[], float] = clock.boottime) -> None:
        self.database = MysqlDatabase(url, Observer(boottime, notices_loss=True))
        super().__init__(SqlDriver(self.database, Poller(self.database.wakeups)))

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        """Two transactions: a deadlock would undo the first part, whose result was already used."""
        return self.finish(reports), self.claim(ask)
