"""The pages tell the truth: generated parts are current, links and paths are real.  What their blocks show is
checked in tests/docs."""

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
_PATH = re.compile(r"`((?:bench|docs|examples|src|tests|tools)/[\w./-]+)`")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def without_blocks(page: Path) -> str:
    return _BLOCK.sub("", page.read_text())


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
    assert any("#" in target for _, target in LINKS) and any(page.name == "README.md" for page, _ in LINKS)
    assert len(PATHS) >= 5


def test_the_reference_has_no_text_that_argparse_would_have_filled_in() -> None:
    assert "%(" not in (ROOT / "docs/reference/cli.md").read_text()
