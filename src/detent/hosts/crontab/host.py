"""crontab: one line for each schedule, in a user's crontab, in `/etc/cron.d`, or in a system crontab.

- A user's crontab is changed with the `crontab` program, which checks it.  Files with a user column are
  written atomically, and keep their mode and owner.
- The line runs the trigger and sends its output to the system log, so that cron has nothing to mail.
- cron uses the machine's time zone: a schedule in another zone fires in its minutes of every hour.
- The old crontab is backed up in the state directory before a change.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from detent.errors import HostError, UsageError
from detent.formats.crontab.convert import Form, parse_crontab
from detent.formats.crontab.jobs import SHELL
from detent.formats.crontab.render import cron_fields
from detent.hosts.adoption import Identity, Unmanaged, triggered_job
from detent.hosts.base import Option, Settings, environment_warnings, render_schedules, write_atomically
from detent.hosts.crontab.text import find_entries, make_entry, rewrite
from detent.hosts.reconcile import Change, Found, Resource, resource_name
from detent.hosts.spec_folder import KIND as SPEC
from detent.hosts.spec_folder import SpecFolder, spec_resources
from detent.manifest.spec import Spec
from detent.text import quote

OPTIONS = (
    Option("system", "use /etc/cron.d/detent-APP instead of a user's crontab", is_location=True),
    Option(
        "cron-file",
        "use this crontab, which has a user column, such as /etc/crontab",
        "FILE",
        is_location=True,
    ),
    Option("run-as", "the owner of the crontab, or the user in its user column", "USER", is_location=True),
    Option("host-timezone", "the time zone of cron (default: this machine's)", "ZONE"),
)
CRON_D = Path("/etc/cron.d")
LOGGER = "/usr/bin/logger"
PROGRAM_S = 30.0
LINE_MAX = 990  # bytes; Debian's cron silently cuts commands after 999

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?")


def open_host(settings: Settings) -> CrontabHost:
    user = settings.option("run_as")
    if user and not _USER.fullmatch(user):
        raise UsageError(f"--run-as {quote(user)} is not a user name")
    file = settings.option("cron_file")
    if file and settings.options.get("system"):
        raise UsageError("--system and --cron-file exclude each other: give one of them")
    if settings.options.get("system"):
        file = str(CRON_D / f"detent-{settings.app}")
    table = FileTable(Path(file)) if file else UserTable(user)
    return CrontabHost(settings, table, (user or "root") if file else "")


class CrontabHost:
    name = "crontab"

    def __init__(self, settings: Settings, table: UserTable | FileTable, user: str) -> None:
        self.where = table.where
        is_implied = bool(user) and not settings.option("run_as")
        self.identity = Identity(user or table.owner, table.owner, is_implied)
        self._settings = settings
        self._table = table
        self._user = user  # for the user column; "" if the form has none
        self._specs = SpecFolder(settings.spec_dir, settings.option("run_as"))
        self._zone = settings.option("host_timezone", settings.timezone)

    def lock(self) -> AbstractContextManager[None]:
        return self._settings.lock(self._table.label)

    def render(self, specs: Sequence[Spec]) -> list[Resource]:
        entries = render_schedules(self.name, specs, self._entry)
        return [*spec_resources(specs), *(one for _, made in entries for one in made)]

    def _entry(self, spec: Spec, index: int) -> list[Resource]:
        fields = cron_fields(spec.times[index].instants, self._zone)
        name = resource_name(spec.name, index)
        command = shlex.join(self._settings.trigger_words(spec.name))
        if not command.isprintable() or "\\" in command:
            raise UsageError(f"{quote(command)}: a crontab allows no backslash and no control characters")
        logged = f"{command} 2>&1 | {LOGGER} -t detent-{spec.name}"
        escaped = logged.replace("%", "\\%")  # cron ends a command at a percent sign
        column = f"{self._user} " if self._user else ""
        made = make_entry(name, spec.name, spec.revision, f"{fields} {column}{escaped}")
        if len(made.content.encode()) > LINE_MAX:
            raise UsageError(
                f"its line has more than {LINE_MAX} bytes, which cron would cut: use shorter paths"
            )
        return [made]

    def find(self) -> list[Found]:
        entries = find_entries(self._table.read())
        return [*self._specs.find({entry.job for entry in entries}), *entries]

    def change(self, changes: Sequence[Change], retire: Sequence[Unmanaged] = ()) -> None:
        """Write new specs, then the crontab, then delete unused specs."""
        self._specs.write(changes)
        before = self._table.read()
        entries = [change for change in changes if change.kind != SPEC]
        after = rewrite(before, entries, [int(one.place) for one in retire])
        if after != before:
            if before:
                self._settings.back_up(self._table.label, before.encode("utf-8", "surrogateescape"))
            self._table.write(after)
        self._specs.delete(changes)

    def unmanaged(self) -> list[Unmanaged]:
        text = self._table.read()
        ours = {entry.place for entry in find_entries(text)}
        entries = parse_crontab(text, self._table.form).entries
        return [
            Unmanaged(
                name=f"line {entry.line}",
                place=str(entry.line - 1),
                content=entry.text,
                schedules=(entry.schedule,),
                timezone=entry.variables.get("CRON_TZ", self._zone),
                command=entry.command if entry.stdin is None else "",
                shell=entry.variables.get("SHELL") or SHELL,
                user=entry.user,
                job=triggered_job(entry.command),
            )
            for entry in entries
            if str(entry.line - 1) not in ours
        ]

    def warnings(self, specs: Sequence[Spec]) -> list[str]:
        return list(environment_warnings(specs, "cron"))


class UserTable:
    """A user's crontab, accessed with the `crontab` program."""

    form: Form = "user"

    def __init__(self, user: str = "") -> None:
        self._user = user
        self.owner = user or pwd.getpwuid(os.geteuid()).pw_name
        self.where = f"the crontab of {self.owner}"
        self.label = f"crontab-{self.owner}"

    def read(self) -> str:
        done = self._run("-l")
        if done.returncode and b"no crontab for" not in done.stderr:
            raise HostError(f"cannot read {self.where}: {_output(done)}")
        return "" if done.returncode else done.stdout.decode("utf-8", "surrogateescape")

    def write(self, text: str) -> None:
        content = text.encode("utf-8", "surrogateescape")
        done = self._run("-", given=content) if content else self._run("-r")
        if done.returncode:
            raise HostError(
                f"{self.where} is unchanged: the crontab program refused the new one: {_output(done)}"
            )
        if self.read() != text:
            raise HostError(f"{self.where} was changed at the same time: check it, and apply again")

    def _run(self, word: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        program = shutil.which("crontab")
        if program is None:
            raise HostError("there is no `crontab` program: install cron, or use --system or --cron-file")
        words = [program, *(["-u", self._user] if self._user else []), word]
        try:
            return subprocess.run(words, input=given, capture_output=True, timeout=PROGRAM_S, env=_PLAIN)
        except subprocess.TimeoutExpired:
            raise HostError(f"`{shlex.join(words)}` did not finish within {PROGRAM_S:g} s") from None


_PLAIN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}  # its messages are parsed


def _output(done: subprocess.CompletedProcess[bytes]) -> str:
    text = (done.stderr or done.stdout).decode("utf-8", "replace")
    return "; ".join(line.strip() for line in text.splitlines() if line.strip()) or f"exit {done.returncode}"


class FileTable:
    """A crontab file with a user column."""

    form: Form = "system"
    owner = "root"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.where = str(path)
        self.label = f"cron-file-{path.name}"

    def read(self) -> str:
        try:
            return self._path.read_bytes().decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise HostError(f"cannot read {self._path}: {(error.strerror or str(error)).lower()}") from None

    def write(self, text: str) -> None:
        try:
            if text:
                write_atomically(self._path, text.encode("utf-8", "surrogateescape"), 0o644)
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise HostError(f"cannot write {self._path}: {why}; try `sudo detent apply`") from None
