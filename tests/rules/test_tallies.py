"""Which interval and which buckets a fire that ended counts for."""

from datetime import UTC, datetime, timedelta
from math import inf

import pytest

from detent.clock import instant
from detent.errors import UsageError
from detent.model import Fire, Outcome
from detent.rules.tallies import BOUNDS_S, INTERVALS_MAX, NEVER_RAN, bucket, group_of, intervals, tally_of
from detent.stores.engine.record import Record

DUE = 1_000_020.0


def over(origin: str = "schedule", attempt: int = 1, run_at: float = DUE, took_s: float = 2.0) -> Record:
    fire = Fire("a.b@1", "a.b", instant(DUE), queue="q", origin=origin)  # type: ignore[arg-type]
    record = Record(fire, run_at)
    record.attempt, record.ran_at, record.over_at = attempt, DUE + 100.0, DUE + 100.0 + took_s
    record.outcome = Outcome("failed")
    return record


@pytest.mark.parametrize(
    ("seconds", "bound"),
    [(-3.0, 0.1), (0.0, 0.1), (0.1, 0.1), (0.11, 0.5), (60.0, 60.0), (3600.0, 3600.0), (3600.1, inf)],
)
def test_a_bucket_is_the_first_bound_that_is_not_exceeded(seconds: float, bound: float) -> None:
    assert BOUNDS_S[bucket(seconds)] == bound


@pytest.mark.parametrize(
    ("record", "late", "took"),
    [
        (over(), 300.0, 5.0),
        (over(took_s=0.0), 300.0, 0.1),
        (over(run_at=DUE + 99.8), 300.0, 5.0),  # delayed by a rate: it is late all the same
        (over(attempt=2, run_at=DUE + 99.8), 0.5, 5.0),  # the delay of a retry is not lateness
        (over("push", run_at=DUE + 99.8), 0.5, 5.0),  # it was pushed with a delay
        (over(attempt=0), None, None),
    ],
)
def test_lateness_counts_from_the_schedule_or_from_when_it_was_due_again(
    record: Record, late: float | None, took: float | None
) -> None:
    group = group_of(record)
    assert group[:3] == ("a.b", "q", "failed")
    assert tally_of(60.0, group, 3)[4:] == (late, took, 3)
    assert (group[3] == NEVER_RAN) == (late is None)


def test_intervals_start_at_multiples_of_their_length() -> None:
    since = datetime(2026, 1, 1, 0, 1, 30, tzinfo=UTC)
    starts = intervals(since, since + timedelta(minutes=5), 120)
    assert [instant(at).minute for at in starts] == [0, 2, 4, 6]
    assert len(intervals(since, since + timedelta(seconds=1), 60)) == 1
    assert not intervals(since, since - timedelta(days=1), 60)


@pytest.mark.parametrize("step_s", [-60, 0, 59, 90])
def test_a_step_that_is_no_multiple_of_a_minute_is_refused(step_s: int) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(UsageError, match=f"steps of {step_s} s: use 60 s or a multiple"):
        intervals(now, now, step_s)


def test_too_many_intervals_are_refused() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert len(intervals(now, now + timedelta(minutes=INTERVALS_MAX), 60)) == INTERVALS_MAX
    with pytest.raises(UsageError, match="1,501 intervals of 60 s in one call: at most 1,500"):
        intervals(now, now + timedelta(minutes=INTERVALS_MAX + 1), 60)
