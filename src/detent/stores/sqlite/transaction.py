"""One transaction of the SQLite store: its instant, the store's header, and the rows that it works on.

The clocks are read once, when the transaction begins.  The first transaction that writes notices a new boot,
a new epoch or a step of the wall clock, and records it in the header.
"""

import os
from contextlib import suppress
from typing import Any

from detent.rules.trust import STEP_S
from detent.stores.base import ORPHANS_TTL_S
from detent.stores.encoding import policy_of
from detent.stores.sqlite.clocks import Clocks, Header
from detent.stores.sqlite.file import Link
from detent.stores.sqlite.fires import Fires
from detent.stores.sqlite.jobs import Jobs
from detent.stores.sqlite.notes import Notes

DRIFT_S = 0.05  # the clocks drift apart; a smaller difference is not written


class Transaction:
    def __init__(self, link: Link, clocks: Clocks) -> None:
        self.db, self._link, self._boot = link.db, link, clocks.boot_id
        self.wall, self.monotonic = clocks.read()
        row = self.one(_HEADER)
        self._found = self.header = Header(*row) if row else Header("", "", "", "", 0.0)
        self.fires = Fires(self.db, self.wall, self.monotonic)
        self.jobs = Jobs(self.db, self.wall)
        self.notes = Notes(self.db, self.wall, self.monotonic)

    def one(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of the statement's result."""
        row: tuple[Any, ...] | None = self.db.execute(statement, values).fetchone()
        return row

    @property
    def is_current(self) -> bool:
        """Whether the header is up to date, so that nothing needs to be written before reading."""
        found, step = self._found, self.wall - self.monotonic - self._found.clock
        known = (found.file, found.device, found.boot) == (*self._identity(), self._boot)
        return known and abs(step) <= DRIFT_S

    @property
    def is_quarantined(self) -> bool:
        return self.monotonic < self.header.quarantined_until

    def now(self) -> float:
        """The wall clock.  If it was set, retries and delays move with it, because they are durations."""
        step = self.wall - self.monotonic - self.header.clock
        if abs(step) > DRIFT_S:
            self.set_header(clock=self.header.clock + step)
        if abs(step) > STEP_S:
            self.db.execute(
                "UPDATE fires SET run_at = run_at + ? WHERE state = 'pending'"
                " AND NOT (origin = 'schedule' AND run_at = due)",
                (step,),
            )
        return self.wall

    def check_header(self) -> None:
        """Notice a new boot and a new epoch."""
        (file, device), found = self._identity(), self._found
        if not found.epoch:
            self.header = Header(os.urandom(8).hex(), file, device, self._boot, self.wall - self.monotonic)
            if self._has_orphans():
                self.set_header(quarantined_until=self.monotonic + ORPHANS_TTL_S)
            return
        if found.boot != self._boot:
            self._new_boot()
        # A device's number may change at a boot; during one boot, another device means another file.
        if found.file != file or (found.boot == self._boot and found.device != device):
            self._new_epoch()
        self.set_header(file=file, device=device)

    def set_header(self, **changes: Any) -> None:
        self.header = self.header._replace(**changes)

    def lengthen(self, ttl_s: float) -> None:
        self.set_header(longest_ttl_s=max(self.header.longest_ttl_s, ttl_s))

    def wake(self) -> None:
        """Wake the nodes that wait."""
        self.set_header(wakeups=self._found.wakeups + 1)

    def save(self) -> None:
        """Write everything that changed."""
        self.fires.save()
        self.jobs.save()
        if self.header != self._found:
            self.db.execute("INSERT OR REPLACE INTO world VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)", self.header)
            self._found = self.header

    def _new_boot(self) -> None:
        """Expire every claim: no process of the old boot runs, and its monotonic clock is gone."""
        self.db.execute("UPDATE fires SET expires = ? WHERE state = 'claimed'", (self.monotonic,))
        self.db.execute("DELETE FROM graces")
        self.db.execute("DELETE FROM asks")
        ahead = self.header.clock - (self.wall - self.monotonic)  # of the old clock against the new one
        self.db.execute(_MOVE_CHARGES, (ahead, self.monotonic, ahead, self.monotonic))
        self.db.execute(
            "UPDATE notes SET expires = ? + min(lasts, written + lasts - ?) WHERE lasts IS NOT NULL",
            (self.monotonic, self.wall),
        )
        self.set_header(boot=self._boot, clock=self.wall - self.monotonic, quarantined_until=self.monotonic)

    def _new_epoch(self) -> None:
        """The file may be an old copy: raise the fences, and grant nothing while a claim may still live."""
        self.now()
        self.jobs.leap_fences()
        ends = self.monotonic + self._longest_forgotten_claim_s()
        self.set_header(epoch=os.urandom(8).hex(), quarantined_until=ends)

    def _longest_forgotten_claim_s(self) -> float:
        """A fire that is pending in this copy may have been claimed since the copy was made."""
        policies = self.db.execute("SELECT DISTINCT policy FROM fires WHERE state = 'pending'")
        longest_s = max((policy_of(text).claim_s for (text,) in policies), default=0.0)
        return max(longest_s, self.header.longest_ttl_s or ORPHANS_TTL_S)

    def _identity(self) -> tuple[str, str]:
        device, inode = self._link.identity
        return str(inode), str(device)

    def _has_orphans(self) -> bool:
        """Whether the file was deleted while nodes used it: their lock files are still beside it."""
        with suppress(FileNotFoundError):
            return any(name.endswith(".lock") for name in os.listdir(self._link.path + ".nodes"))
        return False


_HEADER = "SELECT era, file, device, boot, clock, calm_until, longest_ttl, rings FROM world"
# Only the wall clock tells how long the machine was off.  No charge may be younger than now.
_MOVE_CHARGES = "UPDATE charges SET until = until - at + min(at + ?, ?), at = min(at + ?, ?)"
