"""Some seconds of faults on three real nodes and a real store: no violations.

`make chaos` does the same for longer, and on SQLite too.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.chaos.run import Setup, run

SECONDS, PAUSE_S = 8.0, 0.4  # of the run, which ends with 6 s without new faults; between two faults
VIEWERS = {"redis": 10}  # open pages of a dashboard
BUSY = ("groundless", "silence")  # violations that other tests can cause by making a node late


@pytest.mark.parametrize("store", ["redis", "postgres", "mysql"])
def test_a_short_run_with_faults_has_no_violations(store: str, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip(
            "needs a C compiler, for clocks that can be set and for a witness that they cannot deceive"
        )
    evidence, violations = run(
        tmp_path, Setup(store, SECONDS, seed=4, pause_s=PAUSE_S, viewers=VIEWERS.get(store, 0))
    )
    assert [one for one in violations if one.kind not in BUSY] == []
    assert len({fault.kind for fault in evidence.faults}) >= 4, "too few kinds of faults"
    assert len({one.member for one in evidence.starts()}) >= 2, "one node did everything"
