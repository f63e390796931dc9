"""A short storm: workers are killed with -9 while messages go through them; `make storm` is the long one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.worker.storm import PATIENCE_S, Plan, Storm, judge
from tests.worker.worker_world import Seen, Works

from detent.model import Attempt, Fire, Outcome, Row

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MESSAGES, KILLS = 600, 4  # a worker is killed in the middle of each quarter
DONE, LOST = Outcome("succeeded"), Outcome("lost")


@pytest.mark.parametrize("served_works", ["redis", "postgresql"], indirect=True)
def test_no_message_is_lost_nor_done_twice(served_works: Works) -> None:
    storm = Storm(served_works, Plan(MESSAGES, every_s=PATIENCE_S, kills=KILLS))
    assert storm.run() == []
    assert storm.kills >= KILLS
    kinds = {row.outcome.kind for row in served_works.rows() if row.outcome}
    assert kinds - {"lost"} == {"succeeded", "failed"} and len(served_works.rows()) == MESSAGES


def row(*outcomes: Outcome, state: str = "over") -> Row:
    attempts = tuple(Attempt(n, "n", n, NOW, NOW, one) for n, one in enumerate(outcomes, 1))
    fire = Fire("k", "a.b", NOW)
    return Row(fire, state, len(outcomes), outcome=outcomes[-1], attempts=attempts)  # type: ignore[arg-type]


def seen(*attempts: int) -> list[Seen]:
    return [Seen("start", "k", attempt, 1, 0.0, 0) for attempt in attempts]


WRONG: dict[str, tuple[list[Row], list[Seen], list[Seen]]] = {
    "is lost": ([], seen(1), []),
    "is claimed": ([row(LOST, state="claimed")], seen(1), []),
    "ended rejected": ([row(Outcome("rejected"))], [], []),
    "is dead after 2 attempts": ([row(LOST, LOST)], seen(1, 2), []),
    "was acked 2 times": ([row(DONE, DONE)], seen(1, 2), seen(2)),
    "has 7 attempts": ([row(*[LOST] * 7)], seen(*range(1, 8)), []),
    "began an attempt twice": ([row(DONE)], seen(1, 1), seen(1)),
    "began again after its end": ([row(DONE)], seen(1, 2), seen(1)),
    "no call was recorded": ([row(DONE)], seen(1), []),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_storm_checker_finds_planted_faults(what: str) -> None:
    assert any(what in wrong for wrong in judge(["k"], *WRONG[what]))
    assert judge(["k"], [row(LOST, DONE)], seen(1, 2), seen(2)) == []
