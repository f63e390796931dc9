"""The spec of a job: the canonical manifest of one job alone, which a host stores and a trigger reads.  Pure.

The ordinary loader reads a spec, and gives the job the same revision.  A spec has the manifest's own store
and node settings and the references to the job's secrets, but never a secret.  It does not copy the settings
of the machine (`/etc/detent/detent.yaml`): the trigger reads them there.  A spec always has version 2,
because version 1 has no store.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from detent.errors import UsageError
from detent.manifest.canonical import job_text, manifest_text, without_password
from detent.manifest.check import NO_SETTINGS, Machine, Manifest
from detent.manifest.secret_refs import Secret, Variable, locate_secret, refs_of
from detent.model import Alert, Job
from detent.schedules.timetable import Instants, once, parse_schedule
from detent.text import quote

VERSION = 2
SETTINGS = ("store", "node", "secrets", "dashboard_url")  # in this order


class Time(NamedTuple):
    """One schedule of a job; a host has one resource for it."""

    text: str  # as in the manifest
    timezone: str
    instants: Instants


class Spec(NamedTuple):
    """A job as hosts see it."""

    name: str  # app.job
    revision: str
    text: str  # of the spec file
    job: Job
    times: tuple[Time, ...]
    scope: str = "host"  # policy.concurrency_scope
    is_private: bool = False  # the text has a password or a literal secret: only its owner may read it
    variables: tuple[str, ...] = ()  # environment variables that hold the job's secrets

    @property
    def file_name(self) -> str:
        return f"{self.name}.json"


def specs_of(manifest: Manifest, store_url: str = "", machine: Machine = NO_SETTINGS) -> list[Spec]:
    """Return the specs of the enabled jobs.  Triggers use `store_url` or, if it is empty, the store of the
    manifest, of the machine, or the default."""
    settings = dict(manifest.machine)
    url = store_url or (manifest.store.url if "url" in settings.get("store", {}) else "")
    if url:  # the canonical form has no password
        settings["store"] = {**settings.get("store", {}), "url": url}
    for job in manifest.jobs:
        if job.after:
            raise UsageError(
                f"{job.name} runs after {job.after[0]}, and a host scheduler only knows times; run these jobs"
                " with a node (`detent run`), or make them one job"
            )
    return [_spec(manifest, job, settings, machine) for job in manifest.jobs]


def _spec(manifest: Manifest, job: Job, settings: Mapping[str, Any], machine: Machine) -> Spec:
    document = json.loads(manifest.canonical[job.name])
    added = {**settings, "secrets": _references(manifest, job, machine)}
    own = job_text(document, VERSION) if manifest.version == 1 else manifest.canonical[job.name]
    kept = {name: added[name] for name in SETTINGS if added.get(name)}
    url = settings.get("store", {}).get("url", "")
    has_secret = any(isinstance(hook, Alert) for hook in job.hooks.values())
    has_secret |= without_password(url) != url or any(ref.startswith("raw:") for ref in refs_of([job]))
    places = [locate_secret(ref, manifest.secrets) for ref in refs_of([job])]
    return Spec(
        name=job.name,
        revision=job.revision,
        text=manifest_text(VERSION, manifest.app, [own], kept) + "\n",
        job=job,
        times=tuple(_times(document, job.name, manifest.version)),
        scope=document["policy"]["concurrency_scope"],
        is_private=has_secret,
        variables=tuple(place.name for place in places if isinstance(place, Variable)),
    )


def _times(document: Mapping[str, Any], name: str, version: int) -> Iterator[Time]:
    zone, dst = document["timezone"], document["policy"].get("dst", "vixie")
    for text in document.get("schedules", ()):
        made = parse_schedule(text, timezone=zone, dst=dst, version=version, seed=name)
        yield Time(text, zone, made.instants)
    if "at" in document:
        yield Time(f"at {document['at']}", zone, once(document["at"]).instants)


def _references(manifest: Manifest, job: Job, machine: Machine) -> dict[str, str]:
    """Return the entries of the manifest's secrets table that the job uses and the machine does not have."""
    own = {ref: manifest.secrets[ref] for ref in refs_of([job]) if ref in manifest.secrets}
    named = {ref: place for ref, place in own.items() if machine.secrets.get(ref) != place}
    for ref, place in named.items():
        if isinstance(locate_secret(place, {}), Secret) or not place.startswith(("env:", "file:")):
            raise UsageError(
                f"{job.name}: the manifest contains the secret {quote(ref)} itself, and a spec file must not;"
                " move it to a file, and write file:/path instead"
            )
    return named
