"""The pages tell the truth: generated parts are current; examples, commands, links and paths are real."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from tools import reference

from detent.cli.main import VERBS, parser_of
from detent.config import read_document
from detent.core.manifest import check_manifest

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LANGUAGES = ("yaml", "toml", "json")
SHELL_WORDS = {">", ">>", "<", "|", "||", "&", "&&", ";"}

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_PATH = re.compile(r"`((?:bench|docs|examples|src|tests|tools)/[\w./-]+)`")
_WHOLE = re.compile(r"""^\s*"?version"?\s*[:=].*^\s*\[*"?jobs"?\]*\s*[:=]?""", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced part of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


class AnyEnvironment(Mapping[str, str]):
    """Every variable is set."""

    def __getitem__(self, name: str) -> str:
        return "example"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(*languages: str) -> list[Block]:
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2])
        for page in PAGES
        for text in [page.read_text()]
        for match in _BLOCK.finditer(text)
        if match[1] in languages
    ]


def without_blocks(page: Path) -> str:
    return _BLOCK.sub("", page.read_text())


MANIFESTS = [block for block in blocks(*LANGUAGES) if _WHOLE.search(block.text)]
COMMANDS = [
    (f"{block.place}: {line[2:]}", shlex.split(line[2:], comments=True))
    for block in blocks("console")
    for line in block.text.splitlines()
    if line.startswith("$ detent")
]
LINKS = [
    (page, target) for page in PAGES for target in _LINK.findall(without_blocks(page)) if ":" not in target
]
PATHS = _PATH.findall((ROOT / "README.md").read_text())


@pytest.mark.parametrize("page", reference.PAGES, ids=name_of)
def test_the_generated_parts_of_a_page_are_current(page: Path) -> None:
    text = page.read_text()
    assert "<!-- generated: " in text
    assert text == reference.refreshed(text), "run python tools/reference.py"


def test_every_generated_part_has_its_place_in_a_page() -> None:
    placed = re.findall(r"<!-- generated: (\S+) -->", "".join(page.read_text() for page in reference.PAGES))
    assert sorted(placed) == sorted(reference.PARTS)


def test_a_stale_page_is_found() -> None:
    text = (ROOT / "docs/reference/events.md").read_text()
    stale = text.replace("| `success` | INFO |", "| `success` | WARN |")
    assert stale != text
    assert reference.refreshed(stale) == text


@pytest.mark.parametrize("block", MANIFESTS, ids=lambda block: block.place)
def test_a_manifest_in_a_page_is_valid(block: Block, tmp_path: Path) -> None:
    file = tmp_path / f"detent.{block.language}"
    file.write_text(block.text)
    document, lines = read_document(file)
    manifest = check_manifest(document, lines=lines, variables=AnyEnvironment())
    assert manifest.warnings == ()


@pytest.mark.parametrize(("place", "words"), COMMANDS, ids=[place for place, _ in COMMANDS])
def test_a_command_in_a_page_has_a_verb_and_options_that_exist(place: str, words: list[str]) -> None:
    own = words[1 : next((i for i, word in enumerate(words) if word in SHELL_WORDS), len(words))]
    verb = own[0] if own else ""
    assert verb in VERBS, place
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            parser_of(verb).parse_args(own)
        except SystemExit:
            pytest.fail(f"{place}: {said.getvalue()}")


@pytest.mark.parametrize(("page", "target"), LINKS, ids=lambda value: str(value).removeprefix(f"{ROOT}/"))
def test_a_link_leads_to_a_file_and_to_a_heading_in_it(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    assert file.is_file(), f"{name_of(page)}: {target}"
    assert not anchor or anchor in map(slug, _HEADING.findall(without_blocks(file))), (
        f"{name_of(page)}: {target}"
    )


def slug(heading: str) -> str:
    """A heading's anchor, as forges make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_the_readme_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_there_is_something_to_check() -> None:
    """A pattern that finds nothing would leave the tests above without a case."""
    assert {block.language for block in MANIFESTS} == {"yaml", "json"}
    assert {words[1] for _, words in COMMANDS} == set(VERBS), "each verb is shown"
    assert any("#" in target for _, target in LINKS) and any(page.name == "README.md" for page, _ in LINKS)
    assert len(PATHS) >= 5
