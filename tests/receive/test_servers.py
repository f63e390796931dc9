"""The receiver in real servers: requests of detent's own runner arrive unchanged."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest
from tests.receive.receive_world import SECRET, Server, claim_of, fire, incoming, runs, serving

from detent.model import Outcome
from detent.receive import Incoming

BELOW = {"mounted": "/tasks", "gunicorn": "/tasks", "django-asgi": "/tasks"}  # what it is mounted under
KINDS = ["uvicorn", "mounted", "around", "waitress", "wsgiref", "gunicorn", "django-wsgi", "django-asgi"]
NOT_RAW = ("wsgiref",)  # it passes only the decoded path
NOT_CHUNKED = ("wsgiref",)
BODY_MAX = 100_000


class App:
    """A receiver in a server, and where its jobs leave notes."""

    def __init__(self, kind: str, server: Server, folder: Path) -> None:
        self.kind, self.server, self.folder = kind, server, folder
        self.url = server.url + BELOW.get(kind, "")

    def ask(self, sent: Incoming, *, is_chunked: bool = False) -> tuple[int, bytes]:
        """Exactly these bytes; answers with the status and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        target = BELOW.get(self.kind, "") + sent.target
        try:
            body = iter([sent.body[:7], sent.body[7:]]) if is_chunked and sent.body else sent.body
            connection.request(sent.method, target, body, dict(sent.headers), encode_chunked=is_chunked)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def signed(self, method: str, target: str, body: bytes = b"", **headers: str) -> Incoming:
        """A fire that was signed for where this app is."""
        below = BELOW.get(self.kind, "")
        sent = incoming(method, below + target, body, headers=headers)
        return sent._replace(target=target)


def check_a_fire_runs_its_job_with_the_values_of_the_request(app: App) -> None:
    end = fire(f"{app.url}/cron/note?x=%20&y=a+b", claim=claim_of(key="k-1", attempt=2), body="grün")
    assert end.outcome == Outcome("succeeded")
    assert json.loads(end.tail)["secret"] == 1  # the first one is not there
    assert runs(app.folder).count("k-1 2 7") == 1


def check_an_async_job_is_awaited(app: App) -> None:
    end = fire(f"{app.url}/cron/waits", claim=claim_of("waits", key="k-2"))
    assert (end.outcome, end.tail) == (Outcome("succeeded"), b"attempt 1")


def check_a_job_that_fails_is_to_be_tried_again_and_one_that_rejects_is_not(app: App) -> None:
    failed, rejected = fire(f"{app.url}/cron/broken"), fire(f"{app.url}/cron/no")
    assert failed.outcome == Outcome("failed", "HTTP 500") and b"ValueError" in failed.tail
    assert rejected.outcome == Outcome("rejected", "HTTP 410") and b"not today" in rejected.tail
    assert SECRET.encode() not in failed.tail


def check_a_body_arrives_byte_for_byte(app: App) -> None:
    body = bytes(range(256)) * 20
    assert app.ask(app.signed("PUT", "/cron/echo", body)) == (200, body)
    form = app.signed(
        "PUT", "/cron/echo", b"a=1&b=%zz", **{"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert app.ask(form) == (200, b"a=1&b=%zz")
    if app.kind not in NOT_CHUNKED:
        chunked = app.signed("PUT", "/cron/echo", body, **{"Transfer-Encoding": "chunked"})
        assert app.ask(chunked, is_chunked=True) == (200, body)


def check_a_body_that_is_too_large_is_refused(app: App) -> None:
    status, said = app.ask(app.signed("PUT", "/cron/echo", b"x" * (BODY_MAX + 1)))
    assert (status, json.loads(said)["error"]) == (413, "BodyTooLarge")
    assert app.ask(app.signed("PUT", "/cron/echo", b"x" * BODY_MAX))[0] == 200


def check_a_path_is_verified_as_it_was_sent(app: App) -> None:
    status, _ = app.ask(app.signed("PUT", "/cron/%65cho?a=%2F&b=%zz&c=ü".encode("ascii", "ignore").decode()))
    assert status == (401 if app.kind in NOT_RAW else 200)
    changed = app.signed("PUT", "/cron/echo?a=1")._replace(target="/cron/echo?a=2")
    assert app.ask(changed)[0] == 401


def check_a_refusal_is_reported_by_name(app: App) -> None:
    refused = {
        "MissingSignature": (401, Incoming("POST", "/cron/note", "", {})),
        "UnknownJob": (404, app.signed("POST", "/cron/nothing")),
        "BadMethod": (400, app.signed("GET", "/cron/note")),
        "BadFire": (400, app.signed("POST", "/cron/note", **{"X-Cron-Attempt": "none"})),
    }
    for name, (status, sent) in refused.items():
        answered, said = app.ask(sent)
        assert (answered, json.loads(said)["error"]) == (status, name)


def check_a_captured_request_runs_under_no_other_key_or_fence(app: App) -> None:
    captured = app.signed("POST", "/cron/note", **{"Idempotency-Key": "k-captured"})
    for name, value in {"idempotency-key": "k-forged", "x-cron-fence": str(2**53 - 1)}.items():
        status, said = app.ask(captured._replace(headers={**captured.headers, name: value}))
        assert (status, json.loads(said)["error"]) == (401, "SignatureMismatch")
    assert app.ask(captured)[0] == 200
    assert [line for line in runs(app.folder) if line.startswith(("k-captured", "k-forged"))] == [
        "k-captured 1 7"
    ]


def check_the_manifest_is_served_and_names_where_the_jobs_are(app: App) -> None:
    status, said = app.ask(Incoming("GET", "/.well-known/cron-manifest", "", {}))
    urls = {job["name"]: job["request"]["url"] for job in json.loads(said)["jobs"]}
    assert status == 200 and urls["note"] == f"{app.url}/cron/note"
    assert fire(urls["note"]).outcome == Outcome("succeeded")


def check_what_is_not_ours_goes_elsewhere(app: App) -> None:
    status, said = app.ask(Incoming("GET", "/", "", {}))
    if app.kind == "around":
        assert (status, said) == (200, b"another app")
    else:
        assert status == 404


CHECKS = [check for name, check in list(globals().items()) if name.startswith("check_")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fire_arrives_unchanged_in_every_server(kind: str, tmp_path: Path) -> None:
    """One test per server, because its start takes longer than all checks above."""
    below = BELOW.get(kind, "")
    env = {"BELOW": f"{below}/" if kind.startswith("django") else below, "BODY_MAX": str(BODY_MAX)}
    with serving([kind], tmp_path, below=below, **env) as (server,):
        for check in CHECKS:
            check(App(kind, server, tmp_path))
    assert len(CHECKS) == 10
