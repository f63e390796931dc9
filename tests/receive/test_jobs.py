"""Jobs of a receiver: bad ones are refused where they are declared; the manifest is exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.receive.receive_world import error_of, incoming, noting, receiver

from detent import receive
from detent.manifest.check import check_manifest
from detent.receive import Incoming, Receiver

# The manifest.


def test_the_manifest_is_version_1_and_contains_only_references_to_secrets() -> None:
    cron = receiver("https://app.example.com/api/", secrets=["env:A", "raw:hidden", "B"], secret_refs=[])
    cron.job("0 2 * * *", "@hourly", name="z", timezone="Europe/Berlin", timeout_seconds=300)(lambda: None)
    cron.job("@daily", name="a", method="PUT", headers={"B": "1", "A": "2"}, body="x", max_attempts=1)(
        lambda: None
    )
    path = "/api/.well-known/cron-manifest"
    reply = cron.receive(Incoming("GET", path, path, {}))
    document = json.loads(reply.body)
    assert reply.status == 200 and reply.content_type == "application/json"
    assert [job.name for job in check_manifest(document).jobs] == ["billing.a", "billing.z"]
    a, z = document["jobs"]
    assert z["schedules"] == ["0 2 * * *", "@hourly"] and z["timezone"] == "Europe/Berlin"
    assert z["request"]["url"] == "https://app.example.com/api/cron/z"
    assert z["policy"]["timeout_seconds"] == 300 and z["policy"]["retries"]["max_attempts"] == 3
    assert a["request"] | {"headers": {}} == {
        "method": "PUT", "url": "https://app.example.com/api/cron/a", "headers": {}, "body": "x",
    }  # fmt: skip
    assert a["auth"] == z["auth"] == {"secret_refs": ["env:A", "B"]}


def test_a_manifest_can_ask_for_a_signature() -> None:
    path = "/.well-known/cron-manifest"
    cron = noting([], require_signed_manifest=True)
    assert error_of(cron.receive(Incoming("GET", path, path, {}))) == (401, "MissingSignature")
    assert cron.receive(incoming("GET", path)).status == 200
    assert noting([]).receive(Incoming("GET", path, path, {})).status == 200


def test_an_app_without_jobs_has_no_manifest_yet() -> None:
    path = "/.well-known/cron-manifest"
    assert error_of(receiver().receive(Incoming("GET", path, path, {}))) == (503, "NoJobs")


# What is declared wrongly.


def two_needed(one: Any, two: Any) -> None: ...


def yielding() -> Any:
    yield 1


WRONG_JOBS: dict[str, tuple[dict[str, Any], Any, str]] = {
    "schedule": ({"schedules": ["61 * * * *"]}, print, 'bad job "note": schedules/0: .*minute 61'),
    "version 2's": ({"schedules": ["0 0 2 * * *"]}, print, 'bad job "note": schedules/0'),
    "no schedule": ({"schedules": []}, print, 'bad job "note": schedules'),
    "zone": ({"timezone": "Mars"}, print, 'bad job "note": timezone: .*Mars'),
    "timeout": ({"timeout_seconds": 601}, print, "policy/timeout_seconds: 601"),
    "several": ({"timeout_seconds": 601, "max_attempts": 11}, print, "timeout_seconds: .*max_attempts: "),
    "name": ({"name": "Not This"}, print, 'bad job "Not This": name'),
    "method": ({"method": "HEAD"}, print, "request/method"),
    "concurrency": ({"concurrency": "Queue"}, print, "policy/concurrency"),
    "a function that wants more": ({}, two_needed, "called with the fire, or with nothing"),
    "a generator": ({}, yielding, "is a generator, which would never run"),
    "no function": ({}, 7, "is no function"),
}


@pytest.mark.parametrize(("fields", "function", "message"), WRONG_JOBS.values(), ids=[*WRONG_JOBS])
def test_a_bad_job_is_refused_where_it_is_declared(
    fields: dict[str, Any], function: Any, message: str
) -> None:
    schedules = fields.pop("schedules", ["@daily"])
    decorate = receiver().job(*schedules, **{"name": "note", **fields})
    with pytest.raises(ValueError, match=message):
        decorate(function)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "app": ({"app": "Billing"}, "^app: "),
    "url": ({"base_url": "ftp://h"}, "^base_url: .*http:// or https://"),
    "a url with a query": ({"base_url": "http://h/?a"}, "bad base_url .*no query"),
    "only a literal secret": ({"secrets": ["raw:hidden"]}, "^bad secrets: .*secret_refs="),
    "no secrets": ({"secrets": []}, "^bad secrets: "),
    "a bad reference": ({"secrets": ["env:A"], "secret_refs": ["!"]}, "^secret_refs: "),
    "prefix": ({"prefix": "cron"}, 'bad prefix "cron": use a path like /cron'),
    "root as prefix": ({"prefix": "/"}, 'bad prefix "/"'),
    "body_max": ({"body_max": -1}, "bad body_max -1"),
    "lease": ({"lease_seconds": 0}, "bad lease_seconds 0: allowed are 3 to 3,600"),
    "keep": ({"keep_days": 0}, "bad keep_days"),
    "fences without a place": ({"reject_stale_fence": True}, "reject_stale_fence needs a place"),
    "dedupe": ({"dedupe": "mysql://u:hidden@h"}, 'bad dedupe "mysql:": .*use "sqlite:///PATH"'),
    "dedupe without a file": ({"dedupe": "sqlite:"}, "bad dedupe .*names no file"),
}


@pytest.mark.parametrize(("fields", "message"), WRONG.values(), ids=[*WRONG])
def test_bad_arguments_of_a_receiver_are_refused_with_what_is_allowed(
    fields: dict[str, Any], message: str
) -> None:
    given_ = {"app": "billing", "base_url": "http://h", "secrets": "env:A", **fields}
    with pytest.raises(ValueError, match=message) as raised:
        Receiver(**given_)
    assert "hidden" not in str(raised.value)


def test_two_jobs_of_a_name_and_fences_of_fires_that_run_together_are_refused(tmp_path: Path) -> None:
    cron = receiver(dedupe=f"sqlite:///{tmp_path}/r.db", reject_stale_fence=True)
    cron.job("@daily", name="note")(print)
    with pytest.raises(ValueError, match='bad job "note": there is one of this name'):
        cron.job("@daily", name="note")(print)
    with pytest.raises(ValueError, match="with Allow its fires run together"):
        cron.job("@daily", name="other", concurrency="Allow")(print)


def test_the_public_names_are_few() -> None:
    assert sorted(receive.__all__) == ["Incoming", "ReceivedFire", "Receiver", "Reject", "Reply"]
    assert all(getattr(receive, name).__doc__ for name in receive.__all__)


def test_a_job_is_named_after_its_function_which_stays_what_it_was() -> None:
    cron = receiver()

    @cron.job("@daily")
    def send_invoices() -> str:
        return "sent"

    assert send_invoices() == "sent"
    assert repr(cron) == "Receiver('billing', jobs=['send-invoices'])"


def test_no_framework_and_no_driver_is_imported_until_it_is_used() -> None:
    import subprocess
    import sys

    code = (
        "import sys, detent.receive as r; c = r.Receiver('a', base_url='http://h', secrets='env:A'); "
        "c.asgi(); c.wsgi(); print([m for m in ('flask', 'django', 'starlette', 'redis', 'psycopg', "
        "'sqlite3') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
