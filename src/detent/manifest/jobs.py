"""Builds `Job` values from canonical jobs.  Equal policies, tags and schedules are shared between jobs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from detent.errors import UsageError
from detent.manifest.canonical import revision
from detent.manifest.fields import LATE_AFTER_S, PROCESS_FIELDS, REMIND_HOURS, SECONDS_MAX, SHELL, TIME_FIELDS
from detent.manifest.problems import INVALID, Findings
from detent.manifest.rules import address_of, hooks_of
from detent.model import Call, Command, Job, Policy, Push, Request, Retries, Work
from detent.rules.alerts import is_repeated
from detent.rules.pings import END_PINGS, START_PING
from detent.schedules.timetable import Merged, Timetable, combine, once, parse_schedule, patterns_of
from detent.schedules.zones import open_zone
from detent.text import quote

NO_HOOKS: Mapping[str, Work] = {}
NOT_IN_POLICY = ("retries", "concurrency_scope", "dst")  # built on its own; for triggers; for schedules

Fields = Mapping[str, Any]


class JobMaker:
    def __init__(
        self, app: str, version: int, findings: Findings, *, grace_s: float, dashboard_url: str
    ) -> None:
        self._app, self._version, self._findings = app, version, findings
        self._grace_s, self._dashboard_url = grace_s, dashboard_url
        self._schedules: dict[tuple[str, str, str, str], Timetable] = {}
        self._policies: dict[Policy, Policy] = {}
        self._tags: dict[tuple[str, ...], tuple[str, ...]] = {}

    def make(self, job: Fields, schedule: Timetable) -> Job:
        work, shell = _work(job), job.get("shell", SHELL)
        own = {name: self._hook(hook, work, shell) for name, hook in hooks_of(job)}
        hooks = own | self._pings(job) or NO_HOOKS
        policy = _policy(job, tuple(hooks), self._grace_s)
        tags = tuple(job.get("tags", ()))
        return Job(
            name=f"{self._app}.{job['name']}",
            schedule=schedule,
            work=work,
            policy=self._policies.setdefault(policy, policy),
            queue=job.get("queue", "default"),
            revision=revision(job),
            hooks=hooks,
            description=job.get("description", ""),
            tags=self._tags.setdefault(tags, tags),
            after=tuple(f"{self._app}.{other}" for other in job.get("after", ())),
        )

    def _hook(self, hook: Any, work: Work, shell: Sequence[str]) -> Work:
        """Build a hook.  A command runs with the directory, variables and user of the job's own process."""
        if address_of(hook):
            from detent.manifest.alerts import make_alert  # late, here and below: few jobs have such hooks

            return make_alert(hook, self._dashboard_url)
        if type(hook) is str and hook.startswith(("http://", "https://")):
            return Request(url=hook)
        if type(hook) is dict:
            headers = tuple(hook.get("headers", {}).items())
            return Request(hook["url"], headers=headers, body=hook.get("body", ""))
        if isinstance(work, Command | Call):
            return Command(_words(hook, shell), work_dir=work.work_dir, env=work.env, user=work.user)
        return Command(_words(hook, shell))

    def _pings(self, job: Fields) -> dict[str, Work]:
        """Build the hooks of `ping`: its URL, with /start and /fail at the end of the path."""
        if "ping" not in job:
            return {}
        from detent.manifest.placeholders import fill_in

        url = fill_in(job["ping"], {"app": self._app, "job": job["name"]}.__getitem__)
        path, mark, query = url.partition("?")
        ends = {START_PING: "/start", **END_PINGS}
        return {name: Request(f"{path.rstrip('/')}{end}{mark}{query}") for name, end in ends.items()}

    def schedule(self, job: Fields, path: str) -> Timetable | None:
        """Return the schedule of a merged job, or None if it has a problem, which is then reported.  Other
        fields of the job may be invalid."""
        zone = self._zone(job.get("timezone", "UTC"), path)
        times: list[tuple[str, Any]] = []
        if "schedule" in job:
            times.append((f"{path}/schedule", job["schedule"]))
        if type(job.get("schedules")) is list:
            times += [(f"{path}/schedules/{i}", text) for i, text in enumerate(job["schedules"])]
        parts = [self._parse(job, zone, at, text) for at, text in times if text is not INVALID]
        if "at" in job and job["at"] is not INVALID:
            parts.append(once(job["at"]))
        if not parts and "after" in job and not any(name in job for name in TIME_FIELDS):
            return Timetable(Merged(()))  # it only runs after other jobs
        whole = [part for part in parts if part is not None]
        return self._bounded(whole, job, path) if whole and len(whole) == len(parts) else None

    def _zone(self, name: Any, path: str) -> str:
        """Return the zone's name or, if it is invalid, UTC: the rest of the schedule can still be checked."""
        try:
            return "UTC" if name is INVALID else open_zone(name).name
        except UsageError as error:
            self._findings.problem(f"{path}/timezone", str(error))
            return "UTC"

    def _bounded(self, parts: list[Timetable], job: Fields, path: str) -> Timetable | None:
        starts_at, ends_at = job.get("starts_at"), job.get("ends_at")
        if INVALID in (starts_at, ends_at):
            return None
        if len(parts) == 1 and not starts_at and not ends_at:
            return parts[0]
        try:
            return combine(parts, starts_at=starts_at, ends_at=ends_at)
        except UsageError as error:
            self._findings.problem(f"{path}/ends_at" if ends_at else f"{path}/starts_at", str(error))
            return None

    def _parse(self, job: Fields, zone: str, path: str, text: str) -> Timetable | None:
        policy = job.get("policy", {})
        rule = policy.get("dst", "vixie") if type(policy) is dict else "vixie"
        dst = "vixie" if rule is INVALID else rule
        seed = f"{self._app}.{job.get('name')}" if "h" in text.lower() else ""
        key = (text, zone, dst, seed)
        if key in self._schedules:
            return self._schedules[key]
        try:
            made = parse_schedule(text, timezone=zone, dst=dst, version=self._version, seed=seed)
        except UsageError as error:
            self._findings.problem(path, str(error))
            return None
        self._warn_of_days(made, text, path)
        return self._schedules.setdefault(key, made)

    def _warn_of_days(self, schedule: Timetable, text: str, path: str) -> None:
        """Warn where Vixie's rule requires both day fields, and other crons require either."""
        for pattern in patterns_of(schedule):
            days = (pattern.fields.day_of_month, pattern.fields.day_of_week)
            stepped = [field for field in days if field.text.startswith("*/")]
            if stepped and any(not field.is_open for field in days):
                self._findings.warning(
                    path,
                    f"in {quote(text)} both day fields must match, because {stepped[0].text} starts with *;"
                    " some crons fire if either matches",
                    "both-days",
                )


def _work(job: Fields) -> Work:
    auth = model_fields(job.get("auth", {}))
    if "request" in job:
        return Request(**model_fields(job["request"]), **auth)
    if "enqueue" in job:
        message = {**job["enqueue"], "args": json.dumps(job["enqueue"].get("args", []))}
        return Push(**model_fields(message), secret_refs=auth["secret_refs"])
    process = model_fields({name: job[name] for name in PROCESS_FIELDS if name in job})
    if "call" in job:
        args, isolation = json.dumps(job.get("args", [])), job.get("isolation", "process")
        return Call(job["call"], args, isolation, **process)
    words = _words(job["command"], job.get("shell", SHELL))
    return Command(words, children=job.get("children", "end"), **process)


def model_fields(fields: Fields) -> dict[str, Any]:
    """The fields of a manifest with the names and types of the model: `min_seconds: 1` is `min_s=1.0`, and
    lists and mappings are tuples."""
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if name.endswith("_seconds"):
            made[name.removesuffix("econds")] = float(value)
        else:
            value = value.items() if type(value) is dict else value
            made[name] = value if isinstance(value, str | int | float) else tuple(value)
    return made


def _words(command: str | list[str], shell: Sequence[str]) -> tuple[str, ...]:
    return (*shell, command) if isinstance(command, str) else tuple(command)


def _policy(job: Fields, hooks: tuple[str, ...], grace_s: float) -> Policy:
    policy = {name: value for name, value in job["policy"].items() if name not in NOT_IN_POLICY}
    return Policy(
        **model_fields(policy),
        retries=Retries(**model_fields(job["policy"]["retries"])),
        grace_s=grace_s,
        late_after_s=float(job.get("late_after_seconds", LATE_AFTER_S)) if "on_late" in job else 0.0,
        hooks=hooks,
        remind_s=_remind_s(job) if any(map(is_repeated, hooks)) else 0.0,
    )


def _remind_s(job: Fields) -> float:
    return float(job.get("remind_hours", REMIND_HOURS) * 3600 or SECONDS_MAX)
