"""Half a minute of faults on three real nodes and a real store: no violations.

`make chaos` does the same for longer.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.chaos.run import Setup, run

SECONDS = 30.0
MACHINES = (
    "groundless",
    "silence",
)  # other tests may make a node late


@pytest.mark.parametrize("store", ["redis", "postgres", "sqlite"])
def test_half_a_minute_of_faults_breaks_no_promise(store: str, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip(
            "needs a C compiler, for clocks that can be set and for a witness that they cannot deceive"
        )
    evidence, violations = run(tmp_path, Setup(store, SECONDS, seed=4, pause_s=1.2))
    assert [one for one in violations if one.kind not in MACHINES] == []
    assert len({fault.kind for fault in evidence.faults}) >= 8, "it was calm"
    assert len({one.member for one in evidence.starts()}) == 3, "not all nodes took part"
    assert sum(1 for _ in evidence.starts()) >= 20
