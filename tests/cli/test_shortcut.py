"""The shorter way to our modules leads to the same ones, and never to an old one."""

import compileall
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "detent"
TELL = """
import json, sys
from detent.cli import shortcut
if sys.argv[1] == "short":
    shortcut.take()
import detent.core.text as text, detent.stores
told = {m.__name__: [m.__file__, m.__cached__, m.__package__, m.__spec__.origin, m.__spec__.cached,
        list(getattr(m, "__path__", ())), type(m.__loader__).__name__] for m in (text, detent.stores)}
print(json.dumps([told, getattr(text, "ADDED", None), text.__loader__.get_source("detent.core.text")[:3]]))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A copy of the package that is compiled."""
    keep = ("__init__.py", "values.py", "shortcut.py", "text.py")
    for path in SOURCES.rglob("*.py"):
        if path.name in keep and path.relative_to(SOURCES).parts[0] in (*keep, "cli", "core", "stores"):
            to = tmp_path / "detent" / path.relative_to(SOURCES)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    assert compileall.compile_dir(tmp_path, quiet=1)
    return tmp_path


def told(site: Path, way: str) -> list[object]:
    env = {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([sys.executable, "-c", TELL, way], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    answer: list[object] = json.loads(run.stdout)
    return answer


def test_a_module_is_the_same_one_by_both_ways(site: Path) -> None:
    usual, short = told(site, "usual"), told(site, "short")
    for one in short[0].values():  # type: ignore[attr-defined]
        assert one.pop() == "Loader"  # it was taken at all
    for one in usual[0].values():  # type: ignore[attr-defined]
        one.pop()
    assert short == usual


def test_a_module_that_was_changed_since_it_was_compiled_is_read_anew(site: Path) -> None:
    source = site / "detent" / "core" / "text.py"
    source.write_text(source.read_text() + "\nADDED = 1\n")
    assert told(site, "short")[1] == 1
    compileall.compile_file(source, quiet=1, force=True)
    before = source.stat()
    source.write_text(source.read_text().replace("ADDED = 1", "ADDED = 2"))
    os.utime(source, (before.st_atime, before.st_mtime + 5))
    assert told(site, "short")[1] == 2


def test_a_module_of_another_python_is_compiled_anew(site: Path) -> None:
    [compiled] = (site / "detent" / "core" / "__pycache__").glob("text.*.pyc")
    compiled.write_bytes(b"\0\0\0\0" + compiled.read_bytes()[4:])
    assert "detent.core.text" in told(site, "short")[0]  # type: ignore[operator]
