"""Which build this is, in a checkout of its own and without one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from detent import __version__
from detent.cli.other.version import Build, find_build


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a fresh repository with one commit."""
    package = tmp_path / "src" / "detent"
    package.mkdir(parents=True)
    (package / "a").touch()
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    _git(tmp_path, *who, "commit", "-qm", "first")
    return package


def _git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(root), *words], check=True)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (Build("1.0.0", "abc1234"), "detent v1.0.0 (abc1234)"),
        (Build("1.0.0", "abc1234", is_release=False), "detent abc1234"),
        (Build("1.0.0"), "detent v1.0.0"),
    ],
)
def test_a_build_has_the_fields_of_the_contract(build: Build, text: str) -> None:
    assert str(build) == text


def test_a_checkout_is_a_development_build_until_it_is_tagged(package: Path) -> None:
    assert re.fullmatch("detent [0-9a-f]{7}", str(find_build(package)))
    _git(package, "tag", "v0.0.0")
    assert not find_build(package).is_release
    _git(package, "tag", f"v{__version__}")
    assert re.fullmatch(rf"detent v{__version__} \([0-9a-f]{{7}}\)", str(find_build(package)))


def test_a_broken_repository_or_no_git_is_no_error(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package.parents[1] / ".git" / "HEAD").unlink()
    assert str(find_build(package)).startswith("detent v")
    monkeypatch.setenv("PATH", "")
    assert str(find_build(package)).startswith("detent v")


def test_a_package_elsewhere_asks_no_repository_around_it(package: Path) -> None:
    installed = package.parents[1] / "lib" / "detent"
    assert find_build(installed).version
    assert find_build(installed).commit != find_build(package).commit
