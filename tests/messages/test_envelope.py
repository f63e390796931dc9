"""Envelopes: sealed messages can be opened, altered ones are refused, and opening never raises."""

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.clock import instant
from detent.errors import UsageError
from detent.manifest.secret_refs import Secret
from detent.messages.envelope import (
    PAYLOAD_MAX,
    MessageBody,
    MessageRules,
    Refusal,
    _steady_text,
    open_envelope,
    seal,
)
from detent.model import Fire, Policy, Query, Retries
from detent.stores.encoding import policy_of, policy_text
from detent.stores.registry import open_store

AT = datetime(2026, 3, 1, 2, 0, 0, 123456, tzinfo=UTC)
NOW = AT.timestamp()
KEY = Secret("a secret of thirty-two characters")
OLD = Secret("the one before")
OTHER = Secret("another secret")
FIRE = Fire(
    key="billing.send#7f3a",
    job="billing.send",
    due_at=AT,
    run_id="0195-run",
    queue="mail",
    lane="billing.send",
    start_by=AT + timedelta(hours=1),
    policy=Policy("Queue", timeout_s=30, retries=Retries(max_attempts=4, on_status=(429,))),
    origin="push",
)
BODY_OF_MESSAGE = MessageBody(
    "send", '{"to":"a@example.com","n":1}', NOW, {"then": [{"task": "log", "args": [1.5]}]}, 3
)
RULES = MessageRules((KEY,), {"send": frozenset({"mail"}), "log": None}, max_age_s=60)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SIGNED = FIRE._replace(payload=seal(FIRE, BODY_OF_MESSAGE, (KEY,)))

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
ARGS = st.lists(JSON, max_size=4) | st.dictionaries(TEXTS, JSON, max_size=4)


def refused(fire: Fire, rules: MessageRules = RULES, now: float = NOW + 1) -> str:
    """The fault, or "" if the message is accepted."""
    opened = open_envelope(fire, rules, now)
    return opened.fault if isinstance(opened, Refusal) else ""


def sent(text: str) -> Fire:
    return FIRE._replace(payload=text)


def unsigned(**changes: Any) -> Fire:
    """An unsigned message with some wrong fields."""
    fields = json.loads(seal(FIRE, BODY_OF_MESSAGE, ())) | changes
    return sent(json.dumps({name: value for name, value in fields.items() if value is not ...}))


TRUSTING = RULES._replace(secrets=())


# What was sealed is opened.


def test_a_sealed_message_can_be_opened() -> None:
    assert open_envelope(SIGNED, RULES, NOW + 1) == BODY_OF_MESSAGE._replace(pushed_at=round(NOW, 3))


def test_the_text_is_json_with_the_documented_fields_and_the_signature_last() -> None:
    fields = json.loads(SIGNED.payload)
    assert list(fields) == ["v", "id", "app", "task", "queue", "pushed_at", "args", "links", "depth", "sig"]
    assert fields["id"] == FIRE.key and fields["app"] == "billing" and fields["queue"] == "mail"
    assert "sig" not in json.loads(seal(FIRE, BODY_OF_MESSAGE, ()))


@given(task=TEXTS, args=ARGS, links=st.dictionaries(TEXTS, JSON, max_size=3), depth=st.integers(0, 99))
def test_any_message_is_opened_as_it_was_sealed(
    task: str, args: Any, links: dict[str, Any], depth: int
) -> None:
    body = MessageBody(task, json.dumps(args), NOW, links, depth, TRACE)
    for secrets in ((), (KEY,)):
        fire = FIRE._replace(payload=seal(FIRE, body, secrets))
        opened = open_envelope(fire, MessageRules(secrets, {task: None}))
        assert isinstance(opened, MessageBody)
        assert json.loads(opened.args) == args and "\n" not in opened.args  # a child reads them as one line
        assert opened[2:] == (round(NOW, 3), links, depth, TRACE) and opened.task == task


@given(timeout_s=st.sampled_from([0, 0.0, 30, 30.0, 0.25]), seconds=st.integers(0, 10**9), lane=TEXTS)
def test_a_signature_survives_a_store(timeout_s: float, seconds: int, lane: str) -> None:
    policy = Policy(timeout_s=timeout_s, hooks=("on_failure",), max_running=2)
    due_at = AT + timedelta(microseconds=seconds)
    fire = FIRE._replace(due_at=due_at, start_by=due_at, lane=lane, policy=policy)
    fire = fire._replace(payload=seal(fire, BODY_OF_MESSAGE, (KEY,)))
    kept_at = instant(json.loads(json.dumps(due_at.timestamp())))
    kept = fire._replace(policy=policy_of(policy_text(policy)), due_at=kept_at, start_by=kept_at)
    assert refused(kept) == ""


def test_a_store_does_not_change_a_signed_message(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/detent.db")
    store.put([SIGNED])
    [row] = store.find(Query(key=FIRE.key))
    assert refused(row.fire) == ""


def test_integers_and_floats_in_a_policy_have_the_same_signature() -> None:
    whole = FIRE._replace(policy=FIRE.policy._replace(timeout_s=31))
    payload = seal(whole, BODY_OF_MESSAGE, (KEY,))
    _steady_text.cache_clear()  # another process
    assert refused(whole._replace(payload=payload, policy=FIRE.policy._replace(timeout_s=31.0))) == ""


def test_a_message_of_defaults_keeps_the_signature_of_the_first_version() -> None:
    """A known answer: nodes of two versions read each other's messages."""
    fire = Fire("a.b#1", "a.b", AT, queue="q", origin="push")
    payload = seal(fire, MessageBody("b", "[1]", NOW), (Secret("k"),))
    assert json.loads(payload)["sig"] == KNOWN


# From openssl, over the text as docs/explanation/messages.md describes it.
KNOWN = "226c4d0df3d2a6a1005236cf93a542a7b967f78d62e7c8e546d8b278dec998f0"


# Secrets.


def test_a_new_secret_signs_while_the_old_one_still_opens() -> None:
    by_old = FIRE._replace(payload=seal(FIRE, BODY_OF_MESSAGE, (OLD,)))
    by_both = FIRE._replace(payload=seal(FIRE, BODY_OF_MESSAGE, (KEY, OLD)))
    assert refused(by_old, RULES._replace(secrets=(KEY, OLD))) == ""
    assert refused(by_old, RULES._replace(secrets=(KEY,))) == "forged"
    assert refused(by_both, RULES._replace(secrets=(KEY,))) == ""
    assert refused(by_both, RULES._replace(secrets=(OLD,))) == "forged"


@given(st.lists(st.sampled_from("abcd"), min_size=1, unique=True), st.sampled_from("abcd"))
def test_any_of_the_secrets_opens_and_no_other(known: list[str], signer: str) -> None:
    fire = FIRE._replace(payload=seal(FIRE, BODY_OF_MESSAGE, (Secret(signer),)))
    rules = RULES._replace(secrets=tuple(Secret(text) for text in known))
    assert refused(fire, rules) == ("" if signer in known else "forged")


def test_a_signed_message_is_accepted_without_a_secret() -> None:
    assert refused(SIGNED, TRUSTING) == ""


# What was touched is refused.


@pytest.mark.parametrize("place", range(len(SIGNED.payload)))
def test_no_byte_can_be_changed_added_or_removed(place: int) -> None:
    text = SIGNED.payload
    for other in {chr(ord(text[place]) ^ 1), chr(ord(text[place]) ^ 32), " ", "\u00e9"} - {text[place]}:
        assert refused(sent(text[:place] + other + text[place + 1 :]))
    assert refused(sent(text[:place] + " " + text[place:]))
    assert refused(sent(text[:place] + text[place + 1 :]))
    assert refused(sent(text[:place])) == "malformed"


@given(st.data())
def test_any_change_of_the_text_is_refused(data: st.DataObject) -> None:
    text = SIGNED.payload
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    changed = text[:start] + data.draw(st.text(max_size=8)) + text[end:]
    assert bool(refused(sent(changed))) == (changed != text)


CHANGED_FIRES = {
    "job": FIRE._replace(job="billing.other"),
    "app": FIRE._replace(job="other.send"),
    "due_at": FIRE._replace(due_at=AT + timedelta(microseconds=1)),
    "run_id": FIRE._replace(run_id="0195-other"),
    "lane": FIRE._replace(lane=""),
    "start_by": FIRE._replace(start_by=None),
    "later start_by": FIRE._replace(start_by=AT + timedelta(days=1)),
    "timeout": FIRE._replace(policy=FIRE.policy._replace(timeout_s=0.0)),
    "retries": FIRE._replace(policy=FIRE.policy._replace(retries=Retries(max_attempts=40, on_status=(429,)))),
    "concurrency": FIRE._replace(policy=FIRE.policy._replace(concurrency="Allow")),
    "hooks": FIRE._replace(policy=FIRE.policy._replace(hooks=("on_failure",))),
    "no policy": FIRE._replace(policy=Policy()),
    "origin": FIRE._replace(origin="manual"),
    "revision": FIRE._replace(revision="1"),
    "first_at": FIRE._replace(first_at=AT),
    "instants": FIRE._replace(instants=2),
}


@pytest.mark.parametrize("changed", CHANGED_FIRES.values(), ids=CHANGED_FIRES)
def test_no_field_of_the_fire_can_be_changed(changed: Fire) -> None:
    assert refused(changed._replace(payload=SIGNED.payload)) == "forged"


def test_every_field_of_a_fire_and_of_its_policy_is_covered() -> None:
    """Including fields that are added in the future."""
    for name in set(Fire._fields) - {"payload"}:
        assert refused(SIGNED._replace(**{name: _another(getattr(FIRE, name))})), name
    for name in Policy._fields:
        policy = FIRE.policy._replace(**{name: _another(getattr(FIRE.policy, name))})
        assert refused(SIGNED._replace(policy=policy)) == "forged", name
    for name in Retries._fields:
        retries = FIRE.policy.retries._replace(**{name: _another(getattr(FIRE.policy.retries, name))})
        policy = FIRE.policy._replace(retries=retries)
        assert refused(SIGNED._replace(policy=policy)) == "forged", name


def _another(value: Any) -> Any:
    match value:
        case str():
            return value + "x"
        case bool():
            return not value
        case int() | float():
            return value + 1
        case datetime() | None:
            return AT + timedelta(days=9)
        case Policy():
            return value._replace(claim_s=5)
    return (*value, 7)


def test_a_copy_under_another_key_is_misdirected() -> None:
    """A replay: the message is genuine, but the fire is not the one that it was sealed for."""
    assert refused(SIGNED._replace(key="billing.send#8888")) == "misdirected"
    assert refused(SIGNED._replace(queue="other")) == "misdirected"
    assert refused(unsigned(app="other"), TRUSTING) == "misdirected"
    assert refused(unsigned(), TRUSTING._replace(tasks={"send": None})) == ""


def test_a_signature_of_something_else_is_not_valid_for_a_message() -> None:
    """The boundary between text and fire is part of the signature."""
    moved = FIRE._replace(run_id="")
    text = seal(moved._replace(run_id="x"), BODY_OF_MESSAGE, (KEY,))
    assert refused(moved._replace(payload=text, lane=moved.lane + "x")) == "forged"


# What arrives, whatever it is, ends with a reason.


def nested(open_: str, close: str, times: int = 100_000) -> str:
    return open_ * times + close * times


BODY = seal(FIRE, BODY_OF_MESSAGE, ())[:-1]
BOMB = pickle.dumps(["os.system", "true"], protocol=0).decode("latin-1")
HOSTILE = {
    "nothing": ("", "malformed"),
    "blanks": ("  ", "malformed"),
    "a word": ("hello", "malformed"),
    "a number": ("12", "malformed"),
    "null": ("null", "malformed"),
    "a list": ("[1]", "malformed"),
    "a text": ('"x"', "malformed"),
    "truncated": (BODY, "malformed"),
    "two documents": (BODY + "}{}", "malformed"),
    "a byte order mark": ("\ufeff" + BODY + "}", "malformed"),
    "a pickle": (BOMB, "malformed"),
    "a binary pickle": (pickle.dumps([BODY_OF_MESSAGE]).decode("latin-1"), "malformed"),
    "a pickle in base 64": ("gASVIAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAR0cnVllIWUUpQu", "malformed"),
    "NUL": ("\0" + BODY + "}", "malformed"),
    "deep lists": (BODY.replace("1.5", nested("[", "]", 50_000)) + "}", "malformed"),
    "deep objects": (nested('{"a":', "}", 30_000).replace(":}", ":1}"), "malformed"),
    "never closed": ("[" * 200_000, "malformed"),
    "two tasks": (BODY + ',"task":"log"}', "malformed"),
    "two arguments of one name": (BODY.replace('"n":1', '"n":1,"n":2') + "}", "malformed"),
    "NaN": (BODY.replace("1.5", "NaN") + "}", "malformed"),
    "Infinity": (BODY.replace("1.5", "-Infinity") + "}", "malformed"),
    "an endless number": (BODY.replace("1.5", "1e999") + "}", "malformed"),
    "an endless argument": (BODY.replace('"n":1', '"n":-1e999') + "}", "malformed"),
    "a number of 5,000 digits": (BODY.replace("1.5", "9" * 5000) + "}", "malformed"),
    "half a character": (BODY.replace("1.5", '"\\ud800"') + "}", "malformed"),
    "half a character in args": (BODY.replace('"n":1', '"\\uDC80":1') + "}", "malformed"),
    "half a character, raw": (BODY.replace("1.5", '"\udfff"') + "}", "malformed"),
    "a raw line break": (BODY.replace("1.5", '"\n"') + "}", "malformed"),
    "an unknown field": (BODY + ',"run":"rm"}', "malformed"),
    "a negative depth": (BODY.replace('"depth":3', '"depth":-3') + "}", "malformed"),
    "oversized": (BODY.replace("1.5", "1" * PAYLOAD_MAX) + "}", "oversized"),
    "oversized in bytes": (json.dumps("é" * (PAYLOAD_MAX // 2), ensure_ascii=False), "oversized"),
    "as large as it may be": (" " * PAYLOAD_MAX, "malformed"),
    "no version": ("{}", "unknown-version"),
    "a newer version": (BODY.replace('"v":1', '"v":2') + "}", "unknown-version"),
    "a version that is true": (BODY.replace('"v":1', '"v":true') + "}", "unknown-version"),
    "a version in halves": (BODY.replace('"v":1', '"v":1.0') + "}", "unknown-version"),
    "a version of lists": ('{"v":' + nested("[", "]", 99) + "}", "unknown-version"),
}


@pytest.mark.parametrize(("text", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_messages_are_refused_by_name(text: str, reason: str) -> None:
    assert refused(sent(text), TRUSTING) == reason
    assert refused(sent(text), RULES)  # with a secret, many of them are refused for that already


SHAPES: list[tuple[str, Any]] = [
    ("id", 1), ("id", None), ("app", []), ("task", {"a": 1}), ("task", ...), ("queue", True), ("args", "[]"),
    ("args", 1), ("args", None), ("args", ...), ("pushed_at", "now"), ("pushed_at", True), ("pushed_at", -1),
    ("pushed_at", 1e12), ("pushed_at", None), ("links", []), ("links", None), ("depth", 1.5), ("depth", True),
    ("depth", 10**9), ("depth", "1"), ("trace", ""), ("trace", 1), ("trace", TRACE.upper()),
    ("trace", TRACE.replace("0af7651916cd43dd8448eb211c80319c", 32 * "0")), ("trace", TRACE + "\n"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), SHAPES)
def test_a_field_of_another_type_is_malformed(field: str, value: Any) -> None:
    assert refused(unsigned(**{field: value}), TRUSTING) == "malformed"


@settings(max_examples=100)
@given(st.text() | st.binary().map(lambda content: content.decode("latin-1")))
def test_no_text_raises(text: str) -> None:
    assert refused(sent(text), RULES) and refused(sent(text), TRUSTING)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from([*json.loads(SIGNED.payload), "x"]), JSON), st.booleans())
def test_no_object_raises(fields: dict[str, Any], is_versioned: bool) -> None:
    text = json.dumps(fields | ({"v": 1} if is_versioned else {}))
    for rules in (RULES, TRUSTING):
        assert refused(sent(text), rules) in REASONS


REASONS = (
    "malformed", "unknown-version", "unsigned", "forged", "misdirected", "stale", "unknown-task",
    "not-allowed",
)  # fmt: skip


# The order, and the rules.


def test_the_first_fault_in_the_documented_order_is_reported() -> None:
    """Each message also has all later faults."""
    wrong = {"id": "other", "pushed_at": 0, "task": "nobody", "links": ...}
    narrow = RULES._replace(payload_max=100, max_age_s=1)
    wide = narrow._replace(payload_max=PAYLOAD_MAX)
    assert refused(sent("x" * 101), narrow) == "oversized"
    assert refused(sent("x" * 99), narrow) == "malformed"
    assert refused(unsigned(**wrong, v=2), wide) == "unknown-version"
    assert refused(unsigned(**wrong), wide) == "unsigned"
    assert refused(unsigned(**wrong, sig="0" * 64), wide) == "forged"
    trusting, right = wide._replace(secrets=()), {"id": FIRE.key}
    assert refused(unsigned(**wrong), trusting, NOW + 2) == "misdirected"
    assert refused(unsigned(**wrong | right), trusting, NOW + 2) == "stale"
    assert refused(unsigned(**wrong | right), trusting, NOW) == "unknown-task"
    elsewhere = trusting._replace(tasks={"nobody": frozenset({"reports"})})
    assert refused(unsigned(**wrong | right), elsewhere, NOW) == "not-allowed"
    assert refused(unsigned(**wrong | right), elsewhere._replace(tasks={"nobody": None}), NOW) == ""


def test_the_age_of_a_message_counts_from_when_it_was_due() -> None:
    assert refused(SIGNED, now=NOW + 60) == ""
    assert refused(SIGNED, now=NOW + 61) == "stale"
    assert refused(SIGNED, RULES._replace(max_age_s=0), NOW + 10**9) == ""
    later = FIRE._replace(due_at=AT + timedelta(days=2))  # delayed: no worker could have run it before
    later = later._replace(payload=seal(later, BODY_OF_MESSAGE, (KEY,)))
    assert refused(later, now=NOW + 172_800 + 59) == ""
    assert refused(later, now=NOW + 172_800 + 61) == "stale"


def test_a_maximum_age_without_the_current_time_refuses_everything() -> None:
    opened = open_envelope(SIGNED, RULES)
    assert isinstance(opened, Refusal) and opened.fault == "stale"


def test_a_task_is_accepted_only_from_its_queues() -> None:
    def with_queues(queues: frozenset[str] | None) -> str:
        return refused(SIGNED, RULES._replace(tasks={"send": queues}))

    assert with_queues(None) == "" == with_queues(frozenset({"mail", "other"}))
    assert with_queues(frozenset()) == "not-allowed" == with_queues(frozenset({"other"}))


# The text of a refusal.


def test_a_refusal_contains_advice_but_no_secret_and_no_message() -> None:
    long = "word " * 100
    for fire, rules in [
        (SIGNED, RULES._replace(secrets=(OTHER,))),
        (SIGNED, RULES._replace(tasks={})),
        (SIGNED, RULES._replace(tasks={"sent": None})),
        (unsigned(task=long), TRUSTING),
        (unsigned(id=long), TRUSTING),
        (unsigned(v=long), TRUSTING),
        (unsigned(**{long: 1}), TRUSTING),
        *[(sent(text), TRUSTING) for text, _ in HOSTILE.values()],
    ]:
        opened = open_envelope(fire, rules, NOW + 1)
        assert isinstance(opened, Refusal)
        assert len(opened.detail) < 250 and opened.detail.isprintable()
        assert "word " * 17 not in opened.detail and "secret of thirty" not in opened.detail
    unknown = open_envelope(SIGNED, RULES._replace(tasks={"sent": None}), NOW + 1)
    assert unknown == Refusal("unknown-task", 'this node has no task "send"; did you mean "sent"?')


# What cannot be sealed.


@pytest.mark.parametrize(
    "args",
    ["", "x", "1", '"[]"', "null", "[", "[NaN]", '[],"task":"log"', '{"a":1,"a":2}', '["\\ud800"]', "[]}"],
)
def test_arguments_that_would_be_refused_are_not_sealed(args: str) -> None:
    with pytest.raises(UsageError, match="bad arguments"):
        seal(FIRE, BODY_OF_MESSAGE._replace(args=args), (KEY,))


def test_links_that_are_not_json_are_not_sealed() -> None:
    for bad in ({"then": {1, 2}}, {"then": float("nan")}, {"then": "\ud800"}):
        with pytest.raises(UsageError, match="bad links"):
            seal(FIRE, BODY_OF_MESSAGE._replace(links=bad), (KEY,))


def test_a_message_that_would_be_oversized_is_not_sealed() -> None:
    body = BODY_OF_MESSAGE._replace(args=json.dumps(["é" * 200], ensure_ascii=False))
    size = len(seal(FIRE, body, (KEY,)).encode())
    sealed = seal(FIRE, body, (KEY,), size)
    assert refused(FIRE._replace(payload=sealed), RULES._replace(payload_max=size)) == ""
    with pytest.raises(UsageError, match=f"{size - 1} are allowed"):
        seal(FIRE, body, (KEY,), size - 1)
    assert refused(FIRE._replace(payload=sealed), RULES._replace(payload_max=size - 1)) == "oversized"
