"""The notes that one SQLite transaction reads and writes.  A note expires by the monotonic clock."""

import sqlite3

from detent.model import Note
from detent.stores.base import BREAKER, PAUSE, RATE
from detent.stores.sqlite.rows import note_of


class Notes:
    def __init__(self, db: sqlite3.Connection, wall: float, monotonic: float) -> None:
        self._db, self._wall, self._monotonic = db, wall, monotonic
        self._controls: dict[str, dict[str, str]] = {}

    def find(self, app: str, prefix: str) -> list[Note]:
        ahead = self._wall - self._monotonic
        rows = self._db.execute(
            "SELECT name, text, written, expires FROM notes"
            f" WHERE app = ? AND substr(name, 1, ?) = ? AND {_IS_LIVE} ORDER BY name",
            (app, len(prefix), prefix, self._monotonic),
        )
        return [note_of(row[:3], None if row[3] is None else row[3] + ahead) for row in rows]

    def read(self, app: str, name: str) -> str | None:
        statement = f"SELECT text FROM notes WHERE app = ? AND name = ? AND {_IS_LIVE}"
        found = self._db.execute(statement, (app, name, self._monotonic)).fetchone()
        return found[0] if found else None

    def write(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        """Write a note; an empty text deletes it."""
        self._controls.pop(app, None)
        if text:
            ends = (ttl_s, self._monotonic + ttl_s) if ttl_s else (None, None)
            values = (app, name, text, self._wall, *ends)
            self._db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?, ?)", values)
        else:
            self._db.execute("DELETE FROM notes WHERE app = ? AND name = ?", (app, name))

    def controls(self, app: str) -> dict[str, str]:
        """The notes of the app that decide which fires may run: pauses, rates and breakers."""
        if app not in self._controls:
            rows = self._db.execute(_CONTROLS, (app, self._monotonic) * len(_CONTROLLING))
            self._controls[app] = dict(rows.fetchall())
        return self._controls[app]

    def pauses(self, app: str) -> dict[str, str]:
        """The paused jobs of the app, each with the reason."""
        controls = self.controls(app)
        return {name.removeprefix(PAUSE): controls[name] for name in controls if name.startswith(PAUSE)}


_IS_LIVE = "(expires IS NULL OR expires > ?)"
_CONTROLLING = (PAUSE, RATE, BREAKER)
_CONTROLS = " UNION ALL ".join(
    f"SELECT name, text FROM notes WHERE app = ? AND name >= '{start}' AND name < '{start[:-1]}0'"
    f" AND {_IS_LIVE}"
    for start in _CONTROLLING
)  # each is a range of the primary key: in ASCII, 0 follows the slash
