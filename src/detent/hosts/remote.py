"""Jobs on remote hosts: Kubernetes and EventBridge, whose triggers have no lasting machine.

Every trigger uses the shared store of the fleet, whatever `concurrency_scope` is; jobs without such a store
are refused.  Others may be able to read a spec there, so it contains no password and no secret.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from detent.errors import UsageError
from detent.manifest.alerts import has_secret
from detent.manifest.canonical import without_password
from detent.manifest.spec import Spec
from detent.model import Alert, Command, Request


def check_shared(host: str, specs: Sequence[Spec], advice: str) -> None:
    """Raise one `UsageError` with everything that this host does not support.  `advice` says how to let the
    host supply the store's URL; it is empty if the host does, so that specs do not contain the URL."""
    lines = [f"  {spec.name}: {why}" for spec in specs for why in _problems(spec, host, advice)]
    if lines:
        raise UsageError(f"{host} cannot run these jobs; nothing was changed:\n" + "\n".join(lines))


def _problems(spec: Spec, host: str, advice: str) -> Iterator[str]:
    document = json.loads(spec.text)
    url = store_url(document)
    if advice and not url:
        yield f"no shared store is configured: name one with --store, or {advice}"
    elif advice and url.startswith("sqlite:"):
        yield f"its store is a file of one machine ({url}): name a shared one with --store, or {advice}"
    elif advice and without_password(url) != url:
        yield f"others could read the password of its store there: {advice}"
    work = spec.job.work
    if isinstance(work, Request) and any(ref.startswith("raw:") for ref in work.secret_refs):
        yield "the job contains its secret (raw:), which others can read there; use env:NAME"
    alerts = [hook for hook in spec.job.hooks.values() if isinstance(hook, Alert)]
    if any(has_secret(alert.address) for alert in alerts):
        yield "the address of an alert contains a secret, which others can read there; use {{env:NAME}} in it"
    if document["jobs"][0].get("run_on") == "every":
        yield f"`run_on: every` needs lasting hosts, and {host} has none: use `detent run` for this job"


def store_url(document: dict[str, Any]) -> str:
    return str(document.get("store", {}).get("url", ""))


def spec_document(spec: Spec, from_host: bool) -> dict[str, Any]:
    """Return the document of a spec, without the store's URL if the host supplies it."""
    document: dict[str, Any] = json.loads(spec.text)
    if from_host and "store" in document:
        document["store"].pop("url", None)
        if not document["store"]:
            del document["store"]
    return document


def compact(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def user_warnings(specs: Sequence[Spec], host: str) -> Iterator[str]:
    """Warn about jobs with a user: triggers there are not root, so they cannot switch to it."""
    for spec in specs:
        if isinstance(spec.job.work, Command) and spec.job.work.user:
            yield f"{spec.name}: it cannot run as {spec.job.work.user} on {host}, where triggers are not root"
