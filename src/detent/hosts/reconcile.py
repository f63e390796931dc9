"""What a host should have against what it has: the changes that bring it into agreement.  Pure.

- A resource is one thing on a host: a line of a crontab, a unit file, a CronJob, a schedule of EventBridge,
  a spec file.  Its name is unique on the host.
- What carries our mark is ours; everything else is foreign.  Foreign things are never changed: one that
  bears a name that we need is told, and is in the way.
- Of what is ours, only the named app's is looked at: `pay` never touches `pay-out`.
- The mark holds the revision of the job and a seal over the content: so a hand edit (`edited`) is told
  from a definition that was changed since (`outdated`).
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
CUT_DIGITS = 8  # of the hash that stands in for the end of a name that is too long
SEAL_DIGITS = 12


class Resource(NamedTuple):
    """One thing that a host should have."""

    name: str
    job: str  # app.job
    revision: str  # of the job: a hash of its canonical form
    content: str  # all of it, as a person would read it: it is compared and shown
    kind: str = ""  # what the host calls it: entry, timer, service, spec, CronJob, …


class Found(NamedTuple):
    """One thing that a host has."""

    name: str
    content: str
    job: str = ""  # app.job, by its mark; "": it has none, and is foreign
    revision: str = ""
    intact: bool = True  # its content is as it was written; False: somebody edited it
    place: str = ""  # how the host finds it again, where the name is not enough
    kind: str = ""


class Change(NamedTuple):
    """How one resource stands, with what is there and what should be."""

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
    """How each resource of the app stands, in the order of what is desired; then what is surplus."""
    there: dict[str, list[Found]] = {}
    for one in found:
        there.setdefault(one.name, []).append(one)
    changes: list[Change] = []
    for resource in desired:
        ours = [one for one in there.get(resource.name, ()) if one.job]
        foreign = [one for one in there.get(resource.name, ()) if not one.job]
        kept = next((one for one in ours if one.content == resource.content), ours[0] if ours else None)
        changes.append(_judged(resource, kept, foreign))
        there[resource.name] = [one for one in ours if one is not kept]
    left = [one for named in there.values() for one in named if app_of(one.job) == app]
    return changes + [Change(one.name, "surplus", before=one) for one in left]


def _judged(resource: Resource, kept: Found | None, foreign: Sequence[Found]) -> Change:
    if kept is None and foreign and foreign[0].content != resource.content:
        return Change(resource.name, "foreign", foreign[0], resource)
    if kept is None and foreign:  # whoever wrote it wrote the same
        return Change(resource.name, "unchanged", foreign[0], resource)
    if kept is None:
        return Change(resource.name, "missing", None, resource)
    if kept.content == resource.content and kept.revision == resource.revision:
        return Change(resource.name, "unchanged", kept, resource)
    return Change(resource.name, "outdated" if kept.intact else "edited", kept, resource)


def pending(changes: Iterable[Change]) -> list[Change]:
    """Those that something is to be done about."""
    return [change for change in changes if change.state != "unchanged"]


def app_of(job: str) -> str:
    return job.partition(".")[0]


# Names and marks.


def resource_name(job: str, index: int, longest: int = 255) -> str:
    """`detent-app.job-0`; where a host takes no name so long, cut, with a hash of the whole behind it."""
    whole = f"{PREFIX}{job}-{index}"
    if len(whole) <= longest:
        return whole
    digits = sha256(whole.encode()).hexdigest()[:CUT_DIGITS]
    return f"{whole[: longest - CUT_DIGITS - 1].rstrip('.-')}-{digits}"


def seal(*parts: str) -> str:
    """A short hash over content, by which a hand edit is seen."""
    return sha256("\0".join(parts).encode()).hexdigest()[:SEAL_DIGITS]
