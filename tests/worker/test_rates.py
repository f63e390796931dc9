"""A queue's rate, as real workers keep to it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.worker.worker_world import Works

MOST, WINDOW_S = 5, 1.0


def assert_within_rate(starts: Sequence[float]) -> None:
    ordered = sorted(starts)
    assert len(ordered) == 3 * MOST
    assert all(later - sooner >= WINDOW_S for sooner, later in zip(ordered, ordered[MOST:], strict=False))


def test_a_rate_holds_for_the_functions_that_a_warm_worker_begins(works: Works) -> None:
    works.start_warm(concurrency=3 * MOST)
    works.app.queue("q").limit(MOST, per=WINDOW_S)
    works.wait_over(works.tasks.quick.push_many([()] * 3 * MOST))
    assert_within_rate([one.at for one in works.starts()])


def test_a_rate_counts_what_a_worker_is_granted_while_its_process_imports_the_app(works: Works) -> None:
    works.env["WORKER_IMPORT_S"] = "3"
    works.app.queue("q").limit(MOST, per=WINDOW_S)
    handles = works.tasks.quick.push_many([()] * 3 * MOST)
    works.start(concurrency=3 * MOST)
    rows = works.wait_over(handles)
    assert_within_rate([attempt.started_at.timestamp() for row in rows for attempt in row.attempts])
