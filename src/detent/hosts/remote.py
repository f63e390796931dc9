"""Jobs on hosts that have no machine of their own to keep a store on: a cluster, a cloud.

- `concurrency_scope: host` means nothing there: every trigger uses the store that the fleet shares, and
  where none is named, or one that is a file of one machine, the jobs are refused.
- What a spec says can be read by whoever may look at the host: no password and no secret stands in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from detent.errors import UsageError
from detent.hosts.base import UnsupportedSchedule, refuse_unsupported
from detent.manifest.canonical import without_password
from detent.manifest.spec import Spec
from detent.model import Command, Request
from detent.schedules.timetable import Instants

HostSchedule = TypeVar("HostSchedule")


class StoreSource(NamedTuple):
    """Where the triggers find the name of their store."""

    from_host: bool  # the host gives it to them; no spec names it
    advice: str  # how to let the host give it to them


def check_shared(host: str, specs: Sequence[Spec], store: StoreSource) -> None:
    """One `UsageError` with all that cannot be so on this host."""
    told = [f"  {spec.name}: {why}" for spec in specs for why in _problems(spec, host, store)]
    if told:
        raise UsageError(f"{host} cannot have these jobs; nothing was changed:\n" + "\n".join(told))


def _problems(spec: Spec, host: str, store: StoreSource) -> Iterator[str]:
    document = json.loads(spec.text)
    if not store.from_host:
        yield from _store_problems(store_url(document), store.advice)
    if isinstance(spec.job.work, Request) and any(
        ref.startswith("raw:") for ref in spec.job.work.secret_refs
    ):
        yield "its secret stands in the job itself (raw:), and others can read that there; use env:NAME"
    if document["jobs"][0].get("run_on") == "every":
        yield f"`run_on: every` needs hosts that stay, and {host} has none: leave this job to `detent run`"


def _store_problems(url: str, advice: str) -> Iterator[str]:
    if not url:
        yield f"no store is named that all triggers share: name one with --store, or {advice}"
    elif url.startswith("sqlite:"):
        yield f"its store is a file of one machine ({url}): name one that is shared with --store, or {advice}"
    elif without_password(url) != url:
        yield f"the password of its store could be read by others there: {advice}"


def host_schedules(
    host: str, specs: Sequence[Spec], render: Callable[[Instants], list[HostSchedule]]
) -> list[tuple[Spec, list[HostSchedule]]]:
    """Each job with its rings, each once; all that the host cannot ring for is refused together."""
    found, unsupported = list[tuple[Spec, list[HostSchedule]]](), list[UnsupportedSchedule]()
    for spec in specs:
        made: list[HostSchedule] = []
        for time in spec.times:
            try:
                made += render(time.instants)
            except UsageError as error:
                unsupported.append(UnsupportedSchedule(spec.name, time.text, str(error)))
        found.append((spec, list(dict.fromkeys(made))))
    refuse_unsupported(host, unsupported)
    return found


def store_url(document: dict[str, Any]) -> str:
    return str(document.get("store", {}).get("url", ""))


def spec_document(spec: Spec, from_host: bool) -> dict[str, Any]:
    """What the spec says; without the store's name where the host gives that."""
    document: dict[str, Any] = json.loads(spec.text)
    if from_host and "store" in document:
        document["store"].pop("url", None)
        if not document["store"]:
            del document["store"]
    return document


def compact(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def user_warnings(specs: Sequence[Spec], host: str) -> Iterator[str]:
    """A trigger there is nobody who could become another user."""
    for spec in specs:
        if isinstance(spec.job.work, Command) and spec.job.work.user:
            yield f"{spec.name}: it cannot run as {spec.job.work.user} on {host}, where triggers are not root"
