"""`detent version`: the version and, where it is known, the commit that this build was made from."""

import argparse
import json
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from detent import __version__
from detent.cli.tables import write_json

EXAMPLE = "detent version"
COMMIT_DIGITS = 7
GIT_MAX_S = 5.0


class Build(NamedTuple):
    version: str
    commit: str = ""
    is_release: bool = True

    def __str__(self) -> str:
        if not self.is_release and self.commit:
            return f"detent {self.commit}"
        return f"detent v{self.version} ({self.commit})" if self.commit else f"detent v{self.version}"


def add_options(parser: argparse.ArgumentParser) -> None: ...


def main(args: argparse.Namespace) -> int:
    build = find_build()
    if args.output == "json":
        write_json({"version": build.version, "commit": build.commit or None, "release": build.is_release})
    else:
        print(build)
    return 0


def find_build(package: Path = Path(__file__).parents[2]) -> Build:
    """Ask git in a checkout, and pip's metadata elsewhere; fall back to the version alone."""
    root = package.parent.parent
    is_checkout = package.parent.name == "src" and (root / ".git").exists()
    return (_checked_out(root) if is_checkout else None) or _installed() or Build(__version__)


def _checked_out(root: Path) -> Build | None:
    commit = _git(root, "rev-parse", f"--short={COMMIT_DIGITS}", "HEAD")
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    return Build(__version__, commit, is_release=f"v{__version__}" in tags) if commit else None


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_MAX_S, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _installed() -> Build | None:
    """Read the commit that pip records when it installs from a repository."""
    try:
        found = distribution("detent")
        source = json.loads(found.read_text("direct_url.json") or "{}").get("vcs_info", {})
    except (PackageNotFoundError, OSError, ValueError, AttributeError):
        return None
    commit = str(source.get("commit_id", ""))[:COMMIT_DIGITS]
    is_release = not commit or source.get("requested_revision") == f"v{found.version}"
    return Build(found.version, commit, is_release)
