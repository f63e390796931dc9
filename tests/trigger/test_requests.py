"""Requests of a trigger: each attempt is signed again, each server behaviour has its outcome, no secret
leaks."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from standardwebhooks import Webhook
from tests.equipment.redis_server import free_port
from tests.equipment.wall_clock import WallClock
from tests.runners.http_servers import Served, answering, answering_tls, heard, make_certificate, trickling
from tests.runners.http_servers import serving as serving_script
from tests.trigger.trigger_world import App, Asked, Host, minute, serving

from detent.clock import instant
from detent.manifest.secret_refs import Secret
from detent.messages.signing import SignedRequest, verify
from detent.receive.fire import identity_of

SECRET = "s3cr3t-in-no-output"
ONCE = {"timeout_seconds": 3, "retries": {"max_attempts": 1}}
BIG = b"x" * 2**20
HEAD = b"HTTP/1.1 200 OK\r\n"


def test_every_attempt_is_signed_again_also_after_the_signature_window(
    host: Host, wall_clock: WallClock
) -> None:
    """More than 300 s pass between the attempts, by the trigger's clock."""
    stamps: list[int] = []

    def answer(asked: Asked) -> tuple[int, bytes]:
        header = asked.headers["x-cron-signature"]
        stamps.append(int(header.partition("t=")[2].partition(",")[0]))
        message = SignedRequest("POST", asked.path, asked.body, identity_of(asked.headers))
        verify(header, message, [Secret(SECRET)], instant(stamps[-1]))
        wall_clock.set(wall_clock.ahead_s + 400.0)
        return (500 if len(stamps) == 1 else 200), b""

    with App(answer) as app:
        policy = {"retries": {"max_attempts": 2, "min_seconds": 0}}
        request = {"url": f"{app.url}/jobs/x?y=%20", "body": '{"a": 1}'}
        host.write("job", request=request, auth={"secret_refs": ["env:KEY"]}, policy=policy)
        said = host.trigger("job", "--due", minute(3), KEY=SECRET, **wall_clock.env)
    assert (said.code, len(stamps)) == (0, 2)
    assert stamps[1] - stamps[0] > 300


def test_standard_webhooks_are_verified_by_their_own_package(host: Host) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    with serving(200) as app:
        auth = {"scheme": "standard-webhooks", "secret_refs": ["env:KEY"]}
        headers = {"Webhook-Id": "forged", "Content-Type": "application/json"}
        host.write("job", request={"url": app.url, "body": '{"a":1}', "headers": headers}, auth=auth)
        assert host.trigger("job", "--due", minute(3), KEY=secret).code == 0
    [asked] = app.requests
    assert Webhook(secret).verify(asked.body, asked.headers) == {"a": 1}
    assert asked.headers["webhook-id"] == asked.headers["x-cron-run-id"]
    assert "x-cron-signature" not in asked.headers
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(secret).verify(b'{"a":2}', asked.headers)


def test_a_secret_that_is_no_base_64_is_explained_without_it(host: Host) -> None:
    with serving(200) as app:
        auth = {"scheme": "standard-webhooks", "secret_refs": ["env:KEY"]}
        host.write("job", request={"url": app.url}, auth=auth, policy=ONCE)
        said = host.trigger("job", "--due", minute(3), KEY="no base 64!")
    assert (said.code, app.requests) == (2, [])
    assert "base 64" in said.one("retries-exhausted")["reason"]
    assert "no base 64!" not in json.dumps(said.events)


@contextmanager
def slow_body() -> Iterator[Served]:
    def script(peer: object, over: object) -> None:
        heard(peer)  # type: ignore[arg-type]
        trickling(HEAD + b"Content-Length: 100000\r\n\r\n")(peer, over)  # type: ignore[arg-type]

    with serving_script(script) as served:  # type: ignore[arg-type]
        yield served


def closing(answer: bytes) -> Callable[[], object]:
    return lambda: answering(answer)


CASES: dict[str, tuple[Callable[[], object], int, str]] = {
    "429": (closing(b"HTTP/1.1 429 Slow down\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"), 1, "HTTP 429"),
    "a redirect": (
        closing(b"HTTP/1.1 307 There\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
        2,
        "redirects are not followed",
    ),
    "a truncated body": (closing(HEAD + b"Content-Length: 100\r\n\r\nhalf"), 2, "broke off"),
    "a slow body": (slow_body, 2, "while reading the answer"),
    "no HTTP": (closing(b"nonsense\r\n\r\n"), 2, "did not answer in HTTP"),
    "a big body": (closing(HEAD + b"Content-Length: %d\r\n\r\n" % len(BIG) + BIG), 0, ""),
    "no UTF-8": (closing(b"HTTP/1.1 400 No\r\nContent-Length: 3\r\n\r\n\xff\xfe\x00"), 1, "HTTP 400"),
}


@pytest.mark.parametrize("what", CASES)
def test_each_behaviour_of_the_server_has_its_outcome(host: Host, what: str) -> None:
    opens, code, reason = CASES[what]
    with opens() as served:  # type: ignore[attr-defined]
        host.write(
            "job", version=1, request={"url": served.url}, auth={"secret_refs": ["env:KEY"]}, policy=ONCE
        )
        said = host.trigger("job", "--due", minute(3), KEY=SECRET)
    assert said.code == code
    assert reason in str(said.events[-1].get("reason", ""))
    assert_secret_is_safe(host, said.events)


def test_a_server_with_an_untrusted_certificate_gets_no_request(host: Host, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    with answering_tls(certificate, HEAD + b"Content-Length: 0\r\n\r\n") as served:
        request = {"url": f"https://{served.place}/"}
        host.write("job", version=1, request=request, auth={"secret_refs": ["env:KEY"]}, policy=ONCE)
        said = host.trigger("job", "--due", minute(3), KEY=SECRET)
        assert said.code == 2 and "its certificate is refused" in said.one("retries-exhausted")["reason"]
        assert served.requests == []
        trusted = {"SSL_CERT_FILE": str(certificate), "KEY": SECRET}
        assert host.trigger("job", "--due", minute(4), **trusted).code == 0
    assert_secret_is_safe(host, said.events)


def test_an_unresolvable_host_name_fails_the_attempt(host: Host) -> None:
    host.write("job", version=1, request={"url": "http://no-such-host.invalid/"}, policy=ONCE)
    said = host.trigger("job", "--due", minute(3))
    assert (said.code, "no address found" in str(said.events[-1]["reason"])) == (2, True)


def test_a_header_cannot_be_injected(host: Host) -> None:
    with serving(200) as app:
        headers = {"X-A": "1\r\nX-Cron-Fence: 9"}
        host.write("job", version=1, request={"url": app.url, "headers": headers})
        said = host.trigger("job", "--due", minute(3))
        assert (said.code, app.requests) == (3, [])
        host.write("job", version=1, request={"url": app.url, "headers": {"x_cron_fence": "9", "X-B": "2"}})
        assert host.trigger("job", "--due", minute(3)).code == 0
    [asked] = app.requests
    assert (asked.headers["x-b"], int(asked.headers["x-cron-fence"]) > 9) == ("2", True)


def assert_secret_is_safe(host: Host, events: list[dict[str, object]]) -> None:
    assert SECRET not in json.dumps(events)
    for file in (*host.directory.rglob("*.db*"), *host.locks.rglob("*")):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


def test_a_span_for_the_fire_and_one_for_each_attempt_reach_a_collector(host: Host) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with serving(500, 200) as app, serving(200) as collector:
        host.write("job", request={"url": app.url}, policy={"retries": {"min_seconds": 0}})
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
        assert host.trigger("job", "--due", minute(3), "--otel", TRACEPARENT=parent, **otel).code == 0
    exported = ExportTraceServiceRequest()
    exported.ParseFromString(collector.requests[0].body)
    spans = [span for one in exported.resource_spans for scope in one.scope_spans for span in scope.spans]
    by_name = {span.name: span for span in spans}
    assert set(by_name) == {"fire t.job", "attempt 1", "attempt 2"}
    assert by_name["fire t.job"].parent_span_id.hex() == parent.split("-")[2]
    assert {span.trace_id.hex() for span in spans} == {parent.split("-")[1]}
    assert by_name["attempt 1"].parent_span_id == by_name["fire t.job"].span_id
    sent = [asked.headers["traceparent"].split("-")[2] for asked in app.requests]
    assert sent == [by_name[name].span_id.hex() for name in ("attempt 1", "attempt 2")]


def test_a_trigger_writes_its_spans_to_a_file(host: Host, tmp_path: Path) -> None:
    host.write("job", command='test "$TRACEPARENT"', policy=ONCE)
    spans = tmp_path / "spans"
    assert host.trigger("job", "--due", minute(3), f"--otel=file:{spans}").code == 0
    attempt, fire = map(json.loads, spans.read_text().splitlines())
    assert (attempt["name"], fire["name"]) == ("attempt 1", "fire t.job")
    assert attempt["parent_id"] == fire["context"]["span_id"] and fire["parent_id"] is None
    said = host.trigger("job", "--due", minute(4), "--otel=spans")
    assert (said.code, len(said.plain)) == (3, 1) and 'bad value "spans" of --otel' in said.plain[0]


@contextmanager
def black_hole() -> Iterator[str]:
    """A collector that reads requests and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def no_collector() -> Iterator[str]:
    yield f"http://127.0.0.1:{free_port()}"


@contextmanager
def refusing() -> Iterator[str]:
    with serving(500) as app:
        yield app.url


@pytest.mark.parametrize(
    ("collector", "command", "code"),
    [(black_hole, "false", 2), (no_collector, "true", 0), (refusing, "true", 0)],
)
def test_a_collector_that_is_away_is_one_warning_and_changes_no_exit_code(
    host: Host, collector: Callable[[], AbstractContextManager[str]], command: str, code: int
) -> None:
    host.write("job", command=command, policy=ONCE)
    with collector() as url:
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
        process = host.start("job", "--due", minute(3), "--otel", **otel)
        said = process.over()  # which does not wait for ever
    assert (said.code, said.names.count("traces-unsent"), said.plain) == (code, 1, [])
    assert said.one("traces-unsent")["level"] == "WARN" and said.names[-1] == "traces-unsent"
    [row] = host.find(key=f"t.job@{said.events[0]['fire'].partition('@')[2]}")
    assert row.state == "over"


def test_a_trigger_needs_no_yaml_and_no_store_driver(host: Host, tmp_path: Path) -> None:
    """The modules are made unavailable: a trigger reads only a JSON spec."""
    for name in ("yaml", "redis", "rich", "asyncio"):
        (tmp_path / "none").mkdir(exist_ok=True)
        (tmp_path / "none" / f"{name}.py").write_text("raise ImportError('not here')")
    shutil.rmtree(host.locks, ignore_errors=True)
    host.write("job", command="true")
    path = f"{tmp_path / 'none'}:{host.env['PYTHONPATH']}"
    assert host.trigger("job", "--due", minute(3), PYTHONPATH=path).code == 0
