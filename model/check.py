"""Searches the whole state space of `claims.pml` with Spin.

The model must hold, and the search must find each removed safeguard.

`python model/check.py [--small] [-o json]` exits with 1 if a result is not as expected.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("claims.pml")
TOOLS = ("spin", "gcc")
DEPTH_MAX = 20_000
MEMORY_MB = 8000
AT_ONCE = 2  # searches, each on a processor of its own
HOLDS = "holds"
OVERLAP, LIVE_CLAIMS = "two of a lane alive", "two live claims in a lane"
SMALLER, TWICE = "a fence that does not grow", "an attempt launched twice"
REGRANTED = "a settled fire granted again"
UNOWNED, UNSETTLED = "a claim without an owner", "a fire never settled"
ENDLESS = "a run without end"
SIGNS = {  # text of the violated assertion -> its meaning
    "orphan": OVERLAP,
    "disposition": LIVE_CLAIMS,
    ">top": SMALLER,
    "launched_": TWICE,
    "holder": UNOWNED,
    "state==3": UNSETTLED,
    "state!=3": REGRANTED,
    "non-progress": ENDLESS,
}


class Variant(NamedTuple):
    """One search: the definitions for the model, and the expected result."""

    name: str
    expected: str = HOLDS
    defines: tuple[str, ...] = ()
    ends: bool = False  # also search for runs that never end


class Finding(NamedTuple):
    name: str
    states: int
    depth: int
    result: str
    expected: str

    @property
    def is_expected(self) -> bool:
        return self.result == self.expected


TWO = ("NODES=2",)
TWO_KILLED = (*TWO, "FAILOVERS=0", "CRASHES=1", "ATTEMPTS=2")
SAFEGUARDS = {
    "NO_FENCE": OVERLAP,
    "RENEW_AFTER_EXPIRY": LIVE_CLAIMS,
    "ASK_NOT_NUMBERED": UNOWNED,
    "NO_KEY": TWICE,
    "NO_LANE": LIVE_CLAIMS,
    "NO_DISPOSITION": UNSETTLED,
    "NO_TRUST_MARGIN": OVERLAP,
    "TRUST_FROM_ANSWER": OVERLAP,
    "CHECK_THEN_START": OVERLAP,
    "NO_WARDEN": OVERLAP,
    "NO_QUARANTINE": OVERLAP,
    "COUNTER_FENCE": SMALLER,
    "NO_FIRE_VERSION": REGRANTED,
    "NO_LANE_VERSION": LIVE_CLAIMS,
}
QUICK = (
    "NO_FENCE", "RENEW_AFTER_EXPIRY", "NO_KEY", "NO_DISPOSITION", "NO_QUARANTINE", "COUNTER_FENCE",
    "NO_FIRE_VERSION", "NO_LANE_VERSION",
)  # fmt: skip
REMOVED = tuple(Variant(name, found, (*TWO, name)) for name, found in SAFEGUARDS.items())
LARGE = (
    Variant("3 nodes, 1 failover, 1 pause"),
    Variant("2 nodes, 1 failover, 1 pause: every run ends", HOLDS, TWO, ends=True),
    Variant("2 nodes, 1 kill, 1 pause, rerun", HOLDS, TWO_KILLED),
)
ENDS = Variant("3 nodes, 1 pause: every run ends", HOLDS, ("FAILOVERS=0",), ends=True)
FULL = (*LARGE, ENDS, *REMOVED)
SMALL = (
    Variant("2 nodes, 1 pause: every run ends", HOLDS, (*TWO, "FAILOVERS=0"), ends=True),
    Variant("2 nodes, 1 failover", HOLDS, (*TWO, "PAUSES=0")),
    *(one for one in REMOVED if one.name in QUICK),
)


def check(variant: Variant) -> Finding:
    """Search one variant."""
    with tempfile.TemporaryDirectory(prefix="detent-model-") as folder:
        defines = [f"-D{one}" for one in variant.defines]
        _run(folder, "spin", *defines, "-a", str(SOURCE))
        kind = "-DNP" if variant.ends else "-DSAFETY"
        # Compiling with -O2 takes longer than the small searches.
        optimised = "-O2" if variant in LARGE else "-O0"
        _run(folder, "gcc", optimised, "-w", kind, f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c")
        said = _run(folder, "./pan", f"-m{DEPTH_MAX}", *(["-l"] if variant.ends else []))
    return read(variant, said)


def read(variant: Variant, said: str) -> Finding:
    """Read the output of a search.  An incomplete search proves nothing."""
    counted = re.search(r"^\s*(\d+) states, stored", said, re.MULTILINE)
    depth = re.search(r"depth reached (\d+), errors: (\d+)", said)
    if not counted or not depth:
        return Finding(variant.name, 0, 0, "no result", variant.expected)
    is_cut = "max search depth too small" in said or "Search not completed" in said.replace("\n", " ")
    error = re.search(r"^pan:1: (.*)$", said, re.MULTILINE)
    result = _meaning(error[1]) if error else "not completed" if is_cut else HOLDS
    return Finding(variant.name, int(counted[1]), int(depth[1]), result, variant.expected)


def _meaning(error: str) -> str:
    return next((meaning for sign, meaning in SIGNS.items() if sign in error), error)


def _run(folder: str, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode and words[0] != "./pan":
        raise SystemExit(f"{words[0]} failed on {SOURCE.name}:\n{done.stdout}")
    return done.stdout


def missing() -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def text_of(findings: Sequence[Finding]) -> str:
    rows = [("variant", "states", "depth", "result", "expected", "")]
    for one in findings:
        judged = "as expected" if one.is_expected else "NOT AS EXPECTED"
        rows.append((one.name, f"{one.states:,}", f"{one.depth}", one.result, one.expected, judged))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, tuple("-" * width for width in widths))
    right = (False, True, True, False, False, False)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="fewer nodes and faults: takes seconds")
    parser.add_argument("-o", dest="output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    if lacking := missing():
        print(
            f"{' and '.join(lacking)} missing; on Debian: apt-get install spin gcc libc6-dev", file=sys.stderr
        )
        return 1
    with ThreadPoolExecutor(AT_ONCE) as pool:
        findings = list(pool.map(check, SMALL if given.small else FULL))
    if given.output == "json":
        print(json.dumps([one._asdict() for one in findings]))
    else:
        print(text_of(findings))
    return 0 if all(one.is_expected for one in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
