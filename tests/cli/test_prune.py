"""`detent prune`: which fires are deleted, and which never are."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.cli.cli_world import MANIFEST, Detent, Past
from tests.cli.past_node import PastNode

from detent import clock
from detent.model import Outcome

GOOD = Outcome("succeeded")


def test_only_the_newest_of_a_job_are_kept(detent: Detent, folder: Path) -> None:
    past = Past(folder)
    for token, ago in (("a", 300), ("b", 200), ("c", 100)):
        past.over("money", token, GOOD, ago)
    past.over("backup", "d", GOOD, 400)
    waiting = past.put("money", "e", 600)
    said = detent("prune", "--keep", "1")
    assert said == (
        0,
        "demo: 2 fires deleted: ended more than 30 d ago, or not among the newest 1 of their job\n",
        "",
    )
    kept = {row["fire"].rpartition("+")[2] for row in detent("history", "-o", "json").json}
    assert kept == {"c", "d", waiting.key.rpartition("+")[2]}


@pytest.mark.parametrize(
    ("settings", "words", "gone"),
    [
        ("", [], 2),  # node.keep_days is 30
        ("node: {keep_days: 50}", [], 1),
        ("node: {keep_days: 50}", ["--older-than", "30d"], 2),
        ("", ["--older-than", "1h"], 3),
    ],
)
def test_old_fires_are_deleted(
    detent: Detent, folder: Path, settings: str, words: list[str], gone: int
) -> None:
    (folder / "detent.yaml").write_text(f"{MANIFEST}\n{settings}\n")
    then = PastNode(folder)
    for days in (60, 40, 2):
        hour = (clock.now() - timedelta(days=days)).replace(minute=0, second=0, microsecond=0)
        then.jobs = {"demo.money": then.jobs["demo.money"]}
        then.live(hour, GOOD)
        then.store.set_jobs("demo", then.store.look("demo").generation, {})
        then.store.note("demo", "gone/demo.money", "")  # as after an hour: only its wall clock is set here
    then.at(clock.now())
    assert len(detent("history", "money", "-o", "json").json) == 3
    assert detent("prune", *words, "-o", "json").json == [{"app": "demo", "forgotten": gone}]
    assert len(detent("history", "money", "-o", "json").json) == 3 - gone


@pytest.mark.parametrize("words", [["--keep", "0"], ["--keep", "x"], ["--older-than", "30"]])
def test_a_bad_number_or_duration_is_a_usage_error(detent: Detent, folder: Path, words: list[str]) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    assert detent("prune", *words).code == 2


def test_without_a_store_there_is_nothing_to_prune(detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)
    assert "no store at" in detent("prune").err
    assert not (folder / "try.db").exists()
