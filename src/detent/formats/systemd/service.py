"""Converts a systemd service to the work and the policy of a job.

- systemd does not start a service that is still running: `concurrency: Forbid`.
- `TimeoutStartSec=` limits a oneshot, and `RuntimeMaxSec=` any other type.  `TimeoutStopSec=` is the time
  from SIGTERM to SIGKILL.  `KillMode=` decides about remaining processes.
- `Restart=` becomes retries: as many as `StartLimitBurst=` allows, with waits of `RestartSec=`.
- A setting without an equivalent is a warning of its own if there is advice, else it is listed with others.
- If the command lacks something essential, the job is disabled.
"""

import math
import re
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.formats.systemd.commands import UNKNOWN, commands_of
from detent.formats.systemd.units import (
    Entry,
    Unit,
    as_text,
    expand,
    parse_span,
    split_words,
    unknown_specifiers,
)
from detent.manifest.fields import ATTEMPTS_MAX, TIMEOUT_MAX_S
from detent.manifest.problems import Problem
from detent.text import listed, quote

KILL_AFTER_MAX_S = 3_600
BURST, BURST_INTERVAL_S, RESTART_S = 5, 10.0, 0.1  # systemd's defaults
TRUE = ("1", "yes", "y", "true", "t", "on")
STOP = ("TimeoutStopSec", "TimeoutSec")
MISSING = "echo 'write the command here' >&2; exit 1"
READ_KEYS = {  # converted below, or without effect
    *("Description", "Documentation", "SourcePath", "DefaultDependencies", "Type", "Environment"),
    *("EnvironmentFile", "PassEnvironment", "User", "WorkingDirectory", "TimeoutStartSec", "TimeoutSec"),
    *("TimeoutStopSec", "RuntimeMaxSec", "KillMode", "Restart", "RestartSec", "SyslogIdentifier"),
    *("RemainAfterElapse", "StartLimitBurst", "StartLimitInterval", "StartLimitIntervalSec"),
    *("ExecStart", "ExecStartPre", "ExecStartPost", "ExecCondition", "ExecReload"),
}
ORDER = (
    *("After", "Before", "Wants", "Requires", "Requisite", "BindsTo", "PartOf", "Upholds", "Conflicts"),
    *("RequiresMountsFor", "WantsMountsFor"),
)
ADVICE = {
    "ExecStop": "use `on_success` and `on_failure`",
    "ExecStopPost": "use `on_success` and `on_failure`",
    "Group": "the command has the groups of its `user`",
    "KillSignal": "the command gets SIGTERM, then SIGKILL",
    "RestartForceExitStatus": "list the exit codes to retry in `retries.on_exit_codes`",
    "RestartPreventExitStatus": "list the exit codes to retry in `retries.on_exit_codes`",
    "StandardError": "the output goes into the job's log (`detent logs`); redirect it in the command",
    "StandardInput": "the command has no input; redirect it in the command",
    "StandardOutput": "the output goes into the job's log (`detent logs`); redirect it in the command",
    "SuccessExitStatus": "only exit code 0 is a success; convert other codes to 0 in the command",
    "SupplementaryGroups": "the command has the groups of its `user`",
    "UnsetEnvironment": "unset it in the command",
}
HARMLESS = {
    "StandardOutput": ("journal", "inherit", "syslog", "kmsg", "journal+console"),
    "StandardError": ("journal", "inherit", "syslog", "kmsg", "journal+console"),
    "StandardInput": ("null",),
    "KillSignal": ("SIGTERM", "15"),
}
_VARIABLE = re.compile(r"(?!DETENT_)[A-Za-z_][A-Za-z0-9_]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class Work(NamedTuple):
    fields: dict[str, Any]  # of the job
    warnings: tuple[Problem, ...]


def work_of(service: Unit) -> Work:
    reader = _Service(service)
    reader.read()
    return Work(reader.fields, tuple(reader.warnings))


def placeholder_work(place: Problem, why: str) -> Work:
    """Return the work of a disabled job whose command is unknown.  `place` is the location of the warning."""
    fields = {"command": MISSING, "enabled": False, "policy": {}}
    message = f"{why}; the job is disabled until its command is written"
    return Work(fields, (place._replace(message=message),))


class _Service:
    def __init__(self, service: Unit) -> None:
        self._unit = service
        self._type = service.text("Service", "Type", "simple")
        self.fields: dict[str, Any] = {}
        self._policy: dict[str, Any] = {"concurrency": "Forbid"}
        self.warnings: list[Problem] = []

    def read(self) -> None:
        self._read_command()
        self._read_place()
        self._read_type()
        self._read_timeout()
        self._read_stop()
        self._read_restart()
        self._warn_units()
        self._warn_unread()
        self.fields["policy"] = self._policy

    def _warn(self, entry: Entry, message: str) -> None:
        value = entry.value if len(entry.value) <= 60 else entry.value[:59] + "…"
        self.warnings.append(entry.problem(f"{entry.key}={value}: {message}"))

    def _disable(self, entry: Entry, message: str) -> None:
        self.fields["enabled"] = False
        self._warn(entry, f"{message}; the job is disabled until then")

    def _filled(self, entry: Entry, text: str) -> str:
        """Expand specifiers.  The job is disabled if one is unknown, because it would do something else."""
        if unknown := unknown_specifiers(text):
            self._disable(entry, UNKNOWN.format(", ".join(unknown)))
        return expand(text, self._unit.name)

    def _read_command(self) -> None:
        variables = self._variables()
        files = self._unit.given("Service", "EnvironmentFile")
        for entry in files:
            self._warn(entry, "the shell reads it, and also expands its content; check its quotes")
        paths = [self._filled(entry, entry.value) for entry in files]
        commands = commands_of(self._unit, variables, paths)
        for entry, message in commands.warnings:
            tell = self._warn if commands.is_whole else self._disable
            tell(entry, message)
        words = commands.command
        self.fields["command"] = as_text(words) if isinstance(words, str) else [as_text(one) for one in words]
        if variables:
            self.fields["env"] = {name: as_text(value) for name, value in variables.items()}

    def _variables(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for entry in self._unit.given("Service", "Environment"):
            for word in split_words(entry.value):
                name, equals, value = self._filled(entry, word).partition("=")
                if equals and _VARIABLE.fullmatch(name):
                    found[name] = value
                else:
                    self._warn(entry, f"{quote(word)} is not a valid variable")
        return found

    def _read_place(self) -> None:
        user = self._unit.last("Service", "User")
        if user is not None and _USER.fullmatch(expand(user.value, self._unit.name)):
            self.fields["user"] = expand(user.value, self._unit.name)
        elif user is not None:
            self._disable(user, "write the user's name in `user`")
        dynamic = self._unit.last("Service", "DynamicUser")
        if dynamic is not None and dynamic.value in TRUE:  # it must not run with the node's rights
            self._disable(dynamic, "set `user` to an existing user")
        place = self._unit.last("Service", "WorkingDirectory")
        if place is None:
            return
        folder = self._filled(place, place.value.removeprefix("-"))
        if folder == "~":
            self._disable(place, "write the user's home in `work_dir`")
        else:
            self.fields["work_dir"] = as_text(folder)
            if place.value.startswith("-"):
                self._warn(place, "if the directory is missing, the fire fails")

    def _read_type(self) -> None:
        entry = self._unit.last("Service", "Type")
        if entry is not None and self._type == "forking":
            self.fields["children"] = "leave"
            self._warn(entry, "the fire ends with its first process; background processes are not watched")
        elif entry is not None and self._type not in ("simple", "exec", "oneshot", "idle"):
            self._warn(entry, "the fire ends with the command; its notifications to systemd are ignored")

    def _span(self, *keys: str) -> float | None:
        """Return the seconds of the last of these keys, or None if there is no limit."""
        entry = self._unit.last("Service", *keys)
        if entry is None:
            return None
        try:
            return parse_span(entry.value) or None
        except UsageError as error:
            self._warn(entry, f"{error}; systemd ignores it")
            return None

    def _read_timeout(self) -> None:
        keys = ("TimeoutStartSec", "TimeoutSec") if self._type == "oneshot" else ("RuntimeMaxSec",)
        limit_s, entry = self._span(*keys), self._unit.last("Service", *keys)
        if limit_s is None or entry is None:
            return
        if limit_s <= TIMEOUT_MAX_S:
            self._policy["timeout_seconds"] = math.ceil(limit_s)
        else:
            self._warn(entry, "a timeout is at most 7 days; the job gets none")

    def _read_stop(self) -> None:
        stop_s, entry = self._span(*STOP), self._unit.last("Service", *STOP)
        if stop_s is not None and entry is not None:
            self.fields["kill_after_seconds"] = min(math.ceil(stop_s), KILL_AFTER_MAX_S)
            if stop_s > KILL_AFTER_MAX_S:
                self._warn(entry, "the time from SIGTERM to SIGKILL is at most an hour")
        if self._unit.text("Service", "KillMode") in ("process", "none"):
            self.fields["children"] = "leave"

    def _read_restart(self) -> None:
        entry = self._unit.last("Service", "Restart")
        if entry is None or entry.value == "no":
            return
        pause_s = self._span("RestartSec")
        pause_s = RESTART_S if pause_s is None else pause_s
        attempts = self._attempts(pause_s)
        wait_s = max(1, math.ceil(pause_s))
        self._policy["retries"] = {"max_attempts": attempts, "min_seconds": wait_s, "max_seconds": wait_s}
        asked = "a failed attempt is repeated"
        if entry.value in ("always", "on-success"):
            asked = "a job is not started again after a success; a failed attempt is repeated"
        elif entry.value != "on-failure":
            asked = "any failed attempt is repeated"
        self._warn(entry, f"{asked}, up to {attempts} attempts per fire")

    def _attempts(self, pause_s: float) -> int:
        """Return how many starts systemd allows in its interval; if they are slower than it, the maximum."""
        burst = self._unit.text("Unit", "StartLimitBurst") or self._unit.text("Service", "StartLimitBurst")
        limit = int(burst) if burst.isdecimal() else BURST
        interval = self._unit.last("Unit", "StartLimitIntervalSec", "StartLimitInterval")
        try:
            interval_s = parse_span(interval.value) if interval else BURST_INTERVAL_S
        except UsageError:
            interval_s = BURST_INTERVAL_S
        is_limited = limit and (interval_s is None or limit * pause_s < interval_s)
        return min(max(limit, 1), ATTEMPTS_MAX) if is_limited else ATTEMPTS_MAX

    def _warn_units(self) -> None:
        for key, hook in (("OnFailure", "on_failure"), ("OnSuccess", "on_success")):
            for entry in self._unit.given("Unit", key):
                units = expand(entry.value, self._unit.name)
                self._warn(entry, f"to keep it, write `{hook}: systemctl start --no-block {units}`")
        ordered = self._unit.given("Unit", *ORDER)
        if ordered:
            keys = listed(list(dict.fromkeys(entry.key for entry in ordered)), "and")
            advice = "detent does not start or wait for other units; check what is needed in the command"
            self.warnings.append(ordered[0].problem(f"{keys}: {advice}"))
        for entry in self._unit.entries:
            if entry.section == "Unit" and entry.key.startswith(("Condition", "Assert")) and entry.value:
                self._warn(entry, "it is not checked; check it in the command")
        entry_after = self._unit.last("Service", "RemainAfterExit")
        if entry_after is not None and entry_after.value in TRUE:
            self._warn(entry_after, "systemd runs it only once; the job fires each time")

    def _warn_unread(self) -> None:
        known = {*READ_KEYS, *ORDER, "OnFailure", "OnSuccess", "RemainAfterExit", "DynamicUser"}
        rest: dict[str, Entry] = {}
        for entry in self._unit.entries:
            is_known = entry.key in known or entry.key.startswith(("Condition", "Assert", "X-"))
            if entry.section == "Install" or is_known or not entry.value:
                continue
            if entry.key not in ADVICE:
                rest.setdefault(entry.key, entry)
            elif entry.value not in HARMLESS.get(entry.key, ()):
                self._warn(entry, ADVICE[entry.key])
        if rest:
            first = next(iter(rest.values()))
            advice = "a job has the rights and limits of the node; set them for the node, or use systemd-run"
            self.warnings.append(first.problem(f"{listed(list(rest), 'and')}: {advice}"))
