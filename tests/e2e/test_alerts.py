"""Alerts and pings, from the end of a fire to a mail server or a web server."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.equipment.fleet import NEVER, Fleet, NodeProcess, wait_for
from tests.equipment.mail_server import MailServer
from tests.equipment.receiver import Receiver

from detent.model import Row
from detent.runners.alert import SEND_MAX_S

SECRET = "s3cretpassw0rd"


@pytest.fixture
def mail() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


def json_address(receiver: Receiver) -> str:
    return receiver.url.replace("http://", "json://")


def job(fleet: Fleet, **fields: object) -> dict[str, object]:
    """A job that fails while its file exists."""
    (fleet.directory / "broken").touch()
    command = f"echo no space left; test ! -e {fleet.directory / 'broken'}"
    return {"name": "job", "schedule": NEVER, "command": command, **fields}


def end(fleet: Fleet, is_broken: bool = True) -> Row:
    """Fire the job, and wait for its end and the end of its hooks."""
    (fleet.directory / "broken").touch() if is_broken else (fleet.directory / "broken").unlink(
        missing_ok=True
    )
    row = fleet.wait_over(fleet.fire("job"))
    wait_for(lambda: not fleet.find(origins=("hook",), state="pending"), what="the claim of hooks")
    wait_for(lambda: not fleet.find(origins=("hook",), state="claimed"), what="the end of hooks")
    return row


def test_a_failure_is_mailed_with_what_happened(fleet: Fleet, mail: MailServer) -> None:
    address = f"mailto://127.0.0.1:{mail.port}?from=detent@example.com&to=ops@example.com"
    fleet.write(job(fleet, on_failure=address), dashboard_url="https://ops.example.com")
    fleet.start()
    row = end(fleet)
    (sent,) = mail.mails
    assert (sent["Subject"], sent["To"]) == ("t.job: failed", "ops@example.com")
    parts = [part for part in sent.walk() if part.get_content_type() == "text/plain"]
    text = "\n".join(part.get_payload(decode=True).decode() for part in parts) or str(sent)
    for part in (row.fire.key, "exit 1", "no space left", "https://ops.example.com/fires/t.job@"):
        assert part in text


def test_a_job_that_keeps_failing_on_two_nodes_alerts_once_and_once_more_when_it_recovers(
    fleet: Fleet, receiver: Receiver
) -> None:
    fleet.write(job(fleet, on_failure=json_address(receiver), policy={"concurrency": "Allow"}))
    fleet.start()
    fleet.start()
    keys = [fleet.fire("job") for _ in range(8)]
    for key in keys:
        assert fleet.wait_over(key).outcome
    end(fleet)
    assert [one["title"] for one in receiver.alerts] == ["t.job: failed"]
    for node in fleet.nodes:
        node.kill()
    fleet.start()
    end(fleet)
    assert len(receiver.alerts) == 1, "another node knows that the alert was sent"
    end(fleet, is_broken=False)
    end(fleet, is_broken=False)
    assert [(one["title"], one["type"]) for one in receiver.alerts] == [
        ("t.job: failed", "failure"),
        ("t.job: recovered", "success"),
    ]
    assert "Failed: 10 times since" in receiver.alerts[1]["message"]


def test_an_alert_has_the_text_of_its_template_and_a_secret_by_reference(
    fleet: Fleet, receiver: Receiver
) -> None:
    alert = {"to": "{{ops}}", "title": "{{job}} {{state}}", "body": "{{reason}}: {{output_tail}}"}
    fleet.write(job(fleet, on_failure=alert), secrets={"ops": "env:OPS"})
    fleet.start(OPS=json_address(receiver))
    end(fleet)
    assert [(one["title"], one["message"]) for one in receiver.alerts] == [
        ("job began", "exit 1: no space left")
    ]


def test_a_dead_mail_server_disturbs_nothing_but_its_hook(fleet: Fleet) -> None:
    address = f"mailto://robot:{SECRET}@127.0.0.1:9?from=detent@example.com&to=ops@example.com"
    command = f"echo '{address}'; exit 3"
    fleet.write({"name": "job", "schedule": NEVER, "command": command, "on_failure": address})
    node = fleet.start()
    row = fleet.wait_over(fleet.fire("job"))
    assert row.outcome and (row.outcome.kind, row.outcome.reason) == ("failed", "exit 3")
    failed = node.wait("hook-failed")
    assert "127.0.0.1" in failed["reason"] and failed["again_in_s"] > 0, "an alert is retried"
    hook = fleet.find(origins=("hook",))[0]
    assert hook.state == "pending" and hook.fire.key.partition("/")[2].startswith("on_failure.mailto-")
    assert node.end() == 0
    kept = [path for path in fleet.directory.rglob("*") if path.is_file() and path != fleet.file]
    assert [path for path in kept if SECRET.encode() in path.read_bytes()] == []
    assert b"***" in fleet.row(row.fire.key).attempts[0].tail


def test_an_alert_whose_node_is_killed_while_it_sends_is_sent_by_the_next_node(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        fleet.write(job(fleet, on_failure=f"mailto://127.0.0.1:{port}?from=a@example.com&to=b@example.com"))
        node = fleet.start()
        fleet.fire("job")
        with silent.accept()[0]:
            node.kill()
    mail = MailServer(port)
    try:
        fleet.start()
        assert wait_for(lambda: mail.mails)[0]["Subject"] == "t.job: failed"
    finally:
        mail.close()


def test_a_service_that_never_answers_does_not_hold_up_the_end_of_a_node(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"mailto://127.0.0.1:{silent.getsockname()[1]}?from=a@example.com&to=b@example.com"
        fleet.write(job(fleet, on_failure=address), node={"drain_seconds": 0})
        node = fleet.start()
        fleet.fire("job")
        with silent.accept()[0]:
            node.send(signal.SIGTERM)
            assert node.process.wait(SEND_MAX_S / 2) == 0, "long before Apprise gives up"


def test_a_ping_reports_start_and_success_or_failure(fleet: Fleet, receiver: Receiver) -> None:
    may_end = fleet.directory / "may-end"
    command = f"while test ! -e {may_end}; do sleep 0.05; done; test ! -e {fleet.directory / 'broken'}"
    fleet.write({"name": "job", "schedule": NEVER, "command": command, "ping": f"{receiver.url}/{{{{job}}}}"})
    node = fleet.start()
    _run_pinged(fleet, receiver, node, may_end)
    assert [one.path for one in receiver.received] == ["/job/start", "/job"]
    assert json.loads(receiver.received[1].body)["outcome"] == "succeeded"
    may_end.unlink()
    (fleet.directory / "broken").touch()
    _run_pinged(fleet, receiver, node, may_end)
    assert [one.path for one in receiver.received] == ["/job/start", "/job", "/job/start", "/job/fail"]


def _run_pinged(fleet: Fleet, receiver: Receiver, node: NodeProcess, may_end: Path) -> None:
    """Let the job end when the ping of its start has been recorded."""
    before, key = len(receiver.received), fleet.fire("job")
    wait_for(lambda: len(receiver.received) > before, what="the ping of the start")
    fleet.wait_over(f"{key}/on_start.ping")
    may_end.touch()
    wait_for(lambda: len(receiver.received) > before + 1, what="the ping of the end")
