"""Shared by tests of hosts: crontabs and unit folders of a test, and functions to read them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from detent.hosts.base import Host, Settings
from detent.hosts.registry import open_host
from detent.testing.check_host import HostWorld

FOREIGN = """# m h  dom mon dow   command
MAILTO=ops@example.org
SHELL=/bin/bash

*/10 * * * * /usr/local/bin/check --all  # detent-like, but not ours
0 3 * * 1\t/usr/local/bin/rotate 2>&1 | logger -t "100\\%"
"""
FOREIGN_SYSTEM = FOREIGN.replace("* * /usr", "* * root /usr").replace("1\t/usr", "1\troot\t/usr")
FOREIGN_UNIT = "[Timer]\nOnCalendar=daily\n"

SPOOL = Path("/var/spool/cron/crontabs")
PROGRAM = "/usr/bin/crontab"


def lacks_crontab_program() -> str:
    """Return why Debian's `crontab` cannot run on a test's spool, or ""."""
    if os.geteuid() != 0:
        return "a private spool of crontabs needs root"
    if not Path(PROGRAM).exists() or not SPOOL.is_dir():
        return "cron is not installed here"
    tried = (
        subprocess.run(["unshare", "-m", "true"], capture_output=True) if shutil.which("unshare") else None
    )
    return "" if tried and tried.returncode == 0 else "this machine makes no mount namespaces"


needs_crontab_program = pytest.mark.skipif(
    bool(lacks_crontab_program()), reason=lacks_crontab_program() or "-"
)


def put_private_crontab(folder: Path) -> Path:
    """A folder for PATH in which `crontab` is Debian's own, on a spool of its own."""
    spool, programs = folder / "spool", folder / "bin"
    spool.mkdir()
    spool.chmod(0o1730)
    programs.mkdir()
    inside = f'mount --bind "{spool}" {SPOOL} && exec {PROGRAM} "$@"'
    (programs / "crontab").write_text(
        f"#!/bin/sh\nexec unshare -m --propagation private sh -c '{inside}' crontab \"$@\"\n"
    )
    (programs / "crontab").chmod(0o755)
    return programs


def settings(folder: Path, app: str, **options: str | bool) -> Settings:
    return Settings(
        app=app,
        detent="/usr/local/bin/detent",
        spec_dir=folder / "specs",
        state_dir=folder / "state",
        options=options,
    )


def look_at(*folders: Path) -> dict[str, str]:
    """Every file and link below these folders, by its path."""
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink():
                found[str(path)] = f"-> {path.readlink()}"
            elif path.is_file():
                found[str(path)] = path.read_bytes().decode("utf-8", "surrogateescape")
    return found


def change_line(path: Path, name: str, removed: bool) -> None:
    """Edit by hand: change the time of the line of this name, or delete it."""
    lines = path.read_text().splitlines(keepends=True)
    mine = next(i for i, line in enumerate(lines) if f"# {name} " in line)
    lines[mine : mine + 1] = [] if removed else [f"59 {lines[mine].partition(' ')[2]}"]
    path.write_text("".join(lines))


def cron_file_world(folder: Path) -> HostWorld:
    """A system crontab with lines of others."""
    file = folder / "cron" / "crontab"
    file.parent.mkdir(parents=True)

    def open_one(app: str) -> Host:
        return open_host("crontab", settings(folder, app, cron_file=str(file)))

    return HostWorld(
        open=open_one,
        look=lambda: look_at(file.parent, folder / "specs"),
        edit=lambda name: change_line(file, name, removed=False),
        remove=lambda name: change_line(file, name, removed=True),
        add_foreign=lambda: _add(file, FOREIGN_SYSTEM),
        unsupported_schedule="*/10 * * * * *",
    )


def _add(file: Path, text: str) -> None:
    file.write_text((file.read_text() if file.exists() else "") + text)


def systemd_world(folder: Path) -> HostWorld:
    units = folder / "units"

    def open_one(app: str) -> Host:
        return open_host("systemd", settings(folder, app, unit_dir=str(units)))

    def add_foreign() -> None:
        units.mkdir()
        (units / "backup.timer").write_text(FOREIGN_UNIT)
        (units / "backup.service").write_text("[Service]\nExecStart=/bin/true\n")

    return HostWorld(
        open=open_one,
        look=lambda: look_at(units, folder / "specs"),
        edit=lambda name: _edit_unit(units / name),
        remove=lambda name: (units / name).unlink(),
        add_foreign=add_foreign,
        unsupported_schedule="@reboot",
    )


def _edit_unit(path: Path) -> None:
    path.write_text(path.read_text().replace("OnCalendar=", "OnCalendar=*-*-* 23:59:00 UTC\nOnCalendar=", 1))


def user_crontab_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> HostWorld:
    """root's crontab, on a spool of the test's own, by Debian's program."""
    programs = put_private_crontab(folder)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def install(text: str) -> None:
        subprocess.run([programs / "crontab", "-"], input=text.encode(), check=True)

    def change(name: str, removed: bool) -> None:
        file = folder / "edited"
        file.write_text(_listed(programs))
        change_line(file, name, removed)
        install(file.read_text())

    return HostWorld(
        open=lambda app: open_host("crontab", settings(folder, app)),
        look=lambda: {**look_at(folder / "specs"), "crontab": _listed(programs)},
        edit=lambda name: change(name, removed=False),
        remove=lambda name: change(name, removed=True),
        add_foreign=lambda: install(FOREIGN),
        unsupported_schedule="*/10 * * * * *",
    )


def _listed(programs: Path) -> str:
    return subprocess.run([programs / "crontab", "-l"], capture_output=True).stdout.decode()
