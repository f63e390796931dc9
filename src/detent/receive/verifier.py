"""Checks that a request was signed with one of the receiver's secrets, for the path it was sent to.

The caller signed the path it sent.  A proxy or a mount point may have changed that path since, so the path of
the job's URL in the manifest is accepted too.
"""

import logging
import os
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from detent import clock
from detent.manifest.secret_refs import Secret
from detent.messages.signing import Identity, SignatureMismatch, SignedRequest, verify
from detent.receive.messages import Incoming, Refusal
from detent.runners.secrets import resolve

log = logging.getLogger("detent.receive")


class Verifier:
    def __init__(self, base_url: str, refs: Sequence[str], window_s: float) -> None:
        self._base_path = urlsplit(base_url).path
        self._refs, self._window_s = tuple(refs), window_s
        self._warned: set[str] = set()

    def below(self, path: str) -> str:
        """Remove the path of the base URL, unless a proxy has removed it already."""
        base = unquote(self._base_path)
        return path.removeprefix(base) if base and path.startswith(f"{base}/") else path

    def verify(self, incoming: Incoming, below: str, identity: Identity | None = None) -> int:
        """Return the index of the secret that signed the request with this identity, or raise
        `SignatureError`."""
        found = self._secrets()
        if not found:
            raise Refusal(
                "NoSecret", "none of this receiver's secrets can be found: its own log says where it looked"
            )
        _, mark, query = incoming.target.partition("?")
        declared = f"{self._base_path}{below}{mark}{query}"
        header, secrets = incoming.headers.get("x-cron-signature"), list(found.values())
        message = SignedRequest(incoming.method, incoming.target, incoming.body or b"", identity)
        try:
            index = verify(header, message, secrets, clock.now(), self._window_s)
        except SignatureMismatch:
            if declared == incoming.target:
                raise
            message = message._replace(path=declared)
            index = verify(header, message, secrets, clock.now(), self._window_s)
        return list(found)[index]

    def _secrets(self) -> dict[int, Secret]:
        """Resolve the secrets for each request, so that a rotated secret counts at once.  Each warning is
        logged once."""
        found: dict[int, Secret] = {}
        for index, ref in enumerate(self._refs):
            resolved = resolve((ref,), {}, os.environ)
            found.update((index, secret) for secret in resolved.secrets)
            for warning in resolved.warnings:
                if warning not in self._warned:
                    log.warning("%s", warning)
                    self._warned.add(warning)
        return found
