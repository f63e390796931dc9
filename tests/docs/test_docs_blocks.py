"""Tests every block of every page: runs commands and compares their output, and checks configurations."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.docs.docs_likeness import begins_like, is_like
from tests.docs.docs_pages import PAGES, WRITTEN, Block, Step, blocks_of, faults_of, name_of, steps_of
from tests.docs.docs_terminal import LOOK_AGAIN_S, Reader, until

from detent.cli.main import VERBS, build_parser
from detent.loading.files import PARSERS
from detent.manifest.check import check_manifest

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
TRIED = [block for block in BLOCKS if "not run" not in block.said]
SESSIONS = ("console", "sh", "python")
RUN = [page for page in PAGES if any(block.language in SESSIONS and block.page == page for block in TRIED)]
DOCUMENTS = [
    block for block in TRIED if block.language in ("yaml", "toml", "json") and "wrong" not in block.said
]
UNITS = [block for block in TRIED if block.language == "ini"]

AROUND = {  # a fragment -> the document around it; fields of the fragment win
    "job": {"name": "example", "schedule": "@hourly"},
    "document": {"version": 2, "app": "example", "jobs": [{"name": "example", "schedule": "@hourly"}]},
}


class AnyEnvironment(Mapping[str, str]):
    """Has every variable."""

    def __getitem__(self, name: str) -> str:
        return "example"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_every_block_is_run_or_has_a_reason_why_not() -> None:
    assert [fault for block in BLOCKS for fault in faults_of(block)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_fence_of_a_page_is_found(page: Path) -> None:
    fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
    assert all(fence.startswith("```") for fence in fences), "a fence is not indented"
    assert len(fences) % 2 == 0


# Configurations.


@pytest.mark.parametrize("block", DOCUMENTS, ids=lambda block: block.place)
def test_a_document_in_a_page_is_valid(block: Block) -> None:
    document, lines = PARSERS[f".{block.language}"](block.text)
    if fragment := block.said.get("fragment"):
        document, lines = whole(document, fragment), {}
    if "fragment" in block.said or is_manifest(document):
        manifest = check_manifest(document, lines=lines, variables=AnyEnvironment())
        assert manifest.warnings == ()


def whole(part: Any, fragment: str) -> Any:
    """Return a whole manifest with this part in it."""
    job = AROUND["job"] if fragment == "document" else {**AROUND["job"], **part}
    works = {"command", "request", "call"} & set(job)
    job = job if works else {**job, "command": "true"}
    made = {**AROUND["document"], "jobs": [job]}
    return {**made, **part} if fragment == "document" else made


def is_manifest(document: Any) -> bool:
    return isinstance(document, dict) and "version" in document and "jobs" in document


@pytest.mark.parametrize("block", UNITS, ids=lambda block: block.place)
def test_a_unit_in_a_page_is_valid(block: Block, tmp_path: Path) -> None:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(block.text)
    assert parsed.sections()
    if shutil.which("systemd-analyze") is None or "[Unit]" not in block.text:
        return
    unit = tmp_path / block.said["file"]
    # The unit's program is not installed here: another one takes its place.
    unit.write_text(block.text.replace(parsed["Service"]["ExecStart"].split()[0], "/bin/true"))
    said = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert [line for line in said.stderr.splitlines() if unit.name in line] == []
    assert said.returncode == 0


# Sessions.


NOT_RUN = [
    (f"{block.place}: {line[2:]}", shlex.split(line[2:], comments=True)[1:])
    for block in BLOCKS
    if "not run" in block.said
    for line in block.text.splitlines()
    if line.startswith("$ detent ")
]


@pytest.mark.parametrize(("place", "words"), NOT_RUN, ids=[place for place, _ in NOT_RUN])
def test_a_command_that_is_not_run_has_a_verb_and_options_that_exist(place: str, words: list[str]) -> None:
    assert words[0] in VERBS, place
    build_parser(words[0]).parse_args(words[1:])


IMPORTS = [
    (block.place, line)
    for block in BLOCKS
    if block.language == "python" and "not run" in block.said
    for line in block.text.splitlines()
    if line.startswith(("import detent", "from detent"))
]


@pytest.mark.parametrize(("place", "line"), IMPORTS, ids=[f"{place}: {line}" for place, line in IMPORTS])
def test_an_import_of_a_block_that_is_not_run_works(place: str, line: str) -> None:
    exec(line, {})


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.leave()


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_commands_of_a_page_print_what_it_shows(page: Path, reader: Reader) -> None:
    for block in blocks_of(page):
        if "not run" not in block.said and not lacking(block):
            follow(reader, block)


def lacking(block: Block) -> bool:
    needed = block.said.get("needs", "")
    if needed == "root":
        return os.geteuid() != 0
    return bool(needed) and shutil.which(needed) is None


def follow(reader: Reader, block: Block) -> None:
    if how := next((how for how in WRITTEN if how in block.said), ""):
        write(reader.file(block.said[how]), reader.meant(block.text), how)
    elif block.language == "python":
        check(reader, Step(f"python3 - <<'EOF'\n{block.text}\nEOF", (), may_fail=False), block)
    elif "goes on" in block.said:
        go_on(reader, *steps_of(block), block=block)
    elif block.language in SESSIONS:
        for step in steps_of(block):
            check(reader, step, block)


def write(file: Path, text: str, how: str) -> None:
    before = file.read_text() if how != "file" else ""
    if how == "added to":
        anchor, _, rest = text.partition("\n")
        assert f"\n{anchor}\n" in before, f"{file.name} has no line {anchor!r}"
        text = before.replace(f"\n{anchor}\n", f"\n{anchor}\n{rest}", 1)
    elif how == "appended to":
        text = before + text
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def go_on(reader: Reader, step: Step, *, block: Block) -> None:
    terminal = reader.start(step.command)
    try:
        until("it answers as shown", lambda: begins_like(step.shown, reader.shown(terminal.text)))
    except AssertionError:
        pytest.fail(f"{block.place}: `{step.command}` said:\n{terminal.text}", pytrace=False)


def check(reader: Reader, step: Step, block: Block) -> None:
    answers: list[tuple[str, int]] = []

    def holds() -> bool:
        answers.append(reader.type(step.command))
        said, status = answers[-1]
        shown = not step.shown or is_like(step.shown, said, exact="exact" in block.said)
        return shown and (status == 0 or step.may_fail)

    try:
        if "eventually" in block.said:
            until("it answers as shown", holds, LOOK_AGAIN_S)
        else:
            assert holds()
    except AssertionError:
        said, status = answers[-1]
        pytest.fail(f"{block.place}: `{step.command}` ended with {status} and said:\n{said}", pytrace=False)


def test_there_is_something_to_check() -> None:
    """A pattern that finds nothing would leave the tests above without a case."""
    assert {block.language for block in TRIED} >= {"console", "yaml", "json", "ini", "python"}
    assert len(RUN) >= 10
