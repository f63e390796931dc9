"""Checks the pages: generated parts are current; links, paths and names exist.

tests/docs checks their blocks.
"""

import importlib
import re
from pathlib import Path

import pytest
from tools import reference

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_PATH = re.compile(r"`((?:bench|docs|examples|model|src|tests|tools)/[\w./-]+)`")
_SOURCE_PATH = re.compile(r"`([\w/]+/|[\w/]+\.(?:py|lua|sql))`")  # on the page of the architecture
_NAME = re.compile(r"`(detent(?:\.[A-Za-z_]\w*)+)`")
_GENERATED = re.compile(r"<!-- generated: (\S+) -->.*?<!-- end of \1 -->", re.DOTALL)
_ODD = re.compile(r"\b(?:anew|as it were|of late|rung|sentenced|somebody|whoever)\b")
_FILES = (".db", ".json", ".service", ".toml", ".yaml", ".yml")  # what looks like a name and is a file


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def without_blocks(page: Path) -> str:
    return _BLOCK.sub("", page.read_text())


LINKS = [
    (page, target) for page in PAGES for target in _LINK.findall(without_blocks(page)) if ":" not in target
]
PATHS = [(page, path) for page in PAGES for path in _PATH.findall(page.read_text())]
SOURCE_PATHS = sorted({*_SOURCE_PATH.findall((ROOT / "ARCHITECTURE.md").read_text())})
NAMES = sorted(
    {name for page in PAGES for name in _NAME.findall(without_blocks(page)) if not name.endswith(_FILES)}
)


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


@pytest.mark.parametrize(("page", "path"), PATHS, ids=lambda value: str(value).removeprefix(f"{ROOT}/"))
def test_a_path_that_a_page_names_exists(page: Path, path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", SOURCE_PATHS)
def test_a_path_that_the_architecture_names_exists(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "src/detent" / path).exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_python_name_on_a_page_exists(name: str) -> None:
    module, rest = name, list[str]()
    while True:
        try:
            found = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for attribute in rest:
        found = getattr(found, attribute)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_uses_plain_words(page: Path) -> None:
    text = _GENERATED.sub("", without_blocks(page))
    assert _ODD.findall(text) == []


def test_there_is_something_to_check() -> None:
    """A pattern that finds nothing would leave the tests above without a case."""
    assert any("#" in target for _, target in LINKS) and any(page.name == "README.md" for page, _ in LINKS)
    assert len(PATHS) >= 20 and len(SOURCE_PATHS) >= 30 and len(NAMES) >= 10


def test_the_reference_has_no_text_that_argparse_would_have_filled_in() -> None:
    assert "%(" not in (ROOT / "docs/reference/cli.md").read_text()
