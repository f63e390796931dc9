"""Which build of detent this is: a release, or some commit on the way to one.

In a checkout git is asked; elsewhere the installed package.  Whatever goes wrong, there is an answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from detent import __version__

COMMIT_DIGITS = 7
GIT_MAX_S = 5.0


class Build(NamedTuple):
    """A version, and the commit it was made of where that is known."""

    version: str
    commit: str = ""
    is_release: bool = True

    def __str__(self) -> str:
        if not self.is_release and self.commit:
            return f"detent {self.commit}"
        return f"detent v{self.version} ({self.commit})" if self.commit else f"detent v{self.version}"


def find_build(package: Path = Path(__file__).parents[1]) -> Build:
    """The build that this package belongs to."""
    root = package.parent.parent
    is_checkout = package.parent.name == "src" and (root / ".git").exists()
    return (_checked_out(root) if is_checkout else None) or _installed() or Build(__version__)


def _checked_out(root: Path) -> Build | None:
    commit = _git(root, "rev-parse", f"--short={COMMIT_DIGITS}", "HEAD")
    if not commit:
        return None
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    return Build(__version__, commit, is_release=f"v{__version__}" in tags)


def _git(root: Path, *words: str) -> str:
    import subprocess  # late: an installed detent has no git to ask

    command = ["git", "-C", str(root), *words]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=GIT_MAX_S, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()


def _installed() -> Build | None:
    """pip writes down the commit when it installs from a repository."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution("detent")
        source = json.loads(found.read_text("direct_url.json") or "{}").get("vcs_info", {})
    except (PackageNotFoundError, OSError, ValueError, AttributeError):
        return None
    commit = str(source.get("commit_id", ""))[:COMMIT_DIGITS]
    released = not commit or source.get("requested_revision") == f"v{found.version}"
    return Build(found.version, commit, is_release=released)
