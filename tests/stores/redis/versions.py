"""Runs the tests of the Redis store with other versions of redis-py: `make redis-versions`.

Each version is installed once, in its own folder of the virtual environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HERE = Path(sys.prefix) / "redis"  # where they are kept
OLDEST = "5.0.0"  # that `pyproject.toml` allows
VERSIONS = (OLDEST, "5.3.1", "6.4.0", "7.4.1", "8.1.0")
SHORT = ["tests/stores/redis/test_link.py", "tests/stores/redis/test_script.py"]
SHORT += ["tests/e2e/failover/test_secure_redis.py"]
TESTS = [*SHORT, "tests/stores/redis/test_store.py", "tests/stores/redis/test_trouble.py"]
TESTS += ["tests/stores/redis/test_queues.py"]
RUN = (
    "import pytest, redis, sys; assert redis.__version__ == sys.argv[1]; sys.exit(pytest.main(sys.argv[2:]))"
)


def install(version: str) -> Path:
    """The folder that has this version."""
    folder = HERE / version
    if not (folder / "redis").exists():
        words = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        subprocess.run(
            [*words, "--target", str(folder), f"redis=={version}"], check=True, capture_output=True
        )
    return folder


def run(version: str, tests: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run these tests with this version of redis-py.  Processes that they start have the installed one."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    line = [sys.executable, "-c", RUN, version, "-q", "-p", "no:cacheprovider", *words, *tests]
    env["PYTHONPATH"] = str(install(version))
    return subprocess.run(
        line, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def main(versions: list[str]) -> int:
    failed = []
    for version in versions or VERSIONS:
        print(f"redis-py {version}", flush=True)
        done = run(version, TESTS, "-n", "4")
        if done.returncode:
            failed.append(version)
            print(done.stdout)
    print(f"failed with redis-py {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
