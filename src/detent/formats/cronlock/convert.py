"""Converts a cronlock file to a version 2 manifest.

- Messages name a place as cronlock does (`jobs[0].timeout`), with the line and advice.
- A job that is still running is skipped (`Forbid`), and missed times stay missed.
- `lock_ttl` becomes `claim_seconds`, at most 30: claims are renewed, so a long job keeps its claim.
- `${VAR}` and `${VAR:-x}` stay variables of the manifest; an unset one is empty, as in cronlock.  A bare
  `$VAR` is for the shell in a command, and a variable elsewhere.
- Schedules are in the machine's time zone unless they begin with CRON_TZ= or TZ=.
- A password is never shown.
"""

import re
from collections.abc import Mapping
from math import ceil
from typing import Any

from detent.errors import UsageError
from detent.formats.base import FOREIGN, NAME_MAX, Converted, LocalContext, app_name, slug, unique
from detent.formats.cronlock.texts import Texts, parse_duration
from detent.manifest.alerts import service_of
from detent.manifest.fields import TIMEOUT_MAX_S
from detent.manifest.problems import ManifestError, Problem, line_of
from detent.rules.trust import CLAIM_MIN_S
from detent.schedules.timetable import parse_schedule
from detent.schedules.zones import open_zone
from detent.text import did_you_mean, listed, quote, show

NODE_FIELDS = ("id", "grace_period")
REDIS_FIELDS = ("address", "password", "db", "key_prefix")
TYPICAL = ("timeout", "lock_ttl")  # fields of a job that only cronlock has
HOOKS = ("on_success", "on_failure")
JOB_FIELDS = ("name", "schedule", "command", *TYPICAL, "work_dir", "env", *HOOKS, "enabled")
ADDRESS, KEY_PREFIX, DB_MAX = "localhost:6379", "cronlock:", 15
GRACE_S = 5.0
CLAIM_MAX_S = 30.0
LOCAL = ("", "localhost", "127.0.0.1", "::1")

_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)")


def is_cronlock(document: Any, file_name: str = "") -> bool:
    """Recognise a cronlock file by its fields or, if they could also be ours, by its name."""
    if type(document) is not dict or "version" in document or "app" in document:
        return False
    node, jobs = document.get("node"), document.get("jobs")
    if "redis" in document or (type(node) is dict and "grace_period" in node):
        return True
    items = [job for job in jobs if type(job) is dict] if type(jobs) is list else []
    is_typical = any(field in job for job in items for field in TYPICAL)
    return is_typical or (bool(items) and "cronlock" in file_name.lower())


def convert_cronlock(document: Any, lines: Mapping[str, int], here: LocalContext) -> Converted:
    """Convert a document, or raise one `ManifestError` with all problems."""
    return _Converter(lines, here).convert(document)


class _Converter:
    def __init__(self, lines: Mapping[str, int], here: LocalContext) -> None:
        self._lines, self._here = lines, here
        self._problems: list[Problem] = []
        self._warnings: list[Problem] = []
        self._texts = Texts(here.variables, self._problem, self._warn)
        self._names: dict[str, int] = {}
        self._slugs = set[str]()

    def convert(self, document: dict[str, Any]) -> Converted:
        self._section("", document, ("node", "redis", "jobs"))
        node, store = self._node(document.get("node")), self._store(document.get("redis"))
        jobs = self._jobs(document.get("jobs"))
        if self._problems:
            raise ManifestError(sorted(self._problems, key=lambda problem: problem.line))
        policy = {"concurrency": "Forbid", "catch_up": "skip"}
        top = {"version": 2, "app": self._app(document.get("redis")), "store": store, "node": node}
        defaults = {"timezone": self._here.timezone, "policy": policy}
        made = {name: value for name, value in top.items() if value}
        return Converted(
            document={**made, "defaults": defaults, "jobs": jobs},
            warnings=tuple(sorted(self._warnings, key=lambda warning: warning.line)),
            lines=self._lines,
        )

    def _app(self, redis: Any) -> str:
        """Name the app after the key prefix, which separates files on one Redis, else after the file."""
        prefix = self._texts.filled(self._texts.value(redis.get("key_prefix"), "")) if redis else ""
        return app_name(prefix) if prefix and prefix != KEY_PREFIX else self._here.app

    def _problem(self, path: str, message: str) -> None:
        self._problems.append(Problem("", _message(path, message), line_of(path, self._lines)))

    def _warn(self, path: str, message: str) -> None:
        warning = Problem("", _message(path, message), line_of(path, self._lines), code=FOREIGN)
        if warning not in self._warnings:
            self._warnings.append(warning)

    def _section(self, path: str, value: Any, known: tuple[str, ...]) -> dict[str, Any]:
        if value is None:
            return {}
        if type(value) is not dict:
            self._problem(path, f"must be a mapping of {listed(known, 'and')}, got {show(value)}")
            return {}
        for name in value:
            if name not in known:
                advice = did_you_mean(str(name), known) or f"; allowed are {listed(known, 'and')}"
                self._problem(f"{path}/{name}".lstrip("/"), f"is not a field of a cronlock file{advice}")
        return value

    def _node(self, given: Any) -> dict[str, Any]:
        node = self._section("node", given, NODE_FIELDS)
        grace_s = self._duration("node/grace_period", node.get("grace_period"))
        settings: dict[str, Any] = {"grace_seconds": _number(GRACE_S if grace_s is None else grace_s)}
        if node_id := self._texts.value(node.get("id"), "node/id"):
            settings["id"] = node_id
        return settings

    def _store(self, given: Any) -> dict[str, Any] | None:
        """Return the Redis if it answers or is on another host, else None for this host's SQLite file."""
        redis = self._section("redis", given, REDIS_FIELDS)
        db = redis.get("db", 0)
        if type(db) is not int or not 0 <= db <= DB_MAX:
            self._problem("redis/db", f"must be between 0 and {DB_MAX}, got {show(db)}")
        address = self._texts.value(redis.get("address", ADDRESS), "redis/address")
        prefix = self._texts.value(redis.get("key_prefix"), "redis/key_prefix") or KEY_PREFIX
        used = self._texts.filled(address)
        if not used:
            self._problem("redis/address", f"is empty; leave it out to use {ADDRESS}")
        if _is_local(used) and not self._here.answers(used):
            self._warn(
                "redis",
                f"at {quote(used)} does not answer and is not used: a SQLite file of this host records fires,"
                " so each host fires on its own; if several hosts use this file, name a shared Redis in"
                " redis.address, or with --store redis://HOST",
            )
            return None
        self._warn(
            "redis/address",
            f"{quote(used)} is used in detent's own format, which ignores cronlock's locks: stop cronlock's"
            " nodes before you start detent's",
        )
        if "password" in redis:
            self._warn("redis/password", "is not converted: set DETENT_STORE=redis://:PASSWORD@HOST/DB")
        return {"url": f"redis://{address}/{db}", "key_prefix": prefix}

    def _jobs(self, given: Any) -> list[dict[str, Any]]:
        if type(given) is not list or not given:
            self._problem("jobs", f"must be a list of at least one job, got {show(given)}")
            return []
        return [self._job(f"jobs/{i}", job, i) for i, job in enumerate(given)]

    def _job(self, path: str, given: Any, index: int) -> dict[str, Any]:
        job = self._section(path, given, JOB_FIELDS)
        if not job:
            self._problem(path, "is empty; a job has a name, a schedule and a command")
            return {}
        name = self._name(f"{path}/name", job.get("name"), index)
        timezone, schedule = self._schedule(f"{path}/schedule", job.get("schedule"))
        enabled = job.get("enabled", True)
        if type(enabled) is not bool:
            self._problem(f"{path}/enabled", f"must be true or false, got {show(enabled)}")
        fields = {
            "name": name,
            "schedule": schedule,
            "timezone": timezone,
            "policy": self._policy(path, job),
            "command": self._command(f"{path}/command", job.get("command"), is_required=True),
            "work_dir": self._texts.value(job.get("work_dir"), f"{path}/work_dir"),
            "env": self._env(f"{path}/env", job.get("env")),
            "enabled": False if enabled is False else None,
            **{hook: self._hook(f"{path}/{hook}", job.get(hook)) for hook in HOOKS},
        }
        return {name: value for name, value in fields.items() if value or value is False}

    def _name(self, path: str, given: Any, index: int) -> str:
        text = self._texts.filled(self._texts.value(given, path, is_required=True))
        if not text:
            return ""
        if self._names.setdefault(text, index) != index:
            other = f"jobs[{self._names[text]}]"
            self._problem(path, f"{quote(text)} is a duplicate of {other}; rename one of them")
            return ""
        named = text if slug(text[:1], 1) else f"job {text}"  # a name must begin with a letter
        name = unique(slug(named, NAME_MAX), self._slugs)
        if name != text:
            self._warn(path, f"{quote(text)} becomes {name}: names have small letters, digits and hyphens")
        return name

    def _schedule(self, path: str, given: Any) -> tuple[str, str]:
        if type(given) is not str or not given.strip():
            is_missing = given is None or type(given) is str
            self._problem(path, "is required" if is_missing else f"must be a text, got {show(given)}")
            return "", ""
        zoned = _ZONE.fullmatch(given.strip())
        timezone, text = (zoned[1], zoned[2]) if zoned else ("", given.strip())
        try:
            schedule = self._texts.every(text).replace("?", "*")
            open_zone(timezone or "UTC")
            parse_schedule(schedule, seed="any")
        except UsageError as error:
            self._problem(path, f": {error}")
            return "", ""
        return timezone, schedule

    def _policy(self, path: str, job: Mapping[str, Any]) -> dict[str, Any]:
        policy: dict[str, Any] = {}
        timeout_s = self._duration(f"{path}/timeout", job.get("timeout")) or 0.0
        if timeout_s > TIMEOUT_MAX_S:
            self._problem(f"{path}/timeout", "is more than 7 days; write 168h or less, or leave it out")
        elif timeout_s:
            policy["timeout_seconds"] = whole_s = ceil(timeout_s)
            if whole_s != timeout_s:
                self._warn(f"{path}/timeout", f"becomes {whole_s} s: timeouts are in whole seconds")
        lock_ttl_s = self._duration(f"{path}/lock_ttl", job.get("lock_ttl")) or 0.0
        claim_s = lock_ttl_s or CLAIM_MAX_S
        if claim_s < CLAIM_MIN_S:
            message = f"becomes {CLAIM_MIN_S:g} s, the shortest claim; claims are renewed"
            self._warn(f"{path}/lock_ttl", message)
        if claim_s < CLAIM_MAX_S:
            policy["claim_seconds"] = _number(max(claim_s, CLAIM_MIN_S))
        return policy

    def _duration(self, path: str, given: Any) -> float | None:
        """Return seconds, or None if nothing was given or it was refused."""
        try:
            seconds = parse_duration(given)
        except UsageError as error:
            self._problem(path, str(error))
            return None
        if seconds is not None and seconds < 0:
            self._problem(path, f"must be non-negative, got {given}")
            return None
        return seconds

    def _command(self, path: str, given: Any, *, is_required: bool = False) -> str | list[str]:
        text = self._texts.value(given, path, is_required=is_required, in_shell=True)
        shell = self._here.variables.get("SHELL") or "/bin/sh"
        return text if not text or shell == "/bin/sh" else [shell, "-c", text]

    def _hook(self, path: str, given: Any) -> Any:
        """Return a hook.  In cronlock it is always a command, even if it looks like a URL."""
        command = self._command(path, given)
        if type(command) is str and (command.startswith(("http://", "https://", "-")) or service_of(command)):
            command = ["/bin/sh", "-c", command]
        return [command] if type(command) is list else command

    def _env(self, path: str, given: Any) -> dict[str, str]:
        if given is None:
            return {}
        if type(given) is not dict:
            self._problem(path, f"must be a mapping of variables, got {show(given)}")
            return {}
        return {str(name): self._texts.value(value, f"{path}/{name}") for name, value in given.items()}


def _is_local(address: str) -> bool:
    host = address.rpartition(":")[0] if ":" in address and address != "::1" else address
    return host.strip("[]") in LOCAL or address.startswith("/")


def _message(path: str, message: str) -> str:
    """Combine a path and a message in cronlock's form: `jobs[0].env.A must be …`."""
    place = re.sub(r"/(\d+)(?=/|$)", r"[\1]", path).replace("/", ".")
    return f"{place}{'' if message.startswith(':') else ' '}{message}"


def _number(seconds: float) -> float | int:
    return int(seconds) if seconds == int(seconds) else seconds
