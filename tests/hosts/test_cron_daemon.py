"""Debian's real cron, with crontabs that `detent apply` wrote: it fires real triggers at the right time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.equipment.cron_daemon import cron_daemon, lacks_cron, until
from tests.equipment.wall_clock import WallClock, build_skew
from tests.hosts.hosts_world import put_private_crontab

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(lacks_cron()), reason=lacks_cron() or "-"),
]
DETENT = Path(sys.executable).with_name("detent")
BEFORE_S = 2.0  # the daemon's clock is so long before a full minute when it starts


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(build_skew(tmp_path), tmp_path / "skew")


def apply(folder: Path, manifest: dict[str, object], *words: str) -> None:
    (folder / "detent.json").write_text(json.dumps(manifest))
    (folder / "cron.d").mkdir(exist_ok=True)
    programs = folder / "bin" if (folder / "bin").exists() else put_private_crontab(folder)
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "XDG_STATE_HOME": str(folder / "state")}
    given = ["--host", "crontab", "--spec-dir", str(folder / "specs"), *words]
    command = [sys.executable, "-m", "detent", "apply", "-f", str(folder / "detent.json"), *given]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def set_clock(clock: WallClock, at: float) -> None:
    clock.set(at - time.time())


def next_minute() -> float:
    return time.time() // 60 * 60 + 60


def test_cron_fires_real_triggers_which_launch_an_instant_once(tmp_path: Path, clock: WallClock) -> None:
    """A user's crontab and a file in cron.d trigger the same job: the second finds its instant taken."""
    witness, program = tmp_path / "100% witness.log", tmp_path / "watched"
    program.write_text(f'#!/bin/sh\n{DETENT} "$@"\necho $? >> {tmp_path}/ended\n')
    program.chmod(0o755)
    job = {"name": "tick", "schedule": "* * * * *", "command": f'echo "$DETENT_FIRE" >> "{witness}"'}
    manifest = {"version": 2, "app": "shop", "store": f"sqlite:///{tmp_path}/fires.db", "jobs": [job]}
    cron_file = tmp_path / "cron.d" / "detent-shop"
    apply(tmp_path, manifest, "--detent", str(program))
    apply(tmp_path, manifest, "--detent", str(program), "--cron-file", str(cron_file))
    assert " root " in cron_file.read_text()
    set_clock(clock, next_minute() - BEFORE_S)
    ended = tmp_path / "ended"
    with cron_daemon(tmp_path / "spool", tmp_path / "cron.d", clock.env):
        until("cron has called both", lambda: ended.exists() and len(ended.read_text().split()) >= 2)
    keys = witness.read_text().split()
    assert keys and len(keys) == len(set(keys)) and keys[0].startswith("shop.tick@")
    assert set(ended.read_text().split()) <= {"0", "4"}


def stand_in(folder: Path) -> Path:
    """In place of `detent`: writes down what it was called with."""
    program = folder / "a'b $HOME 50% done" / "detent"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$@" >> {folder}/calls\necho >> {folder}/calls\n')
    program.chmod(0o755)
    return program


def test_the_words_of_a_line_reach_the_trigger_unchanged(tmp_path: Path, clock: WallClock) -> None:
    """Quotes, dollars and percent signs pass through crontab, cron and the shell."""
    specs = tmp_path / 'sp\'ec "$X" 100% # dir'
    job = {"name": "tick", "schedule": "@every 7m", "command": "true"}
    words = ("--spec-dir", str(specs), "--detent", str(stand_in(tmp_path)))
    apply(tmp_path, {"version": 2, "app": "shop", "jobs": [job]}, *words)
    set_clock(clock, next_minute() - BEFORE_S)
    with cron_daemon(tmp_path / "spool", tmp_path / "cron.d", clock.env):
        until("cron has called it", (tmp_path / "calls").exists)
    assert (tmp_path / "calls").read_text() == f"trigger|--spec-dir|{specs}|shop.tick|\n"


def test_an_instant_in_the_gap_fires_right_after_it(tmp_path: Path, clock: WallClock) -> None:
    """Also a line of many minutes: it has no `*` where cron would take it for one that follows the clock."""
    jobs = [
        {"name": "fixed", "schedule": "*/30 2 * * *", "timezone": "Europe/Berlin", "command": "true"},
        {"name": "later", "schedule": "30 3 * * *", "timezone": "Europe/Berlin", "command": "true"},
    ]
    manifest = {"version": 2, "app": "shop", "jobs": jobs}
    words = ("--detent", str(stand_in(tmp_path)), "--host-timezone", "Europe/Berlin")
    apply(tmp_path, manifest, *words)
    gap = datetime(2027, 3, 28, 3, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    set_clock(clock, gap.timestamp() - BEFORE_S)
    with cron_daemon(tmp_path / "spool", tmp_path / "cron.d", {**clock.env, "TZ": "Europe/Berlin"}):
        until("cron has called it", (tmp_path / "calls").exists)
    assert "shop.fixed|" in (tmp_path / "calls").read_text()
    assert "shop.later|" not in (tmp_path / "calls").read_text()
