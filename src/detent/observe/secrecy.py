"""Keeps the secrets of a node out of its log and its store."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from detent.manifest.alerts import address_secrets
from detent.manifest.check import Manifest
from detent.manifest.secret_refs import Secret, refs_of
from detent.messages.masking import Mask
from detent.model import Alert, Ask, Fire, Grants, Report, Verdict
from detent.runners.secrets import resolve
from detent.stores.base import Store


def learn_on_load(load: Callable[[], Manifest], mask: Mask, env: Mapping[str, str]) -> Callable[[], Manifest]:
    """Wrap a loader of manifests: the mask learns the secrets of each manifest that it loads."""

    def load_and_learn() -> Manifest:
        manifest = load()
        mask.learn(secrets_of(manifest, env))
        return manifest

    return load_and_learn


def secrets_of(manifest: Manifest, env: Mapping[str, str]) -> list[Secret | str]:
    """The secrets of its requests, messages and alerts, and the passwords in the URLs of stores."""
    refs = [*refs_of(manifest.jobs), *manifest.secrets]
    found: list[Secret | str] = [*resolve(refs, manifest.secrets, env, least=1).secrets]
    alerts = [hook for job in manifest.jobs for hook in job.hooks.values() if isinstance(hook, Alert)]
    found += [part for alert in alerts for part in address_secrets(alert.address)]
    return [*found, *password_of(manifest.store.url), *password_of(env.get("DETENT_STORE", ""))]


def password_of(url: str) -> list[str]:
    """The password in a URL, if there is one."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return []
    return [unquote(password)] if password else []


def masking_store(store: Store, mask: Mask) -> Store:
    """Wrap a store: secrets in the output, results and reasons of work are masked before they are stored."""
    return cast("Store", _MaskingStore(store, mask))


class _MaskingStore:
    def __init__(self, store: Store, mask: Mask) -> None:
        self._store, self._mask = store, mask

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        return self._store.finish([mask_report(self._mask, report) for report in reports])

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        return self._store.finish_and_claim([mask_report(self._mask, report) for report in reports], ask)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def mask_report(mask: Mask, report: Report) -> Report:
    reason = report.verdict.outcome.reason
    if reason and mask.knows(reason):
        outcome = report.verdict.outcome._replace(reason=mask.text(reason))
        report = report._replace(verdict=report.verdict._replace(outcome=outcome))
    if report.tail:
        report = report._replace(tail=mask.output(report.tail))
    if report.result:
        report = report._replace(result=mask.result(report.result))
    if report.follow:
        report = report._replace(follow=tuple(_hook(mask, fire) for fire in report.follow))
    return report


def _hook(mask: Mask, fire: Fire) -> Fire:
    """Mask what a hook is sent; the payload of a message is signed, and stays as it is."""
    if fire.origin != "hook" or not mask.knows(fire.payload):
        return fire
    return fire._replace(payload=mask.output(fire.payload.encode()).decode())
