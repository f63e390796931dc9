"""The state of a SQLite store as a whole: its epoch, its clocks, and the file and boot that wrote it.

The clocks are read once, when a transaction begins.  The first transaction that writes notices a new boot, a
new epoch or a step of the wall clock.

The steady clock is the monotonic clock of this boot plus `base`.  After a reboot it continues where the wall
clock says that it would be, so that notes, graces and charges last as long as they should.
"""

import os
from contextlib import suppress
from typing import Any, NamedTuple

from detent.rules.trust import STEP_S
from detent.stores.base import ORPHANS_TTL_S
from detent.stores.sql.driver import raise_fences
from detent.stores.sql.pending import longest_pending_s, move_delays, unpark_all
from detent.stores.sqlite.clocks import Clocks
from detent.stores.sqlite.file import Link
from detent.stores.sqlite.session import SqliteSession

DRIFT_S = 0.05  # the clocks drift apart; a smaller difference is not written


class State(NamedTuple):
    """The row of the table `world`."""

    epoch: str
    file: str  # the inode: another one is another epoch
    device: str
    boot: str
    base: float  # steady minus monotonic
    clock: float  # wall minus steady
    seen: float  # the steady clock at the newest commit
    quarantined_until: float = 0.0
    longest_ttl_s: float = 0.0
    version: int = 0


class World:
    def __init__(self, session: SqliteSession, link: Link, clocks: Clocks) -> None:
        self._session, self._link, self._boot = session, link, clocks.boot_id
        self.wall, self._monotonic = clocks.read()
        found = session.rows(_READ)
        self._found = State(*found[0]) if found else None
        self._state = self._found or State("", "", "", "", 0.0, 0.0, 0.0)

    @property
    def steady(self) -> float:
        return self._monotonic + self._state.base

    @property
    def epoch(self) -> str:
        return self._state.epoch

    @property
    def quarantined_until(self) -> float:
        return self._state.quarantined_until

    @property
    def is_current(self) -> bool:
        """Whether nothing needs to be written before reading."""
        state, known = self._state, (*self._identity(), self._boot)
        is_same = (state.file, state.device, state.boot) == known
        return is_same and abs(self.wall - self.steady - state.clock) <= DRIFT_S

    def notice_changes(self) -> None:
        """Notice a new boot, a new epoch and a step of the wall clock."""
        (file, device), found = self._identity(), self._found
        if found is None:
            self._begin(file, device)
            return
        if found.boot != self._boot:
            self._new_boot()
        self._notice_step()
        # A device's number may change at a boot; during one boot, another device means another file.
        if found.file != file or (found.boot == self._boot and found.device != device):
            self._new_epoch()
        self._set(file=file, device=device)

    def next_version(self) -> int:
        self._set(version=self._state.version + 1, seen=self.steady)
        return self._state.version

    def lengthen(self, ttl_s: float) -> None:
        self._set(longest_ttl_s=max(self._state.longest_ttl_s, ttl_s))

    def save(self) -> None:
        if self._state != self._found:
            self._session.upsert("world", ("one", *State._fields), [(1, *self._state)])
            self._found = self._state

    def _set(self, **changes: Any) -> None:
        self._state = self._state._replace(**changes)

    def _begin(self, file: str, device: str) -> None:
        epoch, clock = os.urandom(8).hex(), self.wall - self._monotonic
        self._state = State(epoch, file, device, self._boot, 0.0, clock, self.steady)
        if self._has_orphans():
            self._set(quarantined_until=self.steady + ORPHANS_TTL_S)

    def _notice_step(self) -> None:
        """If the wall clock was set, retries and delays move with it, because they are durations."""
        step = self.wall - self.steady - self._state.clock
        if abs(step) > DRIFT_S:
            self._set(clock=self._state.clock + step)
        if abs(step) > STEP_S:
            version = self.next_version()
            move_delays(self._session, step, version)

    def _new_boot(self) -> None:
        """Expire every claim, and end every grace: no process of the old boot runs."""
        steady = max(self.wall - self._state.clock, self._state.seen)
        self._set(boot=self._boot, base=steady - self._monotonic, quarantined_until=steady)
        version = self.next_version()
        self._session.rows(_EXPIRE_ALL, (steady, version))
        self._session.rows(_END_GRACES, (version,))
        unpark_all(self._session, version)
        self._session.rows("DELETE FROM asks")

    def _new_epoch(self) -> None:
        """The file may be an old copy: raise the fences, and grant nothing while a claim may still live."""
        raise_fences(self._session, self.wall)
        forgotten_s = max(longest_pending_s(self._session), self._state.longest_ttl_s or ORPHANS_TTL_S)
        self._set(epoch=os.urandom(8).hex(), quarantined_until=self.steady + forgotten_s)

    def _identity(self) -> tuple[str, str]:
        device, inode = self._link.identity
        return str(inode), str(device)

    def _has_orphans(self) -> bool:
        """Whether the file was deleted while nodes used it: their lock files are still beside it."""
        with suppress(FileNotFoundError):
            return any(name.endswith(".lock") for name in os.listdir(self._link.path + ".nodes"))
        return False


_READ = f"SELECT {', '.join(State._fields)} FROM world"
_END_GRACES = "UPDATE cells SET text = '', version = ? WHERE name >= 'lane/' AND name < 'lane0'"
_EXPIRE_ALL = "UPDATE fires SET expires = ?, version = ? WHERE state = 'claimed'"
