"""What an alert that cannot be sent says, and that no plugin holds it up."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.equipment.mail_server import MailServer

from detent.manifest.alerts import AlertText, make_alert
from detent.model import End, Outcome
from detent.runners import alert

SECRET = "s3cretpassw0rd"
STOPPED = Outcome("lost", "shutdown", "shutdown")


def send(address: str) -> End:
    return alert.send_alert(make_alert(address), AlertText("title", "body", "info"), {}, {})


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (f"json://robot:{SECRET}@127.0.0.1:9/x", "127.0.0.1: Failed to establish a new connection: [Errno"),
        (f"json://robot:{SECRET}@nosuch.invalid/x", "Failed to resolve 'nosuch.invalid' ([Errno -2] Name"),
        (f"mailto://robot:{SECRET}@127.0.0.1:9?from=a@example.com&to=b@example.com", "Connection refused"),
    ],
)
def test_the_reason_has_its_cause_and_no_secret(address: str, said: str) -> None:
    reason = send(address).outcome.reason
    assert said in reason and SECRET not in reason and "(Caused by" not in reason


def test_a_mail_server_that_refuses_the_login_is_told_from_one_that_is_away() -> None:
    server = MailServer()
    try:
        end = send(f"mailto://robot:{SECRET}@127.0.0.1:{server.port}?from=a@example.com&to=b@example.com")
    finally:
        server.close()
    assert "SMTP AUTH extension not supported" in end.outcome.reason


def test_apprise_logs_nothing_of_an_alert_and_what_it_logs_otherwise_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)  # as an app with a node may have it
    send(f"json://robot:{SECRET}@127.0.0.1:9/x")
    assert [record for record in caplog.records if record.name == "apprise"] == []
    logging.getLogger("apprise").debug("of the app")
    assert "of the app" in caplog.messages


def test_a_service_that_never_answers_is_given_up(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert, "SEND_MAX_S", 0.2)
    end = send(f"mailto://127.0.0.1:{silent}?from=a@example.com&to=b@example.com")
    assert end.outcome == Outcome("failed", "mailto did not answer within 0.2 s")


def test_an_attempt_that_has_to_end_does_not_wait_for_the_service(silent: int) -> None:
    asked, began = threading.Event(), time.monotonic()
    hook = make_alert(f"mailto://127.0.0.1:{silent}?from=a@example.com&to=b@example.com")
    threading.Timer(0.2, asked.set).start()
    stopped = lambda: STOPPED if asked.is_set() else None  # noqa: E731
    end = alert.send_alert(hook, AlertText("title", "body", "info"), {}, {}, stopped)
    assert end.outcome == STOPPED and time.monotonic() - began < alert.SEND_MAX_S / 2
