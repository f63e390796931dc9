"""A type checker knows the arguments and results of tasks: it refuses each wrong line, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).with_name("typed_tasks.py")
SOURCES = Path(__file__).parents[3] / "src"


def test_a_type_checker_refuses_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--hide-error-context"]
    command += ["--cache-dir", str(tmp_path), "--follow-imports", "silent", "--no-pretty", str(FILE)]
    env = {**os.environ, "MYPYPATH": str(SOURCES)}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)
    errors = [line for line in ran.stdout.splitlines() if ": error: " in line]
    refused = {int(line.split(":")[1]) for line in errors if FILE.name in line}
    lines = FILE.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert wrong, "there is something to refuse"
    assert refused == wrong, ran.stdout + ran.stderr
