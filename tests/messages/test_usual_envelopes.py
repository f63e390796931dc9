"""Envelopes as most are: what is told by comparing is what reading them whole would tell."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.messages.test_envelope import ARGS, FIRE, KEY, NOW, RULES, TRUSTING, refused, sent

from detent.messages.envelope import MessageBody, Refusal, _read_body, _usual_body, open_envelope, seal
from detent.model import Fire

PLAIN = MessageBody("send", '{"to":"a@example.com","n":[1,2.5]}', round(NOW, 3))
BODY = seal(FIRE, PLAIN, ())[:-1]
SIGNED = seal(FIRE, PLAIN, (KEY,))


def test_a_plain_message_is_usual_with_and_without_a_signature() -> None:
    for text in (BODY + "}", SIGNED):
        assert _usual_body(sent(text)) == PLAIN
        assert open_envelope(sent(text), TRUSTING) == PLAIN
    assert open_envelope(sent(SIGNED), RULES) == PLAIN


@given(ARGS)
def test_arguments_arrive_as_they_were_sealed(args: object) -> None:
    fire = sent(seal(FIRE, PLAIN._replace(args=json.dumps(args, ensure_ascii=False)), (KEY,)))
    opened = open_envelope(fire, RULES)
    assert isinstance(opened, MessageBody) and json.loads(opened.args) == args
    assert "\n" not in opened.args  # a child is told on one line


@given(st.data())
def test_whatever_is_done_to_a_message_both_readings_agree(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([BODY + "}", SIGNED]))
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    pieces = st.text(max_size=8) | st.sampled_from(['"', "1e999", ',"args":[]', ',"sig":"x"', "}"])
    fire = sent(text[:start] + data.draw(pieces) + text[end:])
    usual = _usual_body(fire)
    assert usual is None or usual == _read_body(fire, TRUSTING, is_trusted=True)
    assert (refused(fire) == "") == (fire.payload == SIGNED)


UNUSUAL = {
    "arguments of one name": BODY.replace('"n":', '"to":'),
    "NaN": BODY.replace("2.5", "NaN"),
    "an endless number": BODY.replace("2.5", "1e999"),
    "half a character": BODY.replace("a@example.com", "\\ud800"),
    "half a character, raw": BODY.replace("a@example.com", "\ud800"),
    "two lists of arguments": BODY + ',"args":[]',
    "an unknown field": BODY + ',"run":"rm"',
    "two documents": BODY + "}{",
    "no arguments": BODY[: BODY.index(',"args"')],
    "arguments that are a text": BODY[: BODY.index(',"args"')] + ',"args":"x"',
    "a time that is none": BODY.replace(f"{PLAIN.pushed_at:.3f}", "١.000"),
    "a time that is no number": BODY.replace(f"{PLAIN.pushed_at:.3f}", "1_0.000"),
    "a time in milliseconds": BODY.replace(f"{PLAIN.pushed_at:.3f}", "1772330400123.000"),
}


@pytest.mark.parametrize("text", UNUSUAL.values(), ids=UNUSUAL)
def test_what_is_not_sound_is_refused_however_usual_it_looks(text: str) -> None:
    assert refused(sent(text + "}"), TRUSTING) == "malformed"


MISDIRECTED = {
    "key": FIRE._replace(key="billing.send#0000"),
    "queue": FIRE._replace(queue="reports"),
    "app": FIRE._replace(job="other.send"),
}


@pytest.mark.parametrize("fire", MISDIRECTED.values(), ids=MISDIRECTED)
def test_a_copy_for_another_fire_is_refused(fire: Fire) -> None:
    assert refused(fire._replace(payload=BODY + "}"), TRUSTING) == "misdirected"


def test_the_arguments_of_a_message_with_line_breaks_are_told_on_one_line() -> None:
    opened = open_envelope(sent(BODY.replace("[1,2.5]", "[1,\n2.5]") + "}"), TRUSTING)
    assert not isinstance(opened, Refusal) and opened.args == PLAIN.args
