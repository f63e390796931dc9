"""Numbers by minute: each minute is read once, the newest first, and buckets fit the room there is."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from detent.dashboard.coming import Coming
from detent.dashboard.tallies import DAY_S, MINUTE_S, QUARTER_S, Tallies
from detent.manifest.check import check_manifest
from detent.model import Tally

NOON = datetime(2026, 11, 18, 12, 7, 30, tzinfo=UTC)


def fill(tallies: Tallies, now: datetime, jobs: int = 1) -> list[tuple[datetime, datetime]]:
    """Read all that is missing; every job has one fire in each minute."""
    asked = []
    while span := tallies.missing(now):
        asked.append(span)
        minutes = range(int(span[0].timestamp()), int(span[1].timestamp()), MINUTE_S)
        rows = [
            Tally(datetime.fromtimestamp(at, UTC), f"a.j{job}", "default", "succeeded", 0.1, 0.1, 1)
            for at in minutes
            for job in range(jobs)
        ]
        tallies.take(*span, rows)
    return asked


def test_nothing_is_read_unless_a_timeline_wants_it() -> None:
    assert Tallies().missing(NOON) is None


@pytest.mark.parametrize("window_s", [600, 3_600, DAY_S])
def test_each_minute_is_read_once_the_newest_first(window_s: int) -> None:
    tallies = Tallies()
    tallies.want(window_s)
    asked = fill(tallies, NOON)
    assert asked[0][1] == NOON.replace(second=0), "the current minute is not over"
    minutes = [
        at for since, until in asked for at in range(int(since.timestamp()), int(until.timestamp()), 60)
    ]
    assert len(minutes) == len({*minutes}) and min(minutes) <= NOON.timestamp() - window_s
    assert all(until - since <= timedelta(seconds=QUARTER_S) for since, until in asked)
    later = fill(tallies, NOON + timedelta(minutes=2))
    assert later == [(NOON.replace(second=0), NOON.replace(second=0) + timedelta(minutes=2))]


@pytest.mark.parametrize(("window_s", "jobs"), [(600, 1), (600, 400), (3_600, 50), (DAY_S, 1), (DAY_S, 40)])
def test_buckets_fit_and_lose_no_fire(window_s: int, jobs: int) -> None:
    tallies = Tallies()
    tallies.want(window_s)
    fill(tallies, NOON, jobs)
    step_s, found = tallies.buckets(NOON, window_s, 1_000)
    assert len(found) == jobs and jobs * window_s / step_s <= 1_000
    fires = sum(int(cell[1]["succeeded"]) for cell in found["a.j0"])  # type: ignore[index]
    assert abs(fires - window_s // 60) <= step_s // 60


def test_the_current_minute_is_added() -> None:
    tallies = Tallies()
    tallies.want(600)
    fill(tallies, NOON)
    assert tallies.until == NOON.replace(second=0)
    _, found = tallies.buckets(NOON, 600, 100, {"a.new": Counter(failed=2)})
    assert found["a.new"] == [[NOON.replace(second=0).timestamp(), {"failed": 2}]]


def test_after_a_long_pause_the_numbers_begin_again() -> None:
    tallies = Tallies()
    tallies.want(600)
    fill(tallies, NOON)
    later = NOON + timedelta(days=3)
    assert fill(tallies, later)[0][0] >= later - timedelta(hours=1)
    assert all(
        int(cell[0]) > later.timestamp() - 1_000 for cell in tallies.buckets(later, 600, 100)[1]["a.j0"]
    )  # type: ignore[call-overload]


def test_the_next_instants_move_with_the_clock() -> None:
    jobs = [{"name": "often", "schedule": "@every 10s"}, {"name": "daily", "schedule": "0 13 * * *"}]
    document = {"version": 2, "app": "a", "jobs": [job | {"command": "true"} for job in jobs]}
    coming = Coming(check_manifest(document))
    for seconds in (0, 5, 30, 86_400, -86_400):  # the store's clock can be set back
        now = NOON + timedelta(seconds=seconds)
        coming.move_to(now)
        for name, job in (("a.often", 0), ("a.daily", 1)):
            assert coming.of(name) == check_manifest(document).jobs[job].schedule.after(now)
        first = coming.first(5)
        assert first == sorted(first) and len(first) == 2 and all(at > now for at, _ in first)
