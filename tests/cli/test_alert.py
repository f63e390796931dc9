"""`detent alert test`, and what `detent validate` says of alerts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.cli_world import Detent, environment
from tests.equipment.receiver import Receiver

WITHOUT = """
import sys
sys.modules["apprise"] = None  # as if it were not installed
from detent.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
SECRET = "s3cretpassw0rd"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def write(folder: Path, top: str = "", **hooks: object) -> None:
    job = {"name": "settle", "schedule": "@daily", "command": "true", **hooks}
    other = {"name": "other", "schedule": "@daily", "command": "true"}
    (folder / "detent.yaml").write_text(f"version: 2\napp: shop\n{top}jobs: {json.dumps([job, other])}\n")


def address(receiver: Receiver, path: str = "") -> str:
    return receiver.url.replace("http://", f"json://robot:{SECRET}@") + path


def test_a_test_alert_goes_to_each_address_once(detent: Detent, folder: Path, receiver: Receiver) -> None:
    alert = {"to": address(receiver, "/b"), "title": "{{job}} {{outcome}}"}
    write(folder, on_failure=address(receiver, "/a"), on_success=alert)
    said = detent("alert", "test")
    assert said.code == 0 and said.out.count("sent: shop.settle on_") == 2
    assert {one.path for one in receiver.received} == {"/a", "/b"}
    assert {one["title"] for one in receiver.alerts} == {"shop.settle: failed", "settle succeeded"}
    assert all("a test alert: no job failed" in one["message"] for one in receiver.alerts)


def test_a_test_alert_of_one_job_or_to_one_address(detent: Detent, folder: Path, receiver: Receiver) -> None:
    write(folder, 'secrets: {ops: "env:OPS"}\n', on_failure=address(receiver))
    assert detent("alert", "test", "settle").code == 0
    assert detent("alert", "test", address(receiver)).out.startswith("sent: json: ")
    assert [one["title"] for one in receiver.alerts] == ["shop.settle: failed", "detent: test alert"]
    said = detent("alert", "test", "other")
    assert said.code == 1 and "other has no alerts" in said.err


def test_a_test_alert_that_fails_says_why_without_the_address(detent: Detent, folder: Path) -> None:
    write(folder, on_failure=f"json://robot:{SECRET}@127.0.0.1:9/x")
    said = detent("alert", "test", "-o", "json")
    ((record,), code) = said.json, said.code
    assert (code, record["sent"]) == (1, False) and "Connection error" in record["error"]
    assert SECRET not in said.out
    said = detent("alert", "test", "{{env:MISSING_OPS}}")
    assert (said.code, said.out) == (1, "failed: alert: no secret resolves: env:MISSING_OPS\n")


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (
            f"slakc://{SECRET}",
            'Apprise knows no service slakc at jobs[0].on_failure (detent.yaml:3): did you mean "sl',
        ),
        (
            f"slack://{SECRET}",
            "this is not a valid address of slack at jobs[0].on_failure (detent.yaml:3): see https",
        ),
        (["true", "nosuchservice://x"], "Apprise knows no service nosuchserv"),
    ],
)
def test_validate_refuses_an_address_that_cannot_work(
    detent: Detent, folder: Path, hook: object, message: str
) -> None:
    write(folder, on_failure=hook)
    said = detent("validate")
    assert said.code == 1 and message in said.err and SECRET not in said.err


def test_one_wrong_default_is_one_problem(detent: Detent, folder: Path) -> None:
    write(folder, "defaults: {on_failure: 'slakc://x'}\n")
    said = detent("validate")
    assert said.code == 1 and said.err.endswith("\n1 problem\n")


def test_show_hides_the_secret_of_an_address(detent: Detent, folder: Path) -> None:
    hooks = [
        f"mailto://robot:{SECRET}@h",
        {"to": f"json://a:{SECRET}@h"},
        "json://h/x",
        "mailto://a:{{env:P}}@h",
    ]
    write(folder, on_failure=hooks)
    shown = detent("show", "settle").out
    assert SECRET not in shown
    assert '["mailto://***", {"to": "json://***"}, "json://h/x", "mailto://a:{{env:P}}@h"]' in shown


def test_validate_warns_of_a_secret_that_does_not_resolve(detent: Detent, folder: Path) -> None:
    write(folder, on_failure="slack://{{env:MISSING_TOKEN}}/a")
    said = detent("validate", "-o", "json")
    assert [(one["code"], one["path"]) for one in said.json] == [("secret-unresolved", "jobs/0/on_failure")]


def test_without_apprise_validate_says_what_to_install(folder: Path) -> None:
    write(folder, on_failure="slack://a/b/c")
    for words in (["validate"], ["alert", "test", "json://127.0.0.1:9"]):
        run = subprocess.run(
            [sys.executable, "-c", WITHOUT, *words], env=environment(folder), capture_output=True, text=True
        )
        assert run.returncode == 1 and "Traceback" not in run.stderr
        assert "alerts need Apprise, which is not installed" in run.stderr
        assert "pip install 'detent[alerts]'" in run.stderr
