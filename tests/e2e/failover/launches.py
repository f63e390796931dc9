"""Nodes whose store fails over, and the rules for their launches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from tests.equipment.fleet import SOURCES, Fleet, Seen

CLAIM_S = 3
REPEATS = ("forgotten", "fenced", "claim-lost", "lost")  # events of launches that are repeated


class FailoverFleet(Fleet):
    """Nodes with a job that is quick and one that is not; each may have another URL of the store."""

    def __init__(self, directory: Path, urls: tuple[str, ...]) -> None:
        super().__init__(directory)
        self._urls = urls
        self.env |= {"XDG_STATE_HOME": str(directory / "state")}
        policy = {"claim_seconds": CLAIM_S}
        quick = self.job("quick", "sleep", "0.2", policy=policy)
        self.write(quick, self.job("slow", "sleep", "1.5", policy=policy))

    @property
    def url(self) -> str:
        return self._urls[-1]

    @property
    def node_url(self) -> str:
        return self._urls[len(self.nodes)]

    def repeats(self, key: str) -> set[str]:
        """Return the events by which nodes reported that a launch of the fire was lost."""
        return {
            one["event"] for node in self.nodes for one in node.events(fire=key) if one["event"] in REPEATS
        }

    def wait_all_say(self, event: str) -> None:
        for node in self.nodes:
            node.wait(event)

    def wait_more(self, count: int = 2) -> None:
        """Wait for this many more launches of the quick job."""
        self.witness.wait_start("quick", after=len(self.witness.starts("quick")) + count - 1)

    def stop(self) -> None:
        assert [node.end() for node in self.nodes] == [0] * len(self.nodes)


@contextmanager
def running(directory: Path, *urls: str, paths: Sequence[str] = ()) -> Iterator[FailoverFleet]:
    """Run a node for each URL, with sources from these paths, and wait for their first launches."""
    fleet = FailoverFleet(directory, urls)
    try:
        for path in paths or [str(SOURCES)] * len(urls):
            fleet.start(PYTHONPATH=path)
        fleet.wait_more()
        yield fleet
    finally:
        fleet.clear_up()
    fleet.assert_quiet()


def launches(fleet: Fleet) -> dict[str, list[Seen]]:
    """The launches of each fire, in their order."""
    found = defaultdict[str, list[Seen]](list)
    for one in fleet.witness.starts():
        found[one.key].append(one)
    return found


def repeated(fleet: Fleet) -> list[str]:
    return [key for key, some in launches(fleet).items() if len(some) > 1]


def assert_sound(fleet: FailoverFleet) -> None:
    """Nothing overlapped, fences only grew, and every second launch was reported."""
    fleet.witness.assert_no_overlap()
    for key, some in launches(fleet).items():
        assert len({one.run_id for one in some}) == 1, key
        assert all(earlier.fence < later.fence for earlier, later in pairwise(some)), key
        assert len(some) == 1 or fleet.repeats(key), f"no node reported that {key} was launched again"
    by_lane = defaultdict[str, list[int]](list)
    for one in fleet.witness.starts():
        by_lane[one.lane].append(one.fence)
    assert all(fences == sorted(fences) for fences in by_lane.values()), "a fence went back"


def assert_unbroken(fleet: FailoverFleet) -> None:
    """Every instant of the quick job is recorded and over."""
    rows = fleet.find(job="t.quick", origins=("schedule",), state="over")
    seconds = [row.fire.due_at for row in rows]
    gaps = [both for both in pairwise(seconds) if both[1] - both[0] != timedelta(seconds=1)]
    assert gaps == [], [row for row in fleet.find(job="t.quick") if row.state != "over"]
