"""Tests how blocks of a page are found, and how their output is compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.docs_likeness import begins_like, is_like
from tests.docs.docs_pages import Step, blocks_of, faults_of, steps_of

LIKE = {
    "the same": ("ok: 3 jobs", "ok: 3 jobs\n"),
    "another time": ("at 00:47:10 (in 5 s)", "at 23:01:59 (now)"),
    "another date": ("shop.a@2026-11-16T00:47:10Z", "shop.a@2027-01-02T03:04:05Z"),
    "another node": ("on vm.9066bdfb, up 1 min 1 s", "on web-1.00aa11bb, up 13 ms"),
    "other widths": ("node  up\na  1 s", "node   up   \n\na    1 s"),
    "lines left out": ("first\n...\nlast", "first\nlast"),
    "a word left out": ("answers in ...: ok", "answers in no time: ok"),
    "colours": ("all well", "\x1b[1mall well\x1b[0m"),
}
UNLIKE = {
    "another number": ("ok: 3 jobs", "ok: 4 jobs"),
    "another job": ("shop.a@2026-11-16T00:47:10Z", "shop.b@2026-11-16T00:47:10Z"),
    "another outcome": ("failed: exit 3, 4 ms", "failed: exit 4, 4 ms"),
    "more": ("ok", "ok\nand a warning"),
    "less": ("ok\nand a warning", "ok"),
    "nothing": ("ok", ""),
    "text around `...` is missing": ("first\n...\nlast", "first\nelse"),
}


@pytest.mark.parametrize(("shown", "said"), LIKE.values(), ids=[*LIKE])
def test_outputs_that_differ_only_in_times_and_names_match(shown: str, said: str) -> None:
    assert is_like(shown.splitlines(), said)


@pytest.mark.parametrize(("shown", "said"), UNLIKE.values(), ids=[*UNLIKE])
def test_outputs_that_differ_in_content_do_not_match(shown: str, said: str) -> None:
    assert not is_like(shown.splitlines(), said)


def test_an_exact_comparison_includes_times() -> None:
    assert not is_like(["at 02:30:00"], "at 03:30:00", exact=True)
    assert is_like(["at 02:30:00"], "at 02:30:00", exact=True)


def test_a_command_that_goes_on_may_print_more() -> None:
    assert begins_like(["started"], "started\nsuccess\n") and begins_like(["started"], "started\n")
    assert not begins_like(["started"], "refused\nstarted\n")


PAGE = """
<!-- eventually -->
<!-- file: a.yaml -->
```console
$ first \\
  and on
one
$ false
$ echo $?
1
```

<!-- generated: verbs -->
```console
$ elsewhere
```
<!-- end of verbs -->

```brainfuck
+
```
<!-- often -->
```text
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tests.docs.docs_pages.ROOT", tmp_path)
    file = tmp_path / "page.md"
    file.write_text(PAGE)
    return file


def test_a_block_has_its_comments_and_its_steps(page: Path) -> None:
    block, *others = blocks_of(page)
    assert block.said == {"eventually": "", "file": "a.yaml"} and block.line == 4
    assert steps_of(block) == [
        Step("first \\\n  and on", ("one",), may_fail=False),
        Step("false", (), may_fail=True),
        Step("echo $?", ("1",), may_fail=False),
    ]
    assert [other.language for other in others] == ["brainfuck", "text"]


def test_a_block_that_nothing_runs_and_an_unknown_comment_are_faults(page: Path) -> None:
    faults = [fault for block in blocks_of(page) for fault in faults_of(block)]
    assert [fault.partition(": ")[0] for fault in faults] == ["page.md:19", "page.md:23"]
