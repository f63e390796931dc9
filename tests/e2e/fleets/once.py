"""Makes a result once per test run, in the first process that needs it; the others wait."""

from __future__ import annotations

import fcntl
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


def once(folders: pytest.TempPathFactory, name: str, make: Callable[[Path], T]) -> T:
    """Return the result of `make` for a folder of that name; a failure counts for all processes."""
    base = folders.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, made = shared / name, shared / f"{name}.made"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder.mkdir()
            made.write_bytes(pickle.dumps(_make(make, folder)))
    found, failure = pickle.loads(made.read_bytes())
    if failure:
        pytest.fail(failure, pytrace=False)
    result: T = found
    return result


def _make(make: Callable[[Path], T], folder: Path) -> tuple[T | None, str]:
    try:
        return make(folder), ""
    except Exception:
        return None, traceback.format_exc()
