"""What one SQLite transaction reads and writes about jobs and apps: watermarks, last successes and fences.

These outlive the rows of a job's fires.
"""

import json
import sqlite3
from collections.abc import Iterable
from datetime import datetime

from detent.clock import instant
from detent.model import Watermark
from detent.stores.base import app_of, leap


class Jobs:
    def __init__(self, db: sqlite3.Connection, wall: float) -> None:
        self._db, self._wall = db, wall
        self._watermarks: dict[str, Watermark | None] = {}
        self._changed: dict[str, tuple[float | None, float | None]] = {}  # last success, newest instant
        self._fences: dict[str, int] = {}

    def watermark(self, job: str) -> Watermark | None:
        if job not in self._watermarks:
            found = self._db.execute("SELECT at, revision FROM marks WHERE job = ?", (job,)).fetchone()
            self._watermarks[job] = Watermark(instant(found[0]), found[1]) if found else None
        return self._watermarks[job]

    def watermarks(self, app: str) -> dict[str, Watermark]:
        rows = self._db.execute("SELECT job, at, revision FROM marks WHERE app = ?", (app,))
        return {job: Watermark(instant(at), revision) for job, at, revision in rows}

    def set_watermark(self, job: str, watermark: Watermark) -> None:
        values = (job, app_of(job), watermark.at.timestamp(), watermark.revision)
        self._db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", values)

    def successes(self, jobs: Iterable[str]) -> dict[str, float]:
        """When each of these jobs last succeeded; a job without a success is left out.

        The rows come back as one JSON text: reading each row would release the interpreter's lock."""
        (text,) = self._db.execute(_SUCCESSES, (json.dumps(list(jobs)),)).fetchone()
        return {job: micros / 1e6 for job, micros in json.loads(text).items()}

    def succeed(self, job: str, at: float) -> None:
        self._changed[job] = at, self._changed.get(job, (None, None))[1]

    def reached(self, job: str) -> datetime | None:
        """The newest instant of the job that was ever claimed, cancelled or pruned."""
        found = self._db.execute("SELECT reached FROM jobs WHERE job = ?", (job,)).fetchone()
        return instant(found[0]) if found and found[0] is not None else None

    def reach(self, job: str, due: float, origin: str) -> None:
        """Remember this instant, so that it is not recorded again when its row is gone and the clock was set
        back."""
        if origin == "schedule":
            succeeded, reached = self._changed.get(job, (None, None))
            self._changed[job] = succeeded, due if reached is None else max(due, reached)

    def next_fence(self, app: str, count: int = 1) -> int:
        """Take `count` fences and return the first of them."""
        if app not in self._fences:
            found = self._db.execute("SELECT fence FROM apps WHERE app = ?", (app,)).fetchone()
            self._fences[app] = found[0] if found and found[0] is not None else leap(0, self._wall)
        self._fences[app] += count
        return self._fences[app] - count + 1

    def leap_fences(self) -> None:
        """Raise every fence above all that an earlier epoch can have granted."""
        for app, fence in self._db.execute("SELECT app, fence FROM apps WHERE fence IS NOT NULL"):
            self._fences[app] = leap(fence, self._wall)

    def save(self) -> None:
        self._db.executemany(_SET_FENCE, self._fences.items())
        rows = ((job, *values) for job, values in self._changed.items())
        self._db.executemany(f"INSERT INTO jobs VALUES (?, ?, ?) {SET_JOB}", rows)
        self._fences.clear()
        self._changed.clear()


SET_JOB = """
ON CONFLICT (job) DO UPDATE SET
    succeeded = coalesce(excluded.succeeded, succeeded),
    reached = max(coalesce(excluded.reached, reached), coalesce(reached, excluded.reached))
"""
_SET_FENCE = (
    "INSERT INTO apps (app, fence) VALUES (?, ?) ON CONFLICT (app) DO UPDATE SET fence = excluded.fence"
)
_SUCCESSES = """
SELECT json_group_object(job, CAST(round(succeeded * 1e6) AS INTEGER)) FROM jobs
WHERE job IN (SELECT value FROM json_each(?)) AND succeeded IS NOT NULL
"""
