"""Alerts and pings of a manifest: addresses, texts and what is kept secret."""

import json
from typing import Any

import pytest

from detent.manifest.alerts import AlertText, address_secrets, alert_text, has_secret, service_of
from detent.manifest.check import Manifest, canonical_text, check_manifest
from detent.model import Alert, Command, Fire, Job, Request
from detent.rules.planning import fire_at, hook_fire
from detent.schedules.timetable import parse_instant

DUE = parse_instant("2026-03-01T01:00:00Z", "due")
PASSWORD = "sesame99"
FAILED = {
    "outcome": "failed",
    "reason": "exit 3",
    "cause": "work",
    "attempts": 2,
    "exit_code": 3,
    "late_s": 3,
    "output_tail": "no space left\n",
}


def read(**fields: Any) -> Manifest:
    top = {name: fields.pop(name) for name in ("dashboard_url", "secrets", "defaults") if name in fields}
    job = {"name": "settle", "schedule": "@daily", "command": "true", **fields}
    document = {"version": 2, "app": "shop", "jobs": [job], **top}
    return check_manifest(document, variables={"TOKEN": "T1/B2/abcdefgh"})


def hooks(**fields: Any) -> dict[str, Any]:
    return dict(read(**fields).jobs[0].hooks)


def message(job: Job, details: dict[str, Any], index: int = 0) -> AlertText:
    name, hook = [*job.hooks.items()][index]
    assert isinstance(hook, Alert)
    return alert_text(hook, hook_fire(fire_at(job, DUE), name, DUE, details))


@pytest.mark.parametrize(
    ("hook", "service"),
    [
        ("slack://a/b/c", "slack"),
        ("mailtos://u:p@h?to=a@b.c", "mailtos"),
        ("json://localhost:8080/x", "json"),
        ("{{ops}}", "alert"),
        ("mailto:a@b.c", "mailto"),
        ("https://example.org/x", ""),
        ("http://example.org/x", ""),
        ("./notify slack://a", ""),
        ("a:b c", ""),
        ("echo {{x}}", ""),
    ],
)
def test_an_address_is_told_from_a_command_and_a_webhook(hook: str, service: str) -> None:
    assert service_of(hook) == service


def test_alerts_stand_beside_commands_and_webhooks() -> None:
    made = hooks(
        on_failure=["slack://${TOKEN}", "./notify", "https://h/x", {"to": "{{ops}}", "title": "{{job}}"}]
    )
    slack, alert = (name for name in made if "-" in name)
    assert slack.startswith("on_failure.slack-") and alert.startswith("on_failure.alert-")
    assert made[slack] == Alert("slack://T1/B2/abcdefgh")
    assert made[alert] == Alert("{{ops}}", title="{{job}}", secret_refs=("ops",))
    assert isinstance(made["on_failure.1"], Command) and isinstance(made["on_failure.2"], Request)


@pytest.mark.parametrize("event", ["on_failure", "on_success", "on_skip", "on_late"])
def test_each_event_accepts_an_alert(event: str) -> None:
    ((name, hook),) = hooks(**{event: "json://h"}).items()
    assert name.startswith(f"{event}.json-") and hook == Alert("json://h")


def test_the_time_of_reminders_is_a_day_unless_the_job_says_otherwise() -> None:
    assert read(on_failure="json://h").jobs[0].policy.remind_s == 24 * 3600
    assert read(on_failure="json://h", remind_hours=0.5).jobs[0].policy.remind_s == 1800
    assert read(on_failure="json://h", remind_hours=0).jobs[0].policy.remind_s > 10 * 365 * 86_400
    assert read(on_success="json://h").jobs[0].policy.remind_s == 0


def test_the_canonical_form_keeps_alerts_and_can_be_read_again() -> None:
    given = read(
        on_failure=["slack://a/b", {"to": "json://h", "title": "{{job}}"}],
        remind_hours=6,
        ping="https://hc.example.org/{{job}}",
        dashboard_url="https://ops.example.org/",
    )
    text = canonical_text(given)
    again = check_manifest(json.loads(text))
    assert canonical_text(again) == text
    assert again.jobs[0].hooks == given.jobs[0].hooks
    assert json.loads(text)["dashboard_url"] == "https://ops.example.org/"


def test_the_default_message_says_what_when_why_and_where() -> None:
    job = read(on_failure="json://h", dashboard_url="https://ops.example.org/").jobs[0]
    assert message(job, FAILED | {"state": "began"}) == AlertText(
        "shop.settle: failed",
        "Fire: shop.settle@2026-03-01T01:00:00Z\n"
        "Due: 2026-03-01T01:00:00Z, 3 s late\n"
        "Outcome: failed: exit 3, 2 attempts\n"
        "Link: https://ops.example.org/fires/shop.settle@2026-03-01T01:00:00Z\n"
        "Last output:\n"
        "no space left",
        "failure",
    )


@pytest.mark.parametrize(
    ("event", "details", "title", "level", "line"),
    [
        ("on_failure", {"state": "continues"}, "still failing", "failure", "Failed: 12 times since 2026-03"),
        (
            "on_failure",
            {"state": "recovered", "outcome": "succeeded"},
            "recovered",
            "success",
            "Failed: 12 times",
        ),
        (
            "on_skip",
            {"outcome": "skipped", "state": "began"},
            "skipped",
            "warning",
            "Outcome: skipped: exit 3",
        ),
        (
            "on_skip",
            {"outcome": "skipped", "state": "continues"},
            "still skipped",
            "warning",
            "Skipped: 12 times",
        ),
        ("on_late", {"outcome": "", "cause": ""}, "late", "warning", "Outcome: late: exit 3"),
        ("on_success", {"outcome": "succeeded", "reason": ""}, "succeeded", "success", "Outcome: succeeded"),
    ],
)
def test_each_kind_of_alert_has_a_title_of_its_own(
    event: str, details: dict[str, Any], title: str, level: str, line: str
) -> None:
    job = read(**{event: "json://h"}).jobs[0]
    text = message(job, FAILED | {"since": "2026-03-01T01:00:00Z", "fires": 12} | details)
    assert (text.title, text.level) == (f"shop.settle: {title}", level)
    assert line in text.body


def test_the_output_in_a_message_is_bounded() -> None:
    text = message(read(on_failure="json://h").jobs[0], FAILED | {"output_tail": "a" * 4000 + "the end"})
    assert text.body.endswith("aaathe end") and len(text.body) < 2000


def test_a_template_replaces_the_default_message() -> None:
    alert = {"to": "json://h", "title": "{{job}}: {{outcome}}", "body": "{{reason}}|{{duration_ms}}|{{link}}"}
    text = message(read(on_failure=alert).jobs[0], FAILED)
    assert (text.title, text.body) == ("settle: failed", "exit 3||")


def test_a_ping_has_a_url_for_start_success_and_failure() -> None:
    made = hooks(ping="https://hc.example.org/{{app}}-{{job}}/?create=1")
    base = "https://hc.example.org/shop-settle"
    assert {name: hook.url for name, hook in made.items()} == {
        "on_start.ping": f"{base}/start?create=1",
        "on_success.ping": f"{base}?create=1",
        "on_failure.ping": f"{base}/fail?create=1",
    }


@pytest.mark.parametrize(
    ("address", "secrets", "others"),
    [
        (f"mailto://robot:{PASSWORD}@mail.example.com?to=ops@example.com", [PASSWORD], ["mail.example.com"]),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops", ["TIiajkdnlazkcOXrIdevi7FQ"], ["ops"]),
        ("json://u:p%40ss%2Fword@h/x", ["p%40ss%2Fword", "p@ss/word"], ["x"]),
    ],
)
def test_the_secrets_of_an_address_are_known(address: str, secrets: list[str], others: list[str]) -> None:
    found = address_secrets(address)
    assert {address, *secrets} <= set(found)
    assert not set(others) & set(found)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (f"mailto://robot:{PASSWORD}@mail.example.com", True),
        ("mailto://robot:{{env:PASSWORD}}@mail.example.com?to=ops@example.com", False),
        ("slack://{{file:/run/secrets/slack-tokens}}/#ops", False),
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", True),
        ("json://10.0.0.1:8080/alerts", False),
    ],
)
def test_a_reference_is_not_a_secret_in_an_address(address: str, expected: bool) -> None:
    assert has_secret(address) == expected


def test_an_error_does_not_show_the_address() -> None:
    with pytest.raises(Exception, match="percent-encode") as error:
        read(on_failure=f"mailto://robot:{PASSWORD}@h/a b")
    assert PASSWORD not in str(error.value)


def test_a_fire_without_alerts_has_no_time_of_reminders() -> None:
    fire = fire_at(read(on_failure="./notify").jobs[0], DUE)
    assert isinstance(fire, Fire) and fire.policy.remind_s == 0
