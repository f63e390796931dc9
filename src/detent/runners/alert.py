"""Sends alerts with Apprise, which is imported when the first alert is sent or checked.

- An error text contains neither the address nor a secret of it.
- A plugin of Apprise may hang, and a thread cannot be killed.  So it runs in a daemon thread, which is
  abandoned after `SEND_MAX_S`, or when the attempt has to end.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
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
SEND_MAX_S = 20.0  # below `drain_seconds`: a node that stops waits for an alert, but not for a dead service
LOOK_S = 0.1  # between two looks whether the attempt has to end
APPRISE = "apprise"  # the name of its logger
CAUSE = re.compile(  # without what requests and urllib3 put around it
    r"(?:Socket|I/O) Exception: (?:.*\(Caused by .*?\): |\w+Pool\(.*?\): )?(.+?)(?:[\"']\)\))?$"
)
_PROTOCOLS = ("protocols", "secure_protocols")


def send_alert(
    alert: Alert,
    text: AlertText,
    secrets: Mapping[str, str],
    env: Mapping[str, str],
    stopped: Callable[[], Outcome | None] = lambda: None,
) -> End:
    """Send this text to the address of the alert, and return how that ended.  `stopped` returns why the
    attempt has to end now."""
    began, parts = clock.monotonic(), split_text(alert.address)
    for i in range(1, len(parts), 2):
        found = resolve([parts[i]], secrets, env, least=1).secrets
        if not found:
            return End(no_secret(display_ref(parts[i])))
        parts[i] = found[0].key().decode()
    address = "".join(parts)
    sent: SimpleQueue[str] = SimpleQueue()
    threading.Thread(
        target=lambda: sent.put(_try_to_notify(address, text)), name="detent-send", daemon=True
    ).start()
    outcome = _outcome(sent, service_of(address), stopped)
    reason = Mask([*address_secrets(address), *parts[1::2]]).text(outcome.reason)[:REASON_MAX]
    return End(outcome._replace(reason=reason), took_s=clock.monotonic() - began)


def _outcome(sent: SimpleQueue[str], service: str, stopped: Callable[[], Outcome | None]) -> Outcome:
    give_up_at = clock.monotonic() + SEND_MAX_S
    while clock.monotonic() < give_up_at:
        with suppress(Empty):
            reason = sent.get(timeout=LOOK_S)
            return Outcome("failed", reason) if reason else Outcome("succeeded")
        if why := stopped():
            return why
    return Outcome("failed", f"{service} did not answer within {SEND_MAX_S:g} s")


def _try_to_notify(address: str, text: AlertText) -> str:
    """Return what went wrong, or ""."""
    try:
        return _notify(address, text)
    except UsageError as error:
        return str(error)
    except Exception as error:  # a plugin may raise anything
        return f"{type(error).__name__}: {error}"


def _notify(address: str, text: AlertText) -> str:
    apprise = _apprise()
    with _messages().collected() as said:
        service = apprise.Apprise.instantiate(address)
        if service is None:
            raise UsageError("; ".join(service_fault(address)))
        is_sent = service.notify(
            body=text.body,
            title=text.title,
            notify_type=apprise.NotifyType(text.level),
            body_format=apprise.NotifyFormat.TEXT,
        )
    why = ": ".join(text.rstrip(".") for text in said)
    return "" if is_sent else why or f"{service_of(address)} did not accept the alert"


@lru_cache(maxsize=1000)
def service_fault(address: str) -> tuple[str, str]:
    """Return what is wrong with an address, without showing it, and advice; two empty texts if it is valid.
    References to secrets are resolved only when an alert is sent, so the rest of such an address is not
    checked."""
    try:
        apprise = _apprise()
    except UsageError as error:
        return str(error), INSTALL
    with _messages().collected():
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


class _Messages(logging.Filter):
    """Collects what Apprise logs in a thread, instead of logging it.  It may have secrets, and so may the
    requests that urllib3 logs.  The cause of a warning is on the debug level."""

    def __init__(self) -> None:
        super().__init__()
        self._by_thread = threading.local()

    @contextmanager
    def collected(self) -> Iterator[list[str]]:
        self._by_thread.texts = texts = list[str]()
        try:
            yield texts
        finally:
            del self._by_thread.texts

    def filter(self, record: logging.LogRecord) -> bool:
        texts: list[str] | None = getattr(self._by_thread, "texts", None)
        if texts is None:  # the user's own use of Apprise
            return record.name != APPRISE or record.levelno >= logging.getLogger().getEffectiveLevel()
        text = re.sub(r"\s+", " ", record.getMessage())
        if record.name != APPRISE:
            return False
        if record.levelno >= logging.WARNING:
            texts.append(text)
        elif (match := CAUSE.match(text)) and "url" not in match[1].lower():
            texts.append(match[1])
        return False


@lru_cache
def _messages() -> _Messages:
    """Apprise's calls only return whether they succeeded; their log says why not."""
    messages = _Messages()
    logging.getLogger(APPRISE).setLevel(logging.DEBUG)
    for name in (APPRISE, "urllib3.connectionpool"):
        logging.getLogger(name).addFilter(messages)
    return messages
