"""A unit of work: what was read, with its versions, and what will be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detent.model import Attempt, Fire
from detent.rules.decide import late_hooks_of
from detent.stores.base import NOTE_PREFIX, is_spent
from detent.stores.encoding import live_note, note_text
from detent.stores.engine import driver
from detent.stores.engine.driver import NO_CELL, NO_HEADER, NO_JOB, Cell, Drop, Expect, Group, SetCell, Write
from detent.stores.engine.record import Record


class Conflict(Exception):
    """What was read has changed: look again."""


class Unit:
    def __init__(self, on: driver.Driver, app: str, known: Mapping[str, Record] | None = None) -> None:
        self.app, self._driver = app, on
        self.header = NO_HEADER
        self.now, self.steady, self.epoch = NO_HEADER[:3]
        self.records: dict[str, Record] = dict(known or {})  # as read, or as they will be written
        self.remembered = frozenset(self.records)  # keys of records that this unit did not read
        self.cells: dict[str, Cell] = {}
        self.jobs: dict[str, driver.JobState] = {}
        self.writes: dict[str, Write] = {}
        self.drops: dict[str, Drop] = {}
        self.set_cells: dict[str, SetCell] = {}
        self.set_jobs: list[driver.SetJob] = []
        self.progress: list[driver.Progress] = []
        self.wakes: list[driver.Wake] = []

    # Reading.

    def look(self, *reads: driver.Read) -> list[Any]:
        """Read, and keep what was read.  Raises `Conflict` if it differs from what was read before (V3)."""
        header, replies = self._driver.look(self.app, reads)
        if self.header is NO_HEADER:
            self.header = header  # V4
            self.now, self.steady, self.epoch = header[:3]
        elif self.header[2:] != header[2:]:
            raise Conflict
        return [self._keep(read, reply) for read, reply in zip(reads, replies, strict=True)]

    def _keep(self, read: driver.Read, reply: Any) -> Any:
        match read:
            case driver.LaneMembers():
                return {lane: [self._keep_record(one) for one in records] for lane, records in reply.items()}
            case driver.Cells():
                for name in read.names:
                    self._keep_cell(name, reply.get(name, NO_CELL))
                for name, cell in reply.items():
                    self._keep_cell(name, cell)
            case driver.Jobs():
                self.jobs.update((name, reply.get(name, NO_JOB)) for name in (read.names or reply))
            case driver.LastAsk() | driver.Next():
                pass
            case _:
                return [self._keep_record(record) for record in reply]
        return reply

    def _keep_record(self, record: Record) -> Record:
        known = self.records.setdefault(record.fire.key, record)
        if known.version != record.version:
            raise Conflict
        return known

    def _keep_cell(self, name: str, cell: Cell) -> None:
        if self.cells.setdefault(name, cell).version != cell.version:
            raise Conflict

    def unknown(self, keys: Iterable[str], more: Iterable[str] = ()) -> driver.Fires:
        """The read for those of these keys whose records are not known, and for more."""
        unknown = [key for key in keys if key not in self.records]
        return driver.Fires(tuple(dict.fromkeys([*unknown, *more])))

    def notes(self, prefix: str) -> dict[str, str]:
        """The live notes that were read, by their name without the prefix."""
        start = NOTE_PREFIX + prefix
        names = [name.removeprefix(start) for name in self.cells if name.startswith(start)]
        return {name: text for name in names if (text := self.note(prefix + name))}

    def note(self, name: str) -> str:
        """The text of a note that was read; "" if there is none."""
        return live_note(self.cells[NOTE_PREFIX + name].text, self.steady)

    # Writing.

    def write(self, record: Record, attempt: Attempt | None = None, *, must_live: bool = False) -> None:
        self.writes[record.fire.key] = Write(record, record.version, attempt, must_live)

    def drop(self, record: Record) -> None:
        self.drops[record.fire.key] = Drop(record.fire.key, record.version)

    def drop_late_hooks(self, fire: Fire) -> None:
        for key in late_hooks_of(fire):
            write = self.writes.get(key)
            if write and write.record.state == "pending":  # it was returned in this unit
                self.drop(self.writes.pop(key).record)
            else:
                self.drops[key] = Drop(key, None)

    def replace(self, fire: Fire, run_at: float) -> bool:
        """Record a fire whose key was read, unless the fire with its key is not spent."""
        write = self.writes.get(fire.key)
        old = write.record if write else self.records.get(fire.key)
        if old is None:
            self.writes[fire.key] = Write(Record(fire, run_at), 0)  # unless its key exists
            return True
        if old.state != "over" or not old.outcome or not is_spent(fire, old.fire, old.outcome, self.now):
            return False
        self.writes[fire.key] = Write(Record(fire, run_at), old.version, is_new_fire=True)
        return True

    def set_cell(self, name: str, text: str) -> None:
        """Change a cell.  One that was read must not have changed since.  This unit sees the new text."""
        known = self.cells.get(name)
        self.set_cells[name] = SetCell(name, text, known.version if known else None)
        if known:
            self.cells[name] = Cell(text, known.version)

    def touch_cell(self, name: str) -> None:
        """Change the version of a cell, whatever it is now."""
        self.set_cells[name] = SetCell(name, None)

    def set_note(self, name: str, text: str, ttl_s: float = 0) -> None:
        self.set_cell(NOTE_PREFIX + name, note_text(text, self.now, self.steady, ttl_s) if text else "")

    def commit(self, expect: Expect | None = None) -> driver.Committed | None:
        """Commit what was staged, as a whole.  None: there was nothing to commit."""
        writes, drops, cells = [*self.writes.values()], [*self.drops.values()], [*self.set_cells.values()]
        group = Group(writes, drops, cells, self.set_jobs, self.progress, self.wakes)
        if not any(group) and not expect:
            return None
        return self.commit_groups(expect or Expect(), [group])

    def commit_groups(self, expect: Expect, groups: Sequence[Group]) -> driver.Committed:
        if self.header is not NO_HEADER:
            expect = expect._replace(epoch=self.header.epoch, seen=self.header.steady)
        committed = self._driver.commit(self.app, expect, groups)
        if committed is None:
            raise Conflict
        return committed
