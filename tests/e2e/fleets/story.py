"""One run of two hosts from start to end, which several tests examine."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

from tests.e2e.fleets.hosts import Hosts
from tests.equipment.fleet import NEVER, Seen, wait_for

from detent.clock import instant
from detent.model import Row

CLAIM_S = 3
DRAIN_S = 3.0
LONG_S = 2.5 * CLAIM_S
TICKS = 4


class Story:
    """The evidence of the run; it is pickled for other processes."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts, self.keys, self.witness = hosts, dict[str, str](), hosts.witness
        hosts.write(*self._jobs(), node={"drain_seconds": DRAIN_S})
        hosts.start(), hosts.start()
        self.instances = [node.instance for node in hosts.nodes]
        self._run_by_hand("long", "over", "patient")
        self.held = self._held("long")
        self._let_both_take_part()
        for name in self.keys:
            hosts.wait_over(self.keys[name])
        self.free = hosts.find(key=self.keys["long"], state="claimed")
        self.until = instant(time.time())
        self._shut_down()
        hosts.assert_nothing_unclaimed()
        hosts.assert_nothing_is_held()
        self.rows = {row.fire.key: row for row in hosts.find()}
        del self._hosts

    def _jobs(self) -> Iterator[dict[str, object]]:
        claim = {"claim_seconds": CLAIM_S}
        deeds: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {
            "long": (("sleep", str(LONG_S)), {}),
            "over": (("daemon", "100"), {"timeout_seconds": 1}),
            "patient": (("sleep", "2"), {"timeout_seconds": 30}),
            "finish": (("sleep", "1"), {}),
            "overtime": (("daemon", "100"), {"timeout_seconds": 1}),
            "endless": (("daemon", "100"), {}),
        }
        for name in ("tick", "tock"):
            yield self._hosts.job(name, "sleep", "0", policy=claim)
        yield self._hosts.job("slow", "sleep", "2.5", policy=claim)
        for name, (deed, policy) in deeds.items():
            yield self._hosts.job(name, *deed, schedule=NEVER, policy=claim | policy, kill_after_seconds=0.5)

    def _run_by_hand(self, *names: str) -> None:
        for name in names:
            self.keys[name] = self._hosts.fire(name)
        for name in names:
            self._hosts.witness.wait_start(name)

    def _held(self, name: str) -> Row:
        """The stored fire while it runs."""
        (row,) = self._hosts.find(key=self.keys[name], state="claimed")
        return row

    def _let_both_take_part(self) -> None:
        def is_enough() -> bool:
            ticks = self._hosts.witness.starts("tick")
            return len(ticks) >= TICKS and {one.node for one in ticks} == set(self.instances)

        wait_for(is_enough, what="ticks on both hosts")
        self._hosts.witness.wait_start("slow", after=1)

    def _shut_down(self) -> None:
        """One host has nothing to do; the other is full of work, and gets SIGINT."""
        last, first = self._hosts.nodes
        assert first.end() == 0
        self._run_by_hand("finish", "overtime", "endless")
        self.interrupted_at = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.code = last.end(signal.SIGINT)
        self.stopped_at = time.clock_gettime(time.CLOCK_MONOTONIC)

    # What tests ask.

    def outcome(self, name: str) -> tuple[str, str]:
        outcome = self.rows[self.keys[name]].outcome
        assert outcome is not None
        return outcome.kind, outcome.reason

    def start(self, name: str) -> Seen:
        """The only launch of a fire by hand."""
        (start,) = self.witness.starts(key=self.keys[name])
        return start

    def end(self, name: str) -> Seen:
        (end,) = self.witness.seen("end", key=self.keys[name])
        return end

    def due(self, name: str) -> list[Row]:
        """The fires of a job that were due before the hosts were shut down, oldest first."""
        found = [row for row in self.rows.values() if row.fire.job == f"t.{name}"]
        return [row for row in found if row.fire.origin == "schedule" and row.fire.due_at <= self.until]
