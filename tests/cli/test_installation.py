"""The installed program starts wherever it is installed."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
INTERRUPT_AN_IMPORT = """
import os, signal, sys
from importlib.metadata import entry_points

file = sys.argv[1]

def ctrl_c(event, args):
    if event == "exec" and args[0].co_filename.endswith(file):
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(ctrl_c)
[program] = entry_points(group="console_scripts", name="detent")
main = program.load()
sys.argv[1:] = ["version"]
sys.exit(main())
"""


def write_wheel(folder: Path) -> Path:
    """A wheel of the package as it is here, with the metadata that its build wrote."""
    found = importlib.metadata.distribution("detent")
    about = f"detent-{found.version}.dist-info"
    wheel = folder / f"detent-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in (SOURCES / "detent").rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                archive.write(path, path.relative_to(SOURCES))
        for name in ("METADATA", "WHEEL", "entry_points.txt"):
            archive.writestr(f"{about}/{name}", found.read_text(name) or "")
        archive.writestr(f"{about}/RECORD", "")
    return wheel


def test_the_program_starts_in_a_path_with_a_space(tmp_path: Path) -> None:
    home = tmp_path / "two words"
    venv.create(home, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet"]
    wheel = str(write_wheel(tmp_path))
    subprocess.run([*pip, "--no-index", "--no-deps", "--no-compile", wheel], check=True)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # the installed package
    run = subprocess.run([str(home / "bin" / "detent"), "version"], env=env, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("detent v")


@pytest.mark.parametrize("file", ["cli/__init__.py", "cli/main.py", "cli/other/version.py"])
def test_ctrl_c_while_the_program_loads_prints_no_traceback(file: str) -> None:
    words = [sys.executable, "-c", INTERRUPT_AN_IMPORT, f"detent/{file}"]
    run = subprocess.run(words, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (130, "")
