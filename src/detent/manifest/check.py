"""The declared jobs of one app: checks a parsed document and makes its jobs, or tells all that is wrong.

- Pure: the document, the lines of its paths and the variables are given; nothing is read.
- Every problem is told at once, with its path, its line where that is known, and what is allowed.
- Jobs are checked one after the other, and what is equal is shared: a hundred thousand fit.
- A manifest's own settings win over the machine's, field by field.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from detent.manifest.canonical import canonical_job, job_text, machine_document, manifest_text
from detent.manifest.fields import JOB, LIMITS, MACHINE, MANIFEST
from detent.manifest.jobs import JobMaker
from detent.manifest.problems import Findings, ManifestError, Problem
from detent.manifest.rules import apply_defaults, check_rules
from detent.manifest.shapes import INVALID
from detent.model import Job
from detent.schedules.timetable import Timetable
from detent.text import did_you_mean, plural, show

__all__ = [
    "Machine",
    "Manifest",
    "ManifestError",
    "NodeSettings",
    "Problem",
    "StoreSettings",
    "canonical_text",
    "check_machine",
    "check_manifest",
    "for_host",
    "jobs_on",
]


class StoreSettings(NamedTuple):
    """Where fires are recorded.  No url: it was not said."""

    url: str = ""
    key_prefix: str = ""
    wait_replicas: int = 0
    require: str = "any"


class NodeSettings(NamedTuple):
    """How a node behaves.  No id: its host's name."""

    id: str = ""
    max_running: int = 32
    drain_s: float = 25.0
    grace_s: float = 0.0
    keep_days: int = 30
    keep_fires: int = 1000


class Machine(NamedTuple):
    """Settings as they were given, checked, without defaults."""

    store: Mapping[str, Any] = {}
    node: Mapping[str, Any] = {}
    secrets: Mapping[str, str] = {}


class Manifest(NamedTuple):
    """A checked manifest."""

    version: int
    app: str
    jobs: tuple[Job, ...]  # those that are enabled, in the order of the document
    disabled: tuple[str, ...] = ()  # app.job
    everywhere: frozenset[str] = frozenset()  # app.job, with `run_on: every`
    store: StoreSettings = StoreSettings()
    node: NodeSettings = NodeSettings()
    secrets: Mapping[str, str] = {}  # name → reference
    canonical: Mapping[str, str] = {}  # app.job → its canonical text
    machine: Mapping[str, Any] = {}  # the canonical form's store and node
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
    """The manifest of a parsed document, with at least `jobs_min` jobs; raises one `ManifestError` with every
    problem."""
    version = _version(document, lines)
    findings = Findings(lines, variables if version > 1 else None)
    top = {name: value for name, value in document.items() if name not in ("version", "jobs")}
    clean = MANIFEST[version].check(top, "", findings)
    MANIFEST[version].missing(document, "", findings)
    own = _machine_of(clean)
    node = NodeSettings() if findings.found else _node_settings({**machine.node, **own.node})
    reader = _Jobs(version, clean, node.grace_s, findings)
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
        machine=machine_document(own.store, own.node),
        warnings=findings.warnings(),
    )


def _version(document: Any, lines: Mapping[str, int]) -> int:
    """Which version the document is checked as; without one, nothing else can be said of it."""
    findings = Findings(lines, None)
    if type(document) is not dict:
        findings.problem("", f"a manifest is a mapping with version, app and jobs; this is {show(document)}")
        findings.raise_problems()
    version = document.get("version")
    if type(version) in (int, float) and version in LIMITS:
        return int(version)
    given = f"{show(version)} is not a version of the manifest" if "version" in document else "it is missing"
    findings.problem("version", f"{given}; write 2 (commands, requests, calls) or 1 (requests only, exact)")
    findings.raise_problems()
    raise AssertionError("raise_problems raises what it was told")


class _Jobs:
    """Reads the list of jobs."""

    def __init__(self, version: int, top: Mapping[str, Any], grace_s: float, findings: Findings) -> None:
        app = top.get("app")
        self._version = version
        self._app = app if type(app) is str else "app"  # refused already; the rest can still be checked
        defaults = top.get("defaults")
        self._defaults: Mapping[str, Any] = defaults if type(defaults) is dict else {}
        self._findings = findings
        self._maker = JobMaker(self._app, version, grace_s, findings)
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
            self._findings.problem("jobs", f"{plural(len(jobs), 'job')}: allowed are from 1 to {high:,}")
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
        self._check_name(job.get("name"), index)
        if type(job.get("name")) is str and type(job.get("after")) is list:
            self._after[job["name"]] = job["after"]
        schedule = self._maker.schedule(job, path)
        if schedule is not None and not self._findings.found:
            self._keep(canonical_job(job, self._version), schedule)

    def _check_name(self, name: Any, index: int) -> None:
        if type(name) is str and self._names.setdefault(name, index) != index:
            told = f"{show(name)} is already the name of jobs/{self._names[name]}; names are unique"
            self._findings.problem(f"jobs/{index}/name", told)

    def _check_after(self) -> None:
        """Is there what they come after, and an end to it?"""
        from detent.rules.chains import chain_problems  # late: few have such jobs

        for name, others in self._after.items():
            for other in others:
                if other not in self._names:
                    near = did_you_mean(other, self._names)
                    self._fault(name, f"there is no job {show(other)} in this manifest{near}")
        for name, fault in chain_problems(self._after):
            self._fault(name, fault)
        everywhere = {name.partition(".")[2] for name in self.everywhere}
        for name in sorted(everywhere & self._after.keys()):
            if lone := [other for other in self._after[name] if other not in everywhere]:
                self._fault(name, f"with `run_on: every` it cannot come after {lone[0]}, which has one host")

    def _fault(self, name: str, fault: str) -> None:
        self._findings.problem(f"jobs/{self._names[name]}/after", fault)

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
    """The settings of a machine: `store`, `node` and `secrets`, as a manifest has them."""
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
    )


def _node_settings(given: Mapping[str, Any]) -> NodeSettings:
    seconds = {"drain_seconds": "drain_s", "grace_seconds": "grace_s"}
    settings: dict[str, Any] = {seconds.get(name, name): value for name, value in given.items()}
    return NodeSettings(**settings)


def canonical_text(manifest: Manifest) -> str:
    """The canonical form of the whole manifest."""
    jobs = (manifest.canonical[name] for name in sorted(manifest.canonical))
    return manifest_text(manifest.version, manifest.app, jobs, manifest.machine)


def for_host(job: Job, host: str) -> Job:
    """The job as one host has it, with `run_on: every`: key, lane and mark are its own."""
    return job._replace(name=f"{job.name}/{host}")


def jobs_on(manifest: Manifest, host: str) -> Iterator[Job]:
    """The jobs that a node on this host plans: those of `run_on: every` under the host's name."""
    for job in manifest.jobs:
        yield for_host(job, host) if job.name in manifest.everywhere else job
