"""Which alerts are sent: when a job begins to fail, while it keeps failing, and when it recovers."""

import json

import pytest

from detent.clock import instant
from detent.model import Fire, Outcome, Policy
from detent.rules.alerts import (
    Trouble,
    after_sending,
    alert_name,
    is_alert,
    is_repeated,
    judge_alert,
    trouble_of,
    trouble_text,
)
from detent.rules.planning import ALERT_POLICY, HOOK_POLICY, hook_fire

HOUR_S = 3600.0
NOW = 1_800_000_000.0
SLACK = alert_name("on_failure", "slack", "slack://a/b/c")


def told(*ends: tuple[float, str], remind_s: float = 24 * HOUR_S) -> list[str]:
    """Return what is sent for fires that end so, each some hours after the first one."""
    trouble, said = Trouble(), []
    for hours, outcome in ends:
        hook = hook_fire(
            Fire("a.b@1", "a.b", instant(NOW), policy=Policy(remind_s=remind_s)),
            SLACK,
            instant(NOW),
            {"outcome": outcome},
        )
        trouble, sent = judge_alert(hook, trouble_of(trouble_text(trouble)), NOW + hours * HOUR_S)
        said.append(json.loads(sent.payload)["state"] if sent else "")
    return said


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([(0, "succeeded"), (1, "succeeded")], ["", ""]),
        ([(0, "failed"), (1, "failed"), (2, "timed-out")], ["began", "", ""]),
        ([(0, "failed"), (1, "succeeded"), (2, "succeeded")], ["began", "recovered", ""]),
        ([(0, "failed"), (1, "succeeded"), (2, "failed")], ["began", "recovered", "began"]),
        ([(0, "failed"), (23.9, "failed"), (24, "failed"), (25, "failed")], ["began", "", "continues", ""]),
        (
            [(0, "failed"), (24, "lost"), (47, "failed"), (48, "failed")],
            ["began", "continues", "", "continues"],
        ),
        ([(0, "failed"), (-1, "failed")], ["began", "continues"]),  # the clock was set back
    ],
)
def test_an_alert_is_sent_at_the_begin_as_a_reminder_and_at_the_end(
    ends: list[tuple[float, str]], expected: list[str]
) -> None:
    assert told(*ends) == expected


def test_an_alert_says_since_when_and_how_often_the_job_has_failed() -> None:
    hook = Fire(
        "a.b@1/x", "a.b", instant(NOW), payload='{"outcome": "succeeded"}', policy=Policy(remind_s=9.0)
    )
    _, sent = judge_alert(hook, Trouble(since=NOW, sent=NOW, fires=3), NOW + 60)
    assert sent and json.loads(sent.payload) == {
        "outcome": "succeeded",
        "state": "recovered",
        "since": "2027-01-15T08:00:00Z",
        "fires": 3,
    }


def test_an_alert_that_was_not_delivered_is_sent_with_the_next_failure() -> None:
    failing = Trouble(since=NOW, sent=NOW, fires=1)
    assert after_sending(failing, Outcome("succeeded")) == failing
    undelivered = after_sending(failing, Outcome("failed", "the mail server is away"))
    hook = Fire(
        "a.b@2/x", "a.b", instant(NOW), payload='{"outcome": "failed"}', policy=Policy(remind_s=HOUR_S)
    )
    after, sent = judge_alert(hook, undelivered, NOW + 60)
    assert sent and json.loads(sent.payload)["state"] == "continues"
    assert after == Trouble(since=NOW, sent=NOW + 60, fires=2)


@pytest.mark.parametrize(
    ("hook", "has_retries", "is_once"),
    [
        ("on_failure", False, False),
        ("on_failure.1", False, False),
        ("on_start.ping", False, False),
        (SLACK, True, True),
        (alert_name("on_skip", "mailto", "mailto://h"), True, True),
        (alert_name("on_success", "slack", "slack://h"), True, False),
        (alert_name("on_late", "slack", "slack://h"), True, False),
    ],
)
def test_only_alerts_are_retried_and_only_some_are_sent_once(
    hook: str, has_retries: bool, is_once: bool
) -> None:
    fire = Fire("a.b@1", "a.b", instant(NOW), policy=Policy(remind_s=HOUR_S))
    policy = hook_fire(fire, hook, instant(NOW), {}).policy
    assert (is_alert(hook), is_repeated(hook)) == (has_retries, is_once)
    assert policy.retries == (ALERT_POLICY if has_retries else HOOK_POLICY).retries
    assert policy.remind_s == (HOUR_S if is_once else 0)


def test_the_state_without_trouble_is_not_stored() -> None:
    assert trouble_text(Trouble()) == ""
    kept = Trouble(since=NOW, sent=NOW, fires=2)
    assert trouble_of(trouble_text(kept)) == kept
    assert trouble_of('{"since": 1, "later": 2}') == Trouble(since=1)
