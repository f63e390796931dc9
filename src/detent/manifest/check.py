"""Checks the parsed document of an app and builds its jobs.

This module is pure: the caller supplies the document, the line of each path, and the variables.  All problems
are reported together.  Equal parts of jobs are shared, so that 100,000 jobs fit in memory.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from detent.manifest.canonical import canonical_job, job_text, machine_document, manifest_text
from detent.manifest.fields import JOB, LIMITS, MACHINE, MANIFEST
from detent.manifest.jobs import JobMaker, model_fields
from detent.manifest.problems import INVALID, Findings, Problem
from detent.manifest.rules import apply_defaults, check_rules
from detent.model import Job
from detent.schedules.timetable import Timetable
from detent.text import listed, nearest, plural, quote, show


class StoreSettings(NamedTuple):
    """The store that records fires."""

    url: str = ""  # "" if not configured
    key_prefix: str = ""
    wait_replicas: int = 0
    require: str = "any"


class NodeSettings(NamedTuple):
    """How a node behaves."""

    id: str = ""  # "" for the host's name
    max_running: int = 32
    drain_s: float = 25.0
    grace_s: float = 0.0
    keep_days: int = 30
    keep_fires: int = 1000


class Machine(NamedTuple):
    """Checked settings of a machine, without defaults.  A manifest's own settings override them per field."""

    store: Mapping[str, Any] = {}
    node: Mapping[str, Any] = {}
    secrets: Mapping[str, str] = {}
    dashboard_url: str = ""


class Manifest(NamedTuple):
    """A checked manifest."""

    version: int
    app: str
    jobs: tuple[Job, ...]  # the enabled jobs, in the order of the document
    disabled: tuple[str, ...] = ()  # app.job
    everywhere: frozenset[str] = frozenset()  # app.job, with `run_on: every`
    store: StoreSettings = StoreSettings()
    node: NodeSettings = NodeSettings()
    secrets: Mapping[str, str] = {}  # name → reference
    canonical: Mapping[str, str] = {}  # app.job → its canonical text
    machine: Mapping[str, Any] = {}  # the canonical form of the manifest's store and node
    warnings: tuple[Problem, ...] = ()


NOTHING: Mapping[str, Any] = {}
NO_SETTINGS = Machine()


def check_manifest(
    document: Any,
    *,
    lines: Mapping[str, int] = NOTHING,
    variables: Mapping[str, str] = NOTHING,
    machine: Machine = NO_SETTINGS,
    jobs_min: int = 1,
) -> Manifest:
    """Return the manifest of a parsed document, or raise one `ManifestError` with every problem."""
    version = _version(document, lines)
    findings = Findings(lines, variables if version > 1 else None)
    top = {name: value for name, value in document.items() if name not in ("version", "jobs")}
    clean = MANIFEST[version].check(top, "", findings)
    MANIFEST[version].check_required(document, "", findings)
    own = _machine_of(clean)
    node = NodeSettings() if findings.found else NodeSettings(**model_fields({**machine.node, **own.node}))
    url = own.dashboard_url or machine.dashboard_url
    # An invalid app was already reported; the jobs can still be checked under another name.
    app = clean.get("app") if type(clean.get("app")) is str else "app"
    maker = JobMaker(app, version, findings, grace_s=node.grace_s, dashboard_url=url)
    reader = _Jobs(version, clean.get("defaults"), maker, findings)
    if "jobs" in document:
        reader.read(document["jobs"], jobs_min)
    findings.raise_problems()
    return Manifest(
        version=version,
        app=clean["app"],
        jobs=tuple(reader.jobs),
        disabled=tuple(reader.disabled),
        everywhere=frozenset(reader.everywhere),
        store=StoreSettings(**{**machine.store, **own.store}),
        node=node,
        secrets={**machine.secrets, **own.secrets},
        canonical=reader.canonical,
        machine=machine_document(own.store, own.node, own.dashboard_url),
        warnings=findings.warnings(),
    )


def _version(document: Any, lines: Mapping[str, int]) -> int:
    """Return the version of the document.  Without it, nothing else can be checked."""
    findings = Findings(lines, None)
    if type(document) is not dict:
        findings.problem("", f"a manifest is a mapping with version, app and jobs; this is {show(document)}")
        findings.raise_problems()
    version = document.get("version")
    if type(version) in (int, float) and version in LIMITS:
        return int(version)
    advice = "write 2 (commands, requests, calls) or 1 (requests only)"
    if "version" in document:
        findings.problem("version", f"{show(version)} is not a version of the manifest", advice)
    else:
        findings.key_problem("version", 'missing key "version"', advice)
    findings.raise_problems()
    raise AssertionError("unreachable: there is a problem to raise")


class _Jobs:
    """Checks the list of jobs, one job after the other."""

    def __init__(self, version: int, defaults: Any, maker: JobMaker, findings: Findings) -> None:
        self._version, self._maker, self._findings = version, maker, findings
        self._defaults: Mapping[str, Any] = defaults if type(defaults) is dict else {}
        self._names: dict[str, int] = {}
        self._after: dict[str, list[str]] = {}
        self.jobs: list[Job] = []
        self.disabled: list[str] = []
        self.everywhere: list[str] = []
        self.canonical: dict[str, str] = {}

    def read(self, jobs: Any, jobs_min: int) -> None:
        high = LIMITS[self._version].jobs
        if type(jobs) is not list:
            self._findings.problem("jobs", f"{show(jobs)} is not a list of jobs")
        elif not jobs_min <= len(jobs) <= high:
            self._findings.problem("jobs", plural(len(jobs), "job"), f"allowed are from 1 to {high:,}")
        else:
            for i, job in enumerate(jobs):
                if not self._findings.full:
                    self._read_one(job, i)
            if self._after:
                self._check_after()

    def _read_one(self, document: Any, index: int) -> None:
        path = f"jobs/{index}"
        own = JOB[self._version].check(document, path, self._findings)
        if own is INVALID:
            return
        job = apply_defaults(self._defaults, own)
        check_rules(job, path, self._version, self._findings)
        name = job.get("name")
        if type(name) is str:
            if self._names.setdefault(name, index) != index:
                message = f"{quote(name)} is already the name of jobs[{self._names[name]}]"
                self._findings.problem(f"{path}/name", message, "names are unique")
            if type(job.get("after")) is list:
                self._after[name] = job["after"]
        schedule = self._maker.schedule(job, path)
        if schedule is not None and not self._findings.found:
            self._keep(canonical_job(job, self._version), schedule)

    def _check_after(self) -> None:
        """Check that `after` names existing jobs and has no cycle."""
        from detent.rules.chains import chain_problems  # late: few manifests have such jobs

        def report(name: str, message: str, advice: str = "") -> None:
            self._findings.problem(f"jobs/{self._names[name]}/after", message, advice)

        for name, others in self._after.items():
            for other in others:
                if other not in self._names:
                    near = nearest(other, self._names)
                    advice = f"did you mean {quote(near)}?" if near else ""
                    report(name, f"this manifest has no job {quote(other)}", advice)
        for name, fault in chain_problems(self._after):
            report(name, fault)
        everywhere = {name.partition(".")[2] for name in self.everywhere}
        for name in sorted(everywhere & self._after.keys()):
            if single := [other for other in self._after[name] if other not in everywhere]:
                message = (
                    f"a job with `run_on: every` cannot run after {listed(single)}, which runs on one host"
                )
                report(name, message)

    def _keep(self, job: Mapping[str, Any], schedule: Timetable) -> None:
        made = self._maker.make(job, schedule)
        self.canonical[made.name] = job_text(job, self._version)
        if job.get("run_on") == "every":
            self.everywhere.append(made.name)
        if job.get("enabled", True):
            self.jobs.append(made)
        else:
            self.disabled.append(made.name)


def check_machine(
    document: Any, *, lines: Mapping[str, int] = NOTHING, variables: Mapping[str, str] = NOTHING
) -> Machine:
    """Return the settings of a machine: `store`, `node` and `secrets`, with the syntax of a manifest."""
    findings = Findings(lines, variables)
    clean = {} if document is None else MACHINE.check(document, "", findings)
    findings.raise_problems()
    return _machine_of(clean)


def _machine_of(clean: Mapping[str, Any]) -> Machine:
    store = clean.get("store", {})
    return Machine(
        store={"url": store} if type(store) is str else store,
        node=clean.get("node", {}),
        secrets=clean.get("secrets", {}),
        dashboard_url="" if clean.get("dashboard_url") in (None, INVALID) else clean["dashboard_url"],
    )


def canonical_text(manifest: Manifest) -> str:
    jobs = (manifest.canonical[name] for name in sorted(manifest.canonical))
    return manifest_text(manifest.version, manifest.app, jobs, manifest.machine)


def for_host(job: Job, host: str) -> Job:
    """Return the job of `run_on: every` as one host runs it: with its own key, lane and watermark."""
    return job._replace(name=f"{job.name}/{host}")


def jobs_on(manifest: Manifest, host: str) -> Iterator[Job]:
    """Yield the jobs that a node on this host plans."""
    for job in manifest.jobs:
        yield for_host(job, host) if job.name in manifest.everywhere else job
