"""A SQLite store with a clock in the past, to create history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from detent import clock
from detent.loading.config import load_manifest
from detent.model import Ask, Claim, Outcome, Report, Verdict
from detent.rules.planning import plan
from detent.stores.sqlite.store import SqliteStore


def yesterday(text: str) -> datetime:
    """`02:30` of yesterday, in UTC."""
    day = clock.now().astimezone(UTC) - timedelta(days=1)
    return datetime.fromisoformat(f"{day:%Y-%m-%d}T{text}:00+00:00")


class PastNode:
    """Acts as a node of the manifest in the folder, at a time that the test sets."""

    def __init__(self, folder: Path) -> None:
        manifest = load_manifest(folder / "detent.yaml", {})
        self.app = manifest.app
        self.jobs = {job.name: job for job in manifest.jobs}
        self._behind_s, self._asks = 0.0, 0
        self.store = SqliteStore(folder / "try.db", wall=lambda: clock.wall() - self._behind_s)

    def at(self, instant: datetime) -> None:
        self._behind_s = clock.wall() - instant.timestamp()

    def set_jobs(self) -> None:
        watermarks = self.store.look(self.app)
        ours = {name: job.revision for name, job in self.jobs.items()}
        self.store.set_jobs(self.app, watermarks.generation, ours)

    def plan(self) -> None:
        watermarks = self.store.look(self.app)
        plans = [plan(job, watermarks.by_job[name], watermarks.now) for name, job in self.jobs.items()]
        self.store.advance(self.app, plans)

    def claim(self) -> list[Claim]:
        self._asks += 1
        return list(self.store.claim(Ask(self.app, "host.life", self._asks, limit=20)).claims)

    def finish(self, claim: Claim, outcome: Outcome, again_in_s: float | None = None) -> None:
        status = 0 if outcome.kind == "succeeded" else 3
        verdict = Verdict(outcome, again_in_s=again_in_s)
        self.store.finish([Report(claim, verdict, status=status, took_s=1.5, tail=b"it wrote\n")])

    def settle(self) -> list[Claim]:
        """Settle each fire that must not run; return the claims that may run."""
        claims = self.claim()
        for claim in claims:
            if claim.disposition:
                self.finish(claim, claim.disposition)
        return [claim for claim in claims if not claim.disposition]

    def live(self, instant: datetime, outcome: Outcome) -> None:
        """Set the jobs a minute before the instant, and run all that is due then."""
        self.at(instant - timedelta(seconds=61))
        self.set_jobs()
        self.plan()
        self.at(instant + timedelta(seconds=0.2))
        for claim in self.settle():
            self.finish(claim, outcome)
