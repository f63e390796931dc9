"""The small form of the Spin model holds, and Spin finds what each removed safeguard allows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from model.check import (
    HOLDS,
    OVERLAP,
    SAFEGUARDS,
    SMALL,
    UNSETTLED,
    Finding,
    Variant,
    check,
    main,
    missing,
    read,
    text_of,
)

MODEL = Path(__file__).parents[1] / "model"
needs_spin = pytest.mark.skipif(
    bool(missing()), reason=f"needs {' and '.join(missing())}: apt-get install spin gcc libc6-dev"
)


@needs_spin
@pytest.mark.parametrize("variant", SMALL, ids=lambda one: one.name)
def test_the_model_holds_and_a_removed_safeguard_is_found(variant: Variant) -> None:
    finding = check(variant)
    assert finding.result == variant.expected
    assert finding.depth > 50  # it got somewhere


def test_every_safeguard_that_can_be_removed_is_searched_for() -> None:
    text = (MODEL / "claims.pml").read_text()
    tested = {line.split()[-1] for line in text.splitlines() if line.startswith(("#ifdef", "#ifndef"))}
    sizes = {"NODES", "ATTEMPTS", "PAUSES", "CRASHES", "FAILOVERS", "LOSSES"}
    assert tested - sizes == set(SAFEGUARDS)


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ("State-vector 68 byte, depth reached 187, errors: 0\n  66 states, stored\n", HOLDS),
        (
            "error: max search depth too small\ndepth reached 9999, errors: 0\n  66 states, stored\n",
            "not completed",
        ),
        ("pan:1: assertion violated (!orphan)\ndepth reached 9, errors: 1\n  66 states, stored\n", OVERLAP),
        ("pan: out of memory\n", "no result"),
    ],
)
def test_a_search_that_did_not_reach_everything_shows_nothing(said: str, result: str) -> None:
    assert read(Variant("it"), said).result == result


def test_a_result_that_was_not_expected_stands_out() -> None:
    text = text_of([Finding("it", 1, 2, HOLDS, UNSETTLED), Finding("that", 1, 2, HOLDS, HOLDS)])
    assert text.count("NOT AS EXPECTED") == 1


def test_without_spin_it_says_what_to_install(tmp_path: Path) -> None:
    words = [sys.executable, str(MODEL / "check.py"), "--small", "-o", "json"]
    ended = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "apt-get install spin gcc" in ended.stderr
    assert not ended.stdout


@needs_spin
def test_one_unexpected_result_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Variant("NO_KEY", HOLDS, ("NODES=2", "NO_KEY"))
    monkeypatch.setattr("model.check.SMALL", (wrong,))
    monkeypatch.setattr("sys.argv", ["check.py", "--small", "-o", "json"])
    assert main() == 1
    assert json.loads(capsys.readouterr().out)[0]["result"] == SAFEGUARDS["NO_KEY"]
