"""Where manifests come from: files of a directory, and apps that serve their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.runners.http_servers import answering, serving, trickling
from tests.trigger.trigger_world import App

from detent.clock import now
from detent.errors import UsageError
from detent.loading import sources
from detent.loading.sources import find_place, manifest_places, read_manifest, read_manifests
from detent.manifest.check import canonical_text
from detent.manifest.problems import ManifestError
from detent.manifest.secret_refs import Secret
from detent.messages.signing import SignedRequest, verify
from detent.model import Job, Request

JOB = {"name": "a", "schedule": "@daily", "request": {"url": "http://127.0.0.1/"}}
VERSION_1 = json.dumps({"version": 1, "app": "shop", "jobs": [JOB]}).encode()
PATH = "/.well-known/cron-manifest"


def manifest(app: str, *names: str, **top: Any) -> str:
    jobs = [{"name": name, "schedule": "@daily", "command": "true"} for name in names]
    return json.dumps({"version": 2, "app": app, "jobs": jobs, **top})


# Directories.


def test_a_directory_holds_apps_and_the_files_of_one_app_are_one_manifest(tmp_path: Path) -> None:
    (tmp_path / "10-first.json").write_text(manifest("pay", "z", node={"grace_seconds": 5}))
    (tmp_path / "20-second.yaml").write_text(manifest("pay", "b", store="sqlite:////x.db"))
    (tmp_path / "other.toml").write_text(
        'version = 2\napp = "mail"\n[[jobs]]\nname = "m"\nschedule = "@daily"\ncommand = "true"'
    )
    (tmp_path / ".hidden.json").write_text("{")
    (tmp_path / "README").write_text("not one")
    (tmp_path / "below.json").mkdir()
    mail, pay = read_manifests(str(tmp_path), {})
    assert ([job.name for job in pay.jobs], mail.app) == (["pay.z", "pay.b"], "mail")
    assert pay.store.url == "sqlite:////x.db"
    assert [job.policy.grace_s for job in pay.jobs] == [5.0, 5.0]
    assert json.loads(canonical_text(pay))["store"] == {"url": "sqlite:////x.db"}
    with pytest.raises(UsageError, match="has several apps \\(mail and pay\\)"):
        read_manifest(str(tmp_path), {})


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (manifest("pay", "a"), manifest("pay", "a"), "the job pay.a is also in .*1.json"),
        (
            manifest("pay", "a", store="sqlite:///y"),
            manifest("pay", "b", store="sqlite:///x"),
            "the value differs from",
        ),
        (manifest("shop", "b"), VERSION_1.decode(), "has version 2, not 1"),
        (manifest("pay", "a"), "{", "2.json"),
    ],
)
def test_files_that_contradict_each_other_are_refused(
    tmp_path: Path, first: str, second: str, message: str
) -> None:
    (tmp_path / "1.json").write_text(first)
    (tmp_path / "2.json").write_text(second)
    with pytest.raises(ManifestError, match=message):
        read_manifests(str(tmp_path), {})


def test_a_directory_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no manifest in"):
        manifest_places(tmp_path)


# Apps.


def test_a_url_is_fetched_with_a_signature(tmp_path: Path) -> None:
    with App(lambda _: (200, VERSION_1)) as app:
        read = read_manifest(find_place(app.url + PATH), {"KEY": "long-secret"}, "env:KEY")
    assert [job.name for job in read.jobs] == ["shop.a"]
    [asked] = app.requests
    signature = asked.headers["x-cron-signature"]
    assert verify(signature, SignedRequest("GET", PATH), [Secret("long-secret")], now()) == 0


def test_the_secret_signs_the_jobs_that_name_none(tmp_path: Path) -> None:
    """As a default app of another SDK serves them: with an empty list of secrets."""
    jobs = [
        {**JOB, "auth": {"secret_refs": []}},
        {**JOB, "name": "b"},
        {**JOB, "name": "c", "auth": {"secret_refs": ["env:OWN"]}},
    ]
    document = {"version": 1, "app": "shop", "jobs": jobs}
    with App(lambda _: (200, json.dumps(document).encode())) as app:
        plain = read_manifest(app.url, {})
        signed = read_manifest(app.url, {"KEY": "a long secret"}, "env:KEY")
    assert [refs(job) for job in plain.jobs] == [(), (), ("env:OWN",)]
    assert [refs(job) for job in signed.jobs] == [("env:KEY",), ("env:KEY",), ("env:OWN",)]
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(document))
    assert canonical_text(read_manifest(file, {}, "env:KEY")) == canonical_text(signed)


def refs(job: Job) -> tuple[str, ...]:
    assert isinstance(job.work, Request)
    return job.work.secret_refs


def test_without_the_secret_no_request_is_sent() -> None:
    with App(lambda _: (200, VERSION_1)) as app, pytest.raises(UsageError, match="no request was sent"):
        read_manifest(app.url, {}, "env:KEY")
    assert app.requests == []


ANSWERS: dict[str, tuple[bytes, str]] = {
    "a redirect": (b"HTTP/1.1 302 No\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "redirects are not followed"),
    "not found": (b"HTTP/1.1 404 No\r\n\r\n", "nothing at this path"),
    "refused": (b"HTTP/1.1 401 No\r\n\r\n", "--secret-ref"),
    "broken off": (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "broke off"),
    "not JSON": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{", "JSON"),
    "not UTF-8": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff", "not UTF-8"),
    "commands": (
        b"HTTP/1.1 200 OK\r\n\r\n" + manifest("pay", "a").encode(),
        "commands and calls are not accepted from the network",
    ),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_a_served_manifest_must_have_version_1(what: str) -> None:
    answer, message = ANSWERS[what]
    with answering(answer) as served, pytest.raises(UsageError, match=message):
        read_manifest(served.url, {})
    assert served.connections == 1


@pytest.mark.parametrize("chunk", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nA: "])
def test_a_slow_response_is_aborted(monkeypatch: pytest.MonkeyPatch, chunk: bytes) -> None:
    monkeypatch.setattr(sources, "FETCH_S", 0.5)
    with serving(trickling(chunk)) as served, pytest.raises(UsageError, match="took too long"):
        read_manifest(served.url, {})


def test_an_endless_response_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FETCH_MAX", 1000)
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 1001
    with answering(endless) as served, pytest.raises(UsageError, match="more than 1,000 bytes"):
        read_manifest(served.url, {})


def test_plain_http_is_for_this_host_only() -> None:
    with pytest.raises(UsageError, match="use https"):
        read_manifest("http://example.com/", {})
    with pytest.raises(UsageError, match="connection refused"):
        read_manifest("http://localhost:1/", {})
