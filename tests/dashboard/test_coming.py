"""The coming instants of a manifest's jobs, which the timeline draws."""

from datetime import UTC, datetime, timedelta

import pytest

from detent.dashboard import coming as comings
from detent.dashboard.coming import AHEAD_S, BLOCK_S, Coming, Runs, runs_of
from detent.manifest.check import check_manifest

NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
SCHEDULES = {"tick": "@every 2s", "uneven": "5,20 * * * * *", "minute": "* * * * *", "daily": "0 2 * * *"}


def coming_of(schedules: dict[str, str]) -> Coming:
    jobs = [{"name": name, "schedule": text, "command": "true"} for name, text in schedules.items()]
    return Coming(check_manifest({"version": 2, "app": "shop", "jobs": jobs}))


def instants(runs: Runs) -> list[int]:
    return [first + step * number for first, step, count in runs for number in range(count)]


def test_all_instants_of_the_next_two_minutes_are_known_until_the_next_block() -> None:
    coming, block = coming_of(SCHEDULES), int(NOW.timestamp()) // BLOCK_S * BLOCK_S
    coming.move_to(NOW)
    first = coming.soon()
    assert {*first} == {"shop.tick", "shop.uneven", "shop.minute"}, "the next one of the others is enough"
    assert instants(first["shop.tick"]) == [*range(block + 2, block + BLOCK_S + AHEAD_S + 1, 2)]
    assert instants(first["shop.minute"]) == [block + 60, block + 120, block + 180]
    assert [at - block for at in instants(first["shop.uneven"])] == [5, 20, 65, 80, 125, 140]
    coming.move_to(NOW + timedelta(seconds=29))
    assert coming.soon() is first
    coming.move_to(NOW + timedelta(seconds=30))
    assert instants(coming.soon()["shop.minute"])[-1] == block + 240


def test_the_number_of_instants_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comings, "SOON_MAX", 100)
    coming = coming_of({"a": "@every 1s", "b": "@every 7s", "c": "@every 5s"})
    coming.move_to(NOW)
    found = coming.soon()
    assert sum(len(instants(runs)) for runs in found.values()) == 100
    assert "shop.a" in found, "what is due first is first"


@pytest.mark.parametrize(
    ("given", "runs"),
    [
        ([], []),
        ([5], [[5, 0, 1]]),
        ([5, 7], [[5, 2, 2]]),
        ([5, 7, 9, 20, 30, 40, 41], [[5, 2, 3], [20, 10, 3], [41, 0, 1]]),
    ],
)
def test_instants_become_runs_of_equal_steps(given: list[int], runs: Runs) -> None:
    assert runs_of(given) == runs
    assert instants(runs) == given
