"""Converts systemd timers and their services to a version 2 manifest.

- A timer becomes a job with the name of its unit.  `OnCalendar=` becomes cron expressions, `OnBootSec=` and
  similar become `@reboot`, `OnUnitActiveSec=` and similar become `@every`.
- `Persistent=true` becomes `catch_up: latest`, otherwise `skip`.
- Times that one job cannot have together (other zones, other years) become several jobs.
- A timer is never dropped: if it cannot be converted, its job is disabled, with a warning.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from detent.errors import UsageError
from detent.formats.base import APP, FOREIGN, NAME_MAX, Converted, slug, unique
from detent.formats.systemd.calendar import parse_calendar
from detent.formats.systemd.schedules import PLACEHOLDER_SCHEDULE, Span, spans_of
from detent.formats.systemd.service import TRUE, Work, placeholder_work, work_of
from detent.formats.systemd.units import Entry, Unit, as_text, expand, parse_span, parse_unit
from detent.manifest.problems import ManifestError, Problem
from detent.schedules.timetable import period_text
from detent.text import listed, quote

AT_BOOT = ("OnBootSec", "OnStartupSec", "OnActiveSec")
REPEATED = ("OnUnitActiveSec", "OnUnitInactiveSec")
KNOWN_KEYS = {
    *(*AT_BOOT, *REPEATED, "OnCalendar", "Persistent", "Unit"),
    *("Description", "Documentation", "DefaultDependencies"),
    *("AccuracySec", "RemainAfterElapse"),  # detent fires to the second, and keeps past fires
}
SPAN_MAX_S = 1_000 * 366 * 86_400  # a longer one never elapses
ADVICE = {
    "RandomizedDelaySec": "the job fires exactly on time; use H in a field to spread jobs",
    "RandomizedOffsetSec": "the job fires exactly on time; use H in a field to spread jobs",
    "FixedRandomDelay": "the job fires exactly on time; H in a field spreads jobs by a fixed value",
    "WakeSystem": "a sleeping machine is not woken; `catch_up` applies to the fire",
    "OnClockChange": "a clock change starts no fire",
    "OnTimezoneChange": "a time zone change starts no fire",
}


def convert_systemd(texts: Mapping[str, str], zone: str, app: str = APP) -> Converted:
    """Convert the timers in these unit files.  Their names are such as backup.timer or, for a drop-in,
    backup.timer.d/nightly.conf."""
    units = _parsed(texts)
    timers = [unit for unit in units.values() if unit.name.endswith(".timer")]
    if not timers:
        found = f"; there is {listed(sorted(units), 'and')}" if units else ""
        raise ManifestError([Problem("", f"these units have no .timer{found}")])
    jobs: list[dict[str, Any]] = []
    warnings: list[Problem] = []
    sources: list[str] = []
    names: set[str] = set()
    left = set(units)
    for unit in timers:
        timer = _Timer(unit, units, zone)
        made = timer.jobs()
        jobs += [{**job, "name": unique(job["name"], names)} for job in made]
        sources += [timer.source] * len(made)
        warnings += timer.warnings
        left -= {unit.name, timer.service}
    for name in sorted(left):
        warnings.append(Problem("", "no timer here starts it; it is not converted", file=name))
    return Converted(
        document={"version": 2, "app": app, "jobs": jobs},
        warnings=tuple(warning._replace(code=FOREIGN) for warning in warnings),
        sources=tuple(sources),
    )


def _parsed(texts: Mapping[str, str]) -> dict[str, Unit]:
    problems, units = [], {}
    for name, text in texts.items():
        try:
            units[name] = parse_unit(name, text)
        except UsageError as error:
            problems.append(Problem("", str(error)))
    if problems:
        raise ManifestError(problems)
    return _with_drop_ins(units)


def _with_drop_ins(units: Mapping[str, Unit]) -> dict[str, Unit]:
    """Append the drop-ins of a unit, such as backup.service.d/nice.conf, to it."""
    whole = {name: unit for name, unit in units.items() if "/" not in name}
    for name in sorted(set(units) - set(whole)):
        base = name.partition(".d/")[0]
        if base in whole:
            entries = (*whole[base].entries, *units[name].entries)
            whole[base] = Unit(base, entries)
    return whole


def services_of(timer: Unit) -> list[str]:
    """Return the service that a timer starts, and the files that may contain it."""
    name = expand(timer.text("Timer", "Unit"), timer.name) or f"{timer.stem}.service"
    prefix, at, _ = name.partition("@")
    return [name, f"{prefix}@.service"] if at else [name]


class _Timer:
    def __init__(self, unit: Unit, units: Mapping[str, Unit], zone: str) -> None:
        self._unit = unit
        self._units = units
        self._zone = zone
        self.service = ""  # the file of its service
        self.warnings: list[Problem] = []

    @property
    def source(self) -> str:
        return f"{self._unit.name}, {self.service}" if self.service else self._unit.name

    def _warn(self, entry: Entry, message: str) -> None:
        self.warnings.append(entry.problem(f"{entry.key}={entry.value}: {message}"))

    def jobs(self) -> list[dict[str, Any]]:
        spans = self._spans()
        work = self._work()
        self._warn_unread()
        self.warnings = sorted(self.warnings, key=_place) + sorted(work.warnings, key=_place)
        enabled = [span for span in spans if not span.fault]
        if len(enabled) > 1:
            message = (
                f"it became {len(enabled)} jobs, for several zones or years, which may run at the same time"
            )
            self.warnings.append(Problem("", message, file=self._unit.name))
        return [self._job(span, deepcopy(work)) for span in spans]

    def _job(self, span: Span, work: Work) -> dict[str, Any]:
        stem = self._unit.stem
        job: dict[str, Any] = {"name": slug(stem if stem[:1].isalpha() else f"job-{stem}", NAME_MAX)}
        own = as_text(expand(self._unit.text("Unit", "Description"), self._unit.name))
        if description := own or work.fields.get("description"):
            job["description"] = description
        job.update(_times(span))
        job.update((key, value) for key, value in work.fields.items() if key not in ("policy", "description"))
        if span.fault:
            job["enabled"] = False
        is_kept = self._unit.text("Timer", "Persistent").lower() in TRUE
        return {**job, "policy": {**work.fields["policy"], "catch_up": "latest" if is_kept else "skip"}}

    def _spans(self) -> list[Span]:
        spans = [span for entry in self._unit.given("Timer", "OnCalendar") for span in self._calendar(entry)]
        for entry in self._unit.given("Timer", *AT_BOOT):
            spans += self._at_boot(entry)
        for entry in self._unit.given("Timer", *REPEATED):
            spans += self._repeated(entry)
        if not spans:
            why = "no time can be converted; the job is disabled until it has a schedule"
            self.warnings.append(Problem("", why, file=self._unit.name))
            spans = [Span(schedules=(PLACEHOLDER_SCHEDULE,), timezone=self._zone, fault=why)]
        return _gathered(spans)

    def _calendar(self, entry: Entry) -> list[Span]:
        try:
            spans = spans_of(parse_calendar(entry.value), self._zone)
        except UsageError as error:
            self._warn(entry, f"{error}; it is ignored")
            return []
        for fault in dict.fromkeys(span.fault for span in spans if span.fault):
            self._warn(entry, f"{fault}; its job is disabled")
        return spans

    def _at_boot(self, entry: Entry) -> list[Span]:
        delay_s = self._seconds(entry)
        if delay_s is None:
            return []
        if delay_s:
            message = f"it fires when the node first starts after a boot, not {entry.value} later"
            self._warn(entry, f"{message}; sleep in the command if that matters")
        return [Span(schedules=("@reboot",), timezone=self._zone)]

    def _repeated(self, entry: Entry) -> list[Span]:
        period_s = self._seconds(entry)
        if not period_s:
            return []
        whole_s = max(1, math.ceil(period_s))
        since = "the service was started" if entry.key == REPEATED[0] else "it had ended"
        self._warn(entry, f"@every counts from 1970, not from when {since}")
        if whole_s != period_s:
            self._warn(entry, f"a period has whole seconds: {whole_s} s")
        return [Span(schedules=(f"@every {period_text(whole_s)}",), timezone=self._zone)]

    def _seconds(self, entry: Entry) -> float | None:
        try:
            seconds = parse_span(entry.value)
        except UsageError as error:
            self._warn(entry, f"{error}; it is ignored")
            return None
        if seconds is None or seconds > SPAN_MAX_S:
            self._warn(entry, "it never elapses; it is ignored")
            return None
        return seconds

    def _work(self) -> Work:
        name, *files = services_of(self._unit)
        asked = self._unit.last("Timer", "Unit")
        place = asked.problem("") if asked else Problem("", "", file=self._unit.name)
        if name.partition("@")[2] == ".service":
            return placeholder_work(place, f"{name} is a template; convert the timer of an instance")
        if not name.endswith(".service"):
            return placeholder_work(place, f"it starts {name}, but only a service can become a job")
        for file in (name, *files):
            if file in self._units:
                self.service = file
                return self._found(self._units[file]._replace(name=name))
        return placeholder_work(place, f"{name} is not among these files")

    def _found(self, service: Unit) -> Work:
        if not service.given("Service", "ExecStart"):
            return placeholder_work(Problem("", "", file=service.name), "it has no ExecStart")
        try:
            work = work_of(service)
        except UsageError as error:
            return placeholder_work(Problem("", "", file=service.name), str(error))
        described = as_text(expand(service.text("Unit", "Description"), service.name))
        return work._replace(fields={**work.fields, "description": described})

    def _warn_unread(self) -> None:
        for entry in self._unit.entries:
            if entry.section not in ("Unit", "Timer") or entry.key in KNOWN_KEYS or not entry.value:
                continue
            if entry.value.lower() in ("0", "no", "false", "off"):
                continue
            if entry.section == "Unit" and entry.key.startswith(("Condition", "Assert")):
                self._warn(entry, "it is not checked; check it in the command")
            elif entry.section == "Unit":
                self._warn(entry, "detent does not start or wait for other units")
            else:
                self._warn(entry, ADVICE.get(entry.key, f"{quote(entry.key)} has no equivalent"))


def _place(problem: Problem) -> tuple[str, int]:
    return problem.file, problem.line


def _times(span: Span) -> dict[str, Any]:
    fields = {
        "at": span.at,
        "schedule": span.schedules[0] if len(span.schedules) == 1 else "",
        "schedules": list(span.schedules) if len(span.schedules) > 1 else [],
        "starts_at": span.starts_at,
        "ends_at": span.ends_at,
        "timezone": "" if span.at or span.timezone == "UTC" else span.timezone,
        "run_on": "every" if "@reboot" in span.schedules else "",
    }
    return {name: value for name, value in fields.items() if value}


def _gathered(spans: list[Span]) -> list[Span]:
    """Combine the spans that one job can have: with the same zone and years, enabled or not."""
    groups: dict[Span, list[str]] = {}
    for span in spans:
        groups.setdefault(span._replace(schedules=()), []).extend(span.schedules)
    return [span._replace(schedules=tuple(dict.fromkeys(texts))) for span, texts in groups.items()]
