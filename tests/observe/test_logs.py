"""Events as lines."""

import io
import json

import pytest

from detent.events import EVENTS
from detent.messages.masking import Mask
from detent.observe.logs import Style, format_event, log_to


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_line_is_one_json_object_with_its_leading_fields_in_order() -> None:
    stream = io.StringIO()
    log_to(stream, "json")("skipped", reason="by a.b@1", fire="a.b@2", app="a", job="b", node="n")
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert list(record)[:7] == ["time", "level", "event", "app", "job", "fire", "node"]
    assert record["level"] == "INFO" and record["reason"] == "by a.b@1"


def test_a_line_break_in_a_field_stays_in_its_line() -> None:
    stream = io.StringIO()
    log_to(stream, "json")("attempt-failed", fire="a.b@1", body_excerpt="one\ntwo")
    assert len(stream.getvalue().splitlines()) == 1


def test_a_terminal_gets_a_short_line_with_what_matters() -> None:
    stream = io.StringIO()
    log_to(stream, "coloured")("retries-exhausted", fire="a.b@1", attempts=3, reason="exit 3", took_ms=1500)
    texts = ("retries-exhausted", "a.b@1", "3 attempts", "exit 3", "1.5 s", "\x1b[")
    assert [text for text in texts if text not in stream.getvalue()] == []


def test_a_terminal_without_colours_gets_the_same_without_them() -> None:
    stream = io.StringIO()
    log_to(stream, "plain")("success", fire="a.b@1", took_ms=12)
    assert "\x1b" not in stream.getvalue() and "12 ms" in stream.getvalue()


@pytest.mark.parametrize("style", ["json", "plain", "coloured"])
def test_every_event_can_be_formatted(style: Style) -> None:
    for event in EVENTS:
        line = format_event(event, style, node="n", jobs=["a.b"], again_in_s=1.5, attempt=2, late_s=61)
        assert event in line and "\n" not in line


@pytest.mark.parametrize(("style", "lines"), [("json", 2), ("plain", 1), ("coloured", 1)])
def test_a_terminal_gets_one_line_a_fire(style: Style, lines: int) -> None:
    stream = io.StringIO()
    emit = log_to(stream, style)
    emit("fire-started", fire="a.b@1", attempt=1)
    emit("success", fire="a.b@1", took_ms=12)
    assert len(stream.getvalue().splitlines()) == lines


def test_a_terminal_shows_what_a_stopping_node_waits_for() -> None:
    stream = io.StringIO()
    log_to(stream, "plain")("draining", node="n", drain_s=25.0, running=["a.b@1", "a.c@1", "a.d@1", "a.e@1"])
    assert "still running: a.b@1, a.c@1, a.d@1 and 1 more" in stream.getvalue()
    assert "waits at most 25 s; a second Ctrl-C stops it at once" in stream.getvalue()


def test_a_reader_that_went_away_breaks_nothing() -> None:
    log_to(Gone(), "json")("started", app="a")


@pytest.mark.parametrize("style", ["json", "plain", "coloured"])
def test_a_secret_is_masked_by_its_name_and_by_its_value(style: Style) -> None:
    stream = io.StringIO()
    emit = log_to(stream, style, mask=Mask(["hunter2"]))
    emit("attempt-failed", fire="a.b@1", reason="at redis://:sesame@h", error="it said aHVudGVyMg==, hunter2")
    emit("attempt-failed", fire="a.b@1", reason="password=sesame", detail={"api_key": "sesame"})
    logged = stream.getvalue()
    assert "sesame" not in logged and "hunter2" not in logged and "aHVudGVy" not in logged
    assert logged.count("a.b@1") == 2 and "redis://:***@h" in logged and "password=***" in logged


def test_a_mask_leaves_lines_without_secrets_as_they_are() -> None:
    lines = []
    for mask in (None, Mask(["hunter2"])):
        stream = io.StringIO()
        log_to(stream, "json", mask=mask)("attempt-failed", fire="a.token@1", key="secret", status=3)
        lines.append({**json.loads(stream.getvalue()), "time": ""})
    assert lines[0] == lines[1]
    assert (lines[0]["fire"], lines[0]["key"], lines[0]["status"]) == ("a.token@1", "secret", 3)


def test_the_quick_check_finds_whatever_the_mask_would() -> None:
    """The quick look at a line must not miss what the mask would have found."""
    for text in ("pwd=x1", "JWT: x1", "apiKey=x1", "Bearer x1x1x1x1x1", "Basic eDE6eDE=", "redis://u:x1@h"):
        stream = io.StringIO()
        log_to(stream, "json")("attempt-failed", error=text)
        assert "***" in stream.getvalue(), text
