"""A job as a trigger reads it: the canonical manifest of that job alone, and what a host asks of it.  Pure.

- The text loads with the ordinary loader, and gives the job with the same revision.
- The manifest's own store and node settings go along, and the references to the secrets that the job uses.
  A secret itself is never written: one that stands in the manifest's table is refused.
- What belongs to the machine (`/etc/detent/detent.yaml`) is not copied: the trigger reads it there.
- A job of a version 1 manifest becomes one of version 2, which has a place for a store; it means the same,
  and has the same revision.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.manifest.canonical import job_text, manifest_text, without_password
from detent.manifest.check import Machine, Manifest
from detent.manifest.secret_refs import Secret, Variable, locate_secret
from detent.model import Job, Push, Request
from detent.schedules.timetable import Instants, once, parse_schedule
from detent.text import quote

NO_MACHINE = Machine()
VERSION = 2
SETTINGS = ("store", "node", "secrets")  # in this order


class Time(NamedTuple):
    """One schedule of a job; on a host it is one resource."""

    text: str  # as the manifest has it
    timezone: str
    instants: Instants


class Spec(NamedTuple):
    """What a host is told of a job."""

    name: str  # app.job
    revision: str
    text: str  # of the spec file
    job: Job
    times: tuple[Time, ...]
    scope: str = "host"  # policy.concurrency_scope
    is_private: bool = False  # the text holds a password or a literal: its owner alone may read it
    variables: tuple[str, ...] = ()  # of the environment, in which the job's secrets are looked for

    @property
    def file_name(self) -> str:
        return f"{self.name}.json"


def specs_of(manifest: Manifest, store_url: str = "", machine: Machine = NO_MACHINE) -> list[Spec]:
    """The specs of the jobs that are enabled.  `store_url` is the store that the triggers shall use; none:
    the manifest's own, else the machine's, else their default."""
    settings = dict(manifest.machine)
    url = store_url or (manifest.store.url if "url" in settings.get("store", {}) else "")
    if url:  # the canonical form has no password in it
        settings["store"] = {**settings.get("store", {}), "url": url}
    for job in manifest.jobs:
        check_hostable(job)
    return [_spec(manifest, job, settings, machine) for job in manifest.jobs]


def check_hostable(job: Job) -> None:
    """Raise where a host cannot do what the manifest says."""
    if job.after:
        raise UsageError(
            f"{job.name} comes after {job.after[0]}, and a host's scheduler knows of times only; have these"
            " jobs run by a node (`detent run`), or make one job of them"
        )


def _spec(manifest: Manifest, job: Job, settings: Mapping[str, Any], machine: Machine) -> Spec:
    document = json.loads(manifest.canonical[job.name])
    secrets = _references(manifest, job, machine)
    added = {**settings, "secrets": secrets}
    told = job_text(document, VERSION) if manifest.version == 1 else manifest.canonical[job.name]
    kept = {name: added[name] for name in SETTINGS if added.get(name)}
    text = manifest_text(VERSION, manifest.app, [told], kept) + "\n"
    url = settings.get("store", {}).get("url", "")
    return Spec(
        name=job.name,
        revision=job.revision,
        text=text,
        job=job,
        times=tuple(_times(document, job.name, manifest.version)),
        scope=document["policy"]["concurrency_scope"],
        is_private=without_password(url) != url or _has_literal(job),
        variables=tuple(_variables(manifest, job)),
    )


def _times(document: Mapping[str, Any], name: str, version: int) -> Iterator[Time]:
    zone, dst = document["timezone"], document["policy"].get("dst", "vixie")
    for text in document.get("schedules", ()):
        made = parse_schedule(text, timezone=zone, dst=dst, version=version, seed=name)
        yield Time(text, zone, made.instants)
    if "at" in document:
        yield Time(f"at {document['at']}", zone, once(document["at"]).instants)


def _references(manifest: Manifest, job: Job, machine: Machine) -> dict[str, str]:
    """What the manifest's table says of the secrets that the job names."""
    own = {ref: manifest.secrets[ref] for ref in _refs(job) if ref in manifest.secrets}
    named = {ref: place for ref, place in own.items() if machine.secrets.get(ref) != place}
    for ref, place in named.items():
        if isinstance(locate_secret(place, {}), Secret) or not place.startswith(("env:", "file:")):
            raise UsageError(
                f"{job.name}: the secret {quote(ref)} stands in the manifest itself, and a spec file holds no"
                " secret; put it into a file, and write file:/path in its place"
            )
    return named


def _variables(manifest: Manifest, job: Job) -> Iterator[str]:
    for ref in _refs(job):
        place = locate_secret(ref, manifest.secrets)
        if isinstance(place, Variable):
            yield place.name


def _refs(job: Job) -> tuple[str, ...]:
    return job.work.secret_refs if isinstance(job.work, Request | Push) else ()


def _has_literal(job: Job) -> bool:
    return any(ref.startswith("raw:") for ref in _refs(job))
