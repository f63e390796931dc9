"""Listeners get the events that they named, and disturb nothing."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from detent.messages.masking import Mask
from detent.observe.listeners import WAITING_MAX, Listener, Listeners

CLOSE_S = 60.0
ENDED = {"fire": "a.b@1", "outcome": "failed", "reason": "exit 3"}
Said = list[tuple[str, dict[str, Any]]]


class Log:
    """Keeps the events that are logged, and wakes who waits for a warning."""

    def __init__(self) -> None:
        self.said: Said = []
        self.warned = threading.Event()

    def __call__(self, event: str, **fields: Any) -> None:
        self.said.append((event, fields))
        if event == "listener-failed":
            self.warned.set()

    @property
    def warnings(self) -> list[dict[str, Any]]:
        return [fields for event, fields in self.said if event == "listener-failed"]


def listening(
    log: Log, *functions: Any, names: tuple[str, ...] = ("failed",), mask: Mask | None = None
) -> Listeners:
    found = [Listener(frozenset(names), function) for function in functions]
    return Listeners(found, lambda: mask or Mask(), log)


@pytest.mark.parametrize(
    ("name", "event", "fields", "hears"),
    [
        ("failed", "retries-exhausted", ENDED, True),
        ("retries-exhausted", "retries-exhausted", ENDED, True),
        ("lost", "lost", {}, True),
        ("succeeded", "retries-exhausted", ENDED, False),
        ("failed", "attempt-failed", {}, False),
        ("failed", "hook-failed", ENDED, False),
        ("hook-failed", "hook-failed", ENDED, True),
        ("started", "started", {}, True),
    ],
)
def test_a_listener_hears_its_events_and_outcomes(
    name: str, event: str, fields: dict[str, Any], hears: bool
) -> None:
    assert Listener(frozenset([name]), print).hears(event, fields) == hears


def test_a_listener_gets_the_fields_of_the_log_line_with_secrets_masked() -> None:
    heard: list[Mapping[str, Any]] = []
    listeners = listening(Log(), heard.append, mask=Mask(["sesame-street"]))
    listeners.emit("retries-exhausted", **ENDED | {"reason": "sesame-street"})
    listeners.close(CLOSE_S)
    (event,) = heard
    assert list(event)[:4] == ["time", "level", "event", "fire"]
    assert (event["level"], event["event"], event["reason"]) == ("ERROR", "retries-exhausted", "***")


def test_a_listener_that_raises_is_one_warning_and_is_called_again() -> None:
    heard: list[Mapping[str, Any]] = []
    log = Log()

    def fails(event: Mapping[str, Any]) -> None:
        heard.append(event)
        raise ValueError("no such channel")

    others: list[Mapping[str, Any]] = []
    listeners = listening(log, fails, others.append)
    for _ in range(3):
        listeners.emit("retries-exhausted", **ENDED)
    listeners.close(CLOSE_S)
    assert len(heard) == len(others) == 3
    (warning,) = log.warnings
    assert warning["error"] == "ValueError: no such channel" and warning["listener"].endswith("fails")


def test_a_listener_that_hangs_holds_up_neither_the_node_nor_the_others() -> None:
    log, goes_on, others = Log(), threading.Event(), list[Mapping[str, Any]]()

    def hangs(event: Mapping[str, Any]) -> None:
        goes_on.wait()

    listeners = listening(log, hangs)
    quick = listening(log, others.append)
    for _ in range(WAITING_MAX + 10):
        listeners.emit("retries-exhausted", **ENDED)
    quick.emit("retries-exhausted", **ENDED)
    quick.close(CLOSE_S)
    assert others, "another listener is not held up"
    assert len([event for event, _ in log.said if event == "retries-exhausted"]) == WAITING_MAX + 11
    (warning,) = log.warnings
    assert "too slow" in warning["error"]
    listeners.close(0.0)
    goes_on.set()


def test_what_waits_is_handled_before_the_end() -> None:
    heard: list[Mapping[str, Any]] = []
    listeners = listening(Log(), heard.append, names=("stopped", "success"))
    for _ in range(100):
        listeners.emit("success")
    listeners.emit("stopped")
    listeners.close(CLOSE_S)
    assert [one["event"] for one in heard] == ["success"] * 100 + ["stopped"]
