"""A real systemd, with units that `detent apply` wrote: timers elapse, and real triggers fire."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.equipment.cron_daemon import until
from tests.equipment.nested_systemd import DETENT, WORLD, Nested, lacks_nesting, nested_systemd

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(lacks_nesting()), reason=lacks_nesting() or "-"),
]
STORE = f"sqlite:///{WORLD}/fires.db"
SPECS = f"{WORLD}/sp\"ec's 50% $HOME ${{HOME}} \\x41"
COMMAND = f"cat /proc/self/cgroup >> {WORLD}/units-of-fires; echo $DETENT_FIRE >> {WORLD}/witness"
MANIFEST = {
    "version": 2,
    "app": "shop",
    "store": STORE,
    "jobs": [
        {"name": "tick", "schedule": "*/2 * * * * *", "command": COMMAND},
        {
            "name": "knock",
            "schedule": "*/2 * * * * *",
            "request": {"url": "http://127.0.0.1:9/"},
            "policy": {"timeout_seconds": 1, "retries": {"max_attempts": 1}},
        },
    ],
}
TIMERS = ["detent-shop.tick-0.timer", "detent-shop.knock-0.timer"]


def detent(systemd: Nested, verb: str, *words: str) -> tuple[int, str]:
    given = ["-f", f"{WORLD}/detent.json"]
    host = ["--host", "systemd", "--spec-dir", SPECS]
    done = systemd.run(DETENT, verb, *given, *host, *words)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def fires(systemd: Nested, job: str) -> list[dict[str, object]]:
    """What the store knows of a job's fires that are over."""
    done = systemd.run(DETENT, "history", f"shop.{job}", "--store", STORE, "-o", "json")
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    return [row for row in rows if row["outcome"]]


def test_timers_fire_real_triggers_and_a_stopped_timer_is_drift(tmp_path: Path) -> None:
    (tmp_path / "detent.json").write_text(json.dumps(MANIFEST))
    witness = tmp_path / "witness"
    with nested_systemd(tmp_path) as systemd:
        if systemd is None:
            pytest.skip("a nested systemd does not come up on this machine")
        assert detent(systemd, "apply")[0] == 0
        until("a command has run", witness.exists)
        until("another one has", lambda: len(witness.read_text().split()) > 1)
        until("a request was tried", lambda: "failed" in [row["outcome"] for row in fires(systemd, "knock")])
        assert detent(systemd, "drift", "--exit-on-drift")[0] == 0
        systemd.run("systemctl", "stop", TIMERS[0])
        code, output = detent(systemd, "drift", "--exit-on-drift")
        assert code == 5 and TIMERS[0] in output and TIMERS[1] not in output
        assert detent(systemd, "apply") == (0, f"updated {TIMERS[0]}\n")
        assert systemd.run("systemctl", "is-active", *TIMERS).stdout.split() == ["active", "active"]
        assert detent(systemd, "unapply")[0] == 0
        left = systemd.run("systemctl", "list-units", "--all", "--plain", "detent-shop*.timer").stdout
        assert "detent-shop" not in left
    assert not list((tmp_path / "units").glob("detent-*"))
    units = re.findall(r"/detent-shop\.tick@[0-9a-f]{32}\.service", (tmp_path / "units-of-fires").read_text())
    assert len(set(units)) > 1, "each fire has a unit that bears its job's name"
    keys = witness.read_text().split()
    assert len(keys) == len(set(keys))
