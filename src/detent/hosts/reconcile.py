"""Compares the resources that a host should have with those that it has, and returns the changes.  Pure.

- A resource is one thing on a host, with a unique name: a line of a crontab, a unit file, a CronJob, a
  schedule of EventBridge, a spec file.
- A resource with detent's mark is managed.  Others are foreign and never changed; a foreign one with a name
  that detent needs is reported.
- Only resources of the named app are compared: `pay` never touches `pay-out`.
- The mark has the job's revision and a seal over the content, to distinguish a manual change (`edited`) from
  an older definition (`outdated`).
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple

State = Literal["missing", "outdated", "edited", "surplus", "unchanged", "foreign"]
Action = Literal["create", "update", "delete", "none", "refuse"]

ACTIONS: dict[State, Action] = {
    "missing": "create",
    "outdated": "update",
    "edited": "update",
    "surplus": "delete",
    "unchanged": "none",
    "foreign": "refuse",
}
PREFIX = "detent-"
CUT_DIGITS = 8  # of the hash at the end of a shortened name
SEAL_DIGITS = 12


class Resource(NamedTuple):
    """A resource that a host should have."""

    name: str
    job: str  # app.job
    revision: str  # of the job: a hash of its canonical form
    content: str  # the whole text, for comparison and display
    kind: str = ""  # entry, timer, service, spec, CronJob, …
    is_private: bool = False  # only its owner may read it


class Found(NamedTuple):
    """A resource that a host has."""

    name: str
    content: str
    job: str = ""  # app.job from its mark; "" if it is foreign
    revision: str = ""
    intact: bool = True  # False if it was edited manually
    place: str = ""  # for the host, to find it again if the name is not enough
    kind: str = ""


class Change(NamedTuple):
    """The state of one resource: what exists and what should exist."""

    name: str
    state: State
    before: Found | None = None
    after: Resource | None = None

    @property
    def action(self) -> Action:
        return ACTIONS[self.state]

    @property
    def job(self) -> str:
        return self.after.job if self.after else self.before.job if self.before else ""

    @property
    def kind(self) -> str:
        return self.after.kind if self.after else self.before.kind if self.before else ""


def reconcile(app: str, desired: Iterable[Resource], found: Iterable[Found]) -> list[Change]:
    """Return the state of each desired resource, then the surplus ones."""
    existing: dict[str, list[Found]] = {}
    for one in found:
        existing.setdefault(one.name, []).append(one)
    changes: list[Change] = []
    for resource in desired:
        ours = [one for one in existing.get(resource.name, ()) if one.job]
        foreign = [one for one in existing.get(resource.name, ()) if not one.job]
        kept = next((one for one in ours if one.content == resource.content), ours[0] if ours else None)
        changes.append(_change_for(resource, kept, foreign))
        existing[resource.name] = [one for one in ours if one is not kept]
    left = [one for named in existing.values() for one in named if app_of(one.job) == app]
    return changes + [Change(one.name, "surplus", before=one) for one in left]


def _change_for(resource: Resource, kept: Found | None, foreign: Sequence[Found]) -> Change:
    if kept is None and foreign:  # one with the same content does no harm
        is_same = foreign[0].content == resource.content
        return Change(resource.name, "unchanged" if is_same else "foreign", foreign[0], resource)
    if kept is None:
        return Change(resource.name, "missing", None, resource)
    if kept.content == resource.content and kept.revision == resource.revision:
        return Change(resource.name, "unchanged", kept, resource)
    return Change(resource.name, "outdated" if kept.intact else "edited", kept, resource)


def pending(changes: Iterable[Change]) -> list[Change]:
    return [change for change in changes if change.state != "unchanged"]


def app_of(job: str) -> str:
    return job.partition(".")[0]


def resource_name(job: str, index: int, longest: int = 255) -> str:
    """Return `detent-app.job-0`.  A name that is too long is cut, and ends in a hash of the whole name."""
    whole = f"{PREFIX}{job}-{index}"
    if len(whole) <= longest:
        return whole
    digits = sha256(whole.encode()).hexdigest()[:CUT_DIGITS]
    return f"{whole[: longest - CUT_DIGITS - 1].rstrip('.-')}-{digits}"


def seal(*parts: str) -> str:
    """Return a short hash of the content, which reveals manual changes."""
    return sha256("\0".join(parts).encode()).hexdigest()[:SEAL_DIGITS]
