"""A queue's rate, as real workers keep to it."""

from __future__ import annotations

import pytest
from tests.worker.worker_world import Works


@pytest.mark.xfail(
    strict=True,
    reason="a rate counts claims, and a cold process begins what was claimed in several windows at once; the "
    'issue "One engine" moves the rule to where functions begin',
)
def test_a_rate_counts_when_functions_begin(works: Works) -> None:
    most, window_s = 5, 1.0
    works.env["WORKER_IMPORT_S"] = "3"
    works.app.queue("q").limit(most, per=window_s)
    handles = works.tasks.quick.push_many([()] * 3 * most)
    works.start(concurrency=3 * most, processes=1)
    works.wait_over(handles)
    begun = sorted(one.at for one in works.starts())
    assert len(begun) == 3 * most
    assert all(later - sooner >= window_s for sooner, later in zip(begun, begun[most:], strict=False))
