"""The Redis store works with the oldest redis-py that it allows; the other tests run on the newest one."""

from __future__ import annotations

import subprocess
import tomllib

import pytest
from tests.stores.redis.versions import OLDEST, ROOT, SHORT, install, run


def test_the_oldest_version_that_is_tested_is_the_oldest_that_is_allowed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    allowed = [one for one in extras["redis"] if one.startswith("redis>=")]
    assert [one.partition(">=")[2] for one in allowed] == [OLDEST.partition(".")[0]]


def test_a_store_works_with_the_oldest_redis_py() -> None:
    try:
        install(OLDEST)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"needs redis-py {OLDEST} from a package index: {error.stderr.decode()[-200:]}")
    done = run(OLDEST, SHORT)
    assert done.returncode == 0, done.stdout
