"""The secrets that a node knows of, so that its log can leave them out wherever they turn up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

from detent.core.manifest import Manifest
from detent.core.masking import Mask
from detent.core.secrets import Secret
from detent.model import Push, Request
from detent.runners.secrets import resolve


def learning(load: Callable[[], Manifest], mask: Mask, env: Mapping[str, str]) -> Callable[[], Manifest]:
    """Loads a manifest, and has the mask learn its secrets: again whenever that is loaded again."""

    def load_and_learn() -> Manifest:
        manifest = load()
        mask.learn(secrets_of(manifest, env))
        return manifest

    return load_and_learn


def secrets_of(manifest: Manifest, env: Mapping[str, str]) -> list[Secret | str]:
    """All that it refers to, and the passwords in the URLs of stores."""
    works = (work for job in manifest.jobs for work in (job.work, *job.hooks.values()))
    refs = {ref for work in works if isinstance(work, Request | Push) for ref in work.secret_refs}
    found = resolve([*refs, *manifest.secrets], manifest.secrets, env).secrets
    return [*found, *password_of(manifest.store.url), *password_of(env.get("DETENT_STORE", ""))]


def password_of(url: str) -> list[str]:
    """The password in a URL; none where it has none, or is none."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return []
    return [unquote(password)] if password else []
