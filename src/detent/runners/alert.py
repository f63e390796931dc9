"""Sends alerts with Apprise, which is imported when the first alert is sent or checked.

An error text contains neither the address nor a secret of it.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from detent import clock
from detent.errors import UsageError
from detent.manifest.alerts import AlertText, address_secrets, service_of
from detent.manifest.placeholders import split_text
from detent.manifest.secret_refs import display_ref
from detent.messages.masking import Mask
from detent.model import Alert, End, Outcome
from detent.rules.outcomes import no_secret
from detent.runners.secrets import resolve
from detent.text import did_you_mean

INSTALL = "pip install 'detent[alerts]'"
REASON_MAX = 500  # characters
_PROTOCOLS = ("protocols", "secure_protocols")


def send_alert(alert: Alert, text: AlertText, secrets: Mapping[str, str], env: Mapping[str, str]) -> End:
    """Send this text to the address of the alert, and return how that ended."""
    began, parts = clock.monotonic(), split_text(alert.address)
    for i in range(1, len(parts), 2):
        found = resolve([parts[i]], secrets, env, least=1).secrets
        if not found:
            return End(no_secret(display_ref(parts[i])))
        parts[i] = found[0].key().decode()
    address = "".join(parts)
    try:
        reason = _notify(address, text)
    except UsageError as error:
        reason = str(error)
    except Exception as error:  # a plugin may raise anything
        reason = f"{type(error).__name__}: {error}"
    masked = Mask([*address_secrets(address), *parts[1::2]]).text(reason)[:REASON_MAX]
    return End(
        Outcome("failed", masked) if reason else Outcome("succeeded"), took_s=clock.monotonic() - began
    )


def _notify(address: str, text: AlertText) -> str:
    """Return what went wrong, or ""."""
    apprise = _apprise()
    with _warnings() as said:
        service = apprise.Apprise.instantiate(address)
        if service is None:
            raise UsageError("; ".join(service_fault(address)))
        is_sent = service.notify(
            body=text.body,
            title=text.title,
            notify_type=apprise.NotifyType(text.level),
            body_format=apprise.NotifyFormat.TEXT,
        )
    return "" if is_sent else " ".join(said) or f"{service_of(address)} did not accept the alert"


@lru_cache(maxsize=1000)
def service_fault(address: str) -> tuple[str, str]:
    """Return what is wrong with an address, without showing it, and advice; two empty texts if it is valid.
    References to secrets are resolved only when an alert is sent, so the rest of such an address is not
    checked."""
    try:
        apprise = _apprise()
    except UsageError as error:
        return str(error), INSTALL
    with _warnings():
        if len(split_text(address)) > 1 or apprise.Apprise.instantiate(address) is not None:
            return "", ""
    service = service_of(address)
    pages = _pages(apprise)
    if service in pages:
        return f"this is not a valid address of {service}", f"see {pages[service]}"
    near = did_you_mean(service, pages).removeprefix("; ")
    return f"Apprise knows no service {service}", near or "see https://github.com/caronc/apprise"


def _pages(apprise: Any) -> dict[str, str]:
    """Return the services that Apprise knows, and where they are documented."""
    found = apprise.Apprise().details()["schemas"]
    return {name: one["setup_url"] for one in found for kind in _PROTOCOLS for name in one[kind] or ()}


def _apprise() -> Any:
    try:
        import apprise
    except ModuleNotFoundError:
        raise UsageError("alerts need Apprise, which is not installed") from None
    return apprise


class _Kept(logging.Handler):
    """Keeps the warnings of one thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.texts.append(re.sub(r"\s+", " ", record.getMessage()))


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect what Apprise logs: its calls only return whether they succeeded."""
    log, kept = logging.getLogger("apprise"), _Kept()
    log.addHandler(kept)
    try:
        yield kept.texts
    finally:
        log.removeHandler(kept)
