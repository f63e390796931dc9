"""Answers to requests, without a server: signatures, errors by name, results of functions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.receive.receive_world import (
    DUE,
    KEY,
    RUN_ID,
    SECRET,
    claim_of,
    error_of,
    incoming,
    noting,
    receiver,
)

from detent.receive import Incoming, ReceivedFire, Reject, Reply

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


# Who may.


def changed(**fields: Any) -> Incoming:
    """Signed, and then changed."""
    return incoming()._replace(**fields)


REFUSED: dict[str, tuple[Callable[[], Incoming], int, str]] = {
    "no signature": (partial(incoming, headers={"X-Cron-Signature": None}), 401, "MissingSignature"),
    "an empty one": (partial(incoming, headers={"X-Cron-Signature": ""}), 401, "MissingSignature"),
    "no time": (partial(incoming, headers={"X-Cron-Signature": "v1=" + "0" * 64}), 401, "MalformedHeader"),
    "two times": (
        partial(incoming, headers={"X-Cron-Signature": f"t=1,t=1,v1={'0' * 64}"}),
        401,
        "MalformedHeader",
    ),
    "too old": (partial(incoming, ago_s=302), 401, "StaleTimestamp"),
    "of the future": (partial(incoming, ago_s=-302), 401, "StaleTimestamp"),
    "another secret": (partial(incoming, secret="another"), 401, "SignatureMismatch"),
    "another body": (partial(changed, body=b"x"), 401, "SignatureMismatch"),
    "another method": (partial(changed, method="PUT"), 401, "SignatureMismatch"),
    "another query": (partial(changed, target="/cron/note?a=1"), 401, "SignatureMismatch"),
    "another job's": (partial(changed, target="/cron/put", path="/cron/put"), 401, "SignatureMismatch"),
    "an unsigned guess": (
        partial(incoming, target="/cron/nix", headers={"X-Cron-Signature": None}),
        401,
        "MissingSignature",
    ),
    "a body that is too large": (partial(changed, body=None), 413, "BodyTooLarge"),
    "the wrong method": (partial(incoming, "PUT"), 400, "BadMethod"),
    "no such job": (partial(incoming, target="/cron/notes"), 404, "UnknownJob"),
    "a job below a job": (partial(incoming, target="/cron/note/more"), 404, "UnknownJob"),
    "no such place": (partial(incoming, target="/elsewhere"), 404, "BadPath"),
    "the prefix alone": (partial(incoming, target="/cron"), 404, "BadPath"),
    "another prefix": (partial(incoming, target="/cronies/note"), 404, "BadPath"),
    "a manifest that is posted": (partial(incoming, target="/.well-known/cron-manifest"), 400, "BadMethod"),
    "no key": (partial(incoming, headers={"Idempotency-Key": None}), 400, "BadFire"),
    "an endless key": (partial(incoming, headers={"Idempotency-Key": "k" * 501}), 400, "BadFire"),
    "no run id": (partial(incoming, headers={"X-Cron-Run-Id": None}), 400, "BadFire"),
    "attempt 0": (partial(incoming, headers={"X-Cron-Attempt": "0"}), 400, "BadFire"),
    "a fence beyond 2^53": (partial(incoming, headers={"X-Cron-Fence": str(2**53)}), 400, "BadFire"),
    "a negative fence": (partial(incoming, headers={"X-Cron-Fence": "-1"}), 400, "BadFire"),
    "a fence of other digits": (partial(incoming, headers={"X-Cron-Fence": "٣"}), 400, "BadFire"),
    "a time beyond all years": (
        partial(incoming, headers={"X-Cron-Fire-Time": "9999999999999"}),
        400,
        "BadFire",
    ),
    "a strange time of success": (
        partial(incoming, headers={"X-Cron-Previous-Success-Time": "soon"}),
        400,
        "BadFire",
    ),
}


@pytest.mark.parametrize(("request_", "status", "name"), REFUSED.values(), ids=[*REFUSED])
def test_a_bad_request_is_refused_by_name_and_runs_nothing(
    request_: Callable[[], Incoming], status: int, name: str
) -> None:
    seen: list[ReceivedFire] = []
    reply = noting(seen).receive(request_())
    assert error_of(reply) == (status, name)
    assert seen == [] and SECRET.encode() not in reply.body


def test_a_function_receives_every_field_of_its_fire() -> None:
    seen: list[ReceivedFire] = []
    headers = {"X-Cron-Previous-Success-Time": "1772244000", "X-Cron-Fire-Time-Actual": "1772330402"}
    claim = claim_of(fence=2**53 - 1, attempt=3)
    reply = noting(seen).receive(incoming(body=b"\xff\x00", claim=claim, headers=headers))
    assert reply == Reply(204)
    (fire,) = seen
    assert (fire.key, fire.app, fire.job, fire.run_id) == (KEY, "billing", "note", RUN_ID)
    assert (fire.attempt, fire.fence, fire.body, fire.secret_index) == (3, 2**53 - 1, b"\xff\x00", 0)
    assert fire.due_at == DUE and fire.due_at.tzinfo is not None
    assert fire.previous_success_at and (fire.due_at - fire.previous_success_at).days == 1
    assert (fire.started_at - fire.due_at).total_seconds() == 2


@settings(max_examples=20, deadline=None)
@given(
    body=st.binary(max_size=300),
    query=st.from_regex(r"(\?[!-~]{0,30})?", fullmatch=True),
    secrets=st.lists(st.text("abcdefgh", min_size=1, max_size=8), min_size=1, max_size=4, unique=True),
    data=st.data(),
)
def test_any_body_query_and_secret_is_verified_however_the_header_is_arranged(
    body: bytes, query: str, secrets: list[str], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(secrets) - 1))
    sent = incoming("PUT", f"/cron/put{query}", body, secret=secrets[index])
    segments = [*sent.headers["x-cron-signature"].split(","), "v0=old", "kid=7", "x="]
    header = data.draw(st.sampled_from([",", ", "])).join(data.draw(st.permutations(segments)))
    names = data.draw(st.permutations(list(sent.headers)))
    shuffled = {name: sent.headers[name] for name in names} | {"x-cron-signature": header}
    seen: list[ReceivedFire] = []
    cron = noting(seen, secrets=[f"raw:{secret}" for secret in secrets])
    assert cron.receive(sent._replace(headers=shuffled)).status == 204
    assert (seen[0].body, seen[0].secret_index) == (body, index)


@settings(max_examples=20, deadline=None)
@given(body=st.binary(min_size=1, max_size=100), data=st.data())
def test_one_flipped_bit_anywhere_is_refused(body: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(body) * 8 - 1))
    flipped = bytearray(body)
    flipped[place // 8] ^= 1 << place % 8
    seen: list[ReceivedFire] = []
    reply = noting(seen).receive(incoming(body=body)._replace(body=bytes(flipped)))
    assert error_of(reply) == (401, "SignatureMismatch") and seen == []


def test_the_window_can_be_tightened_but_not_below_thirty_seconds() -> None:
    seen: list[ReceivedFire] = []
    assert error_of(noting(seen, window_seconds=30).receive(incoming(ago_s=32))) == (401, "StaleTimestamp")
    assert noting(seen, window_seconds=30).receive(incoming(ago_s=20)).status == 204
    with pytest.raises(ValueError, match="bad window_seconds 29: allowed are 30 to 300"):
        receiver(window_seconds=29)


def test_a_secret_is_resolved_for_each_request_so_rotation_needs_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ReceivedFire] = []
    file = tmp_path / "secret"
    cron = noting(seen, secrets=["env:NEXT", f"file:{file}"])
    assert error_of(cron.receive(incoming())) == (500, "NoSecret")
    file.write_text(f"{SECRET}\n")
    assert cron.receive(incoming()).status == 204
    monkeypatch.setenv("NEXT", "the-next-one")
    assert cron.receive(incoming(secret="the-next-one")).status == 204
    file.unlink()
    assert error_of(cron.receive(incoming())) == (401, "SignatureMismatch")
    assert [fire.secret_index for fire in seen] == [1, 0]


def test_no_secret_is_in_a_repr_an_answer_or_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cron = receiver(secrets=["raw:hidden-1", "env:NOT_SET"], secret_refs=["name"])
    cron.job("@daily", name="note")(lambda: None)
    replies = [cron.receive(incoming(secret="hidden-2")), cron.receive(incoming(secret="hidden-1"))]
    texts = repr(cron) + repr(vars(cron)["_verifier"]) + caplog.text + cron.manifest().decode()
    assert "hidden" not in texts + "".join(map(repr, replies))
    assert 'secret "env:NOT_SET" is skipped' in caplog.text
    assert caplog.text.count("is skipped") == 1  # logged once


# Where: the path that was signed is the one that was sent.

PLACES: dict[str, tuple[str, str, str, str]] = {  # base URL, signed, as it arrives, below the mount
    "as sent": ("https://h", "/cron/note", "/cron/note", "/cron/note"),
    "with a query": ("https://h", "/cron/note?a=%20&b", "/cron/note?a=%20&b", "/cron/note"),
    "encoded without need": ("https://h", "/cron/n%6Fte", "/cron/n%6Fte", "/cron/note"),
    "encoded, and decoded by a proxy": (
        "https://h/a%20b",
        "/a%20b/cron/note",
        "/a b/cron/note",
        "/a b/cron/note",
    ),
    "below the app's path": ("https://h/api", "/api/cron/note", "/api/cron/note", "/api/cron/note"),
    "a proxy took that away": ("https://h/api", "/api/cron/note", "/cron/note", "/cron/note"),
    "mounted": ("https://h/api", "/api/cron/note", "/api/cron/note", "/cron/note"),
    "a proxy put it elsewhere": ("https://h", "/cron/note?x", "/inner/cron/note?x", "/cron/note"),
}


@pytest.mark.parametrize(("url", "signed", "target", "path"), PLACES.values(), ids=[*PLACES])
def test_a_path_that_a_proxy_changed_is_still_verified(url: str, signed: str, target: str, path: str) -> None:
    seen: list[ReceivedFire] = []
    sent = incoming(target=signed)._replace(target=target, path=path)
    assert noting(seen, url=url).receive(sent).status == 204


def test_a_signature_for_one_job_is_not_valid_for_another() -> None:
    seen: list[ReceivedFire] = []
    cron = receiver("https://h/api")
    cron.job("@daily", name="note")(seen.append)
    cron.job("@daily", name="other")(seen.append)
    for target in ("/cron/other", "/api/cron/other", "/cron/note/../other", "/cron/%6Fther"):
        sent = incoming(target="/api/cron/note")._replace(target=target, path="/cron/other")
        assert error_of(cron.receive(sent)) == (401, "SignatureMismatch"), target
    assert seen == []


# What comes of it.


class Unsayable:
    """No JSON."""


RETURNED: dict[str, tuple[Any, Reply]] = {
    "nothing": (None, Reply(204)),
    "a mapping": (
        {"sent": 3, "ü": None},
        Reply(200, '{"sent": 3, "ü": null}\n'.encode(), "application/json"),
    ),
    "a list": ([1, "a"], Reply(200, b'[1, "a"]\n', "application/json")),
    "zero": (0, Reply(200, b"0\n", "application/json")),
    "a text": ("grün", Reply(200, "grün".encode(), "text/plain; charset=utf-8")),
    "bytes": (b"\xff", Reply(200, b"\xff", "application/octet-stream")),
    "a reply": (Reply(202, b"later"), Reply(202, b"later")),
    "a reply without a body by its status": (Reply(204, b"x"), Reply(204)),
    "a reply that is none: the work is done all the same": (Reply(99), Reply(204)),
    "what is no JSON: the work is done all the same": (Unsayable(), Reply(204)),
    "a number that is none": (float("nan"), Reply(204)),
}


@pytest.mark.parametrize(("value", "expected"), RETURNED.values(), ids=[*RETURNED])
def test_a_returned_value_is_a_success(value: Any, expected: Reply) -> None:
    cron = receiver()
    cron.job("@daily", name="note")(lambda: value)
    assert cron.receive(incoming()) == expected


def raising(error: BaseException) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


RAISED: dict[str, tuple[Exception, int, str]] = {
    "an error: try again": (ValueError("with a password"), 500, "Failed"),
    "a rejection: give up": (Reject("closed"), 422, "Rejected"),
    "a rejection with a status": (Reject("gone", status=410), 410, "Rejected"),
    "what a future cannot hold": (StopIteration(), 500, "Failed"),
}


@pytest.mark.parametrize("is_async", [False, True], ids=["on a thread", "on a loop"])
@pytest.mark.parametrize(("error", "status", "name"), RAISED.values(), ids=[*RAISED])
def test_a_raised_error_decides_whether_the_caller_tries_again(
    error: Exception, status: int, name: str, is_async: bool
) -> None:
    cron = receiver()
    cron.job("@daily", name="note")(raising(error))
    reply = asyncio.run(cron.receive_async(incoming())) if is_async else cron.receive(incoming())
    assert error_of(reply) == (status, name)
    assert b"password" not in reply.body


def test_a_rejection_has_a_status_that_says_so() -> None:
    with pytest.raises(ValueError, match="bad status 500: a rejection has one of 400–499"):
        Reject("x", status=500)


def test_an_async_function_is_awaited_with_and_without_a_loop() -> None:
    cron = receiver()

    @cron.job("@daily")
    async def note(fire: ReceivedFire) -> str:
        await asyncio.sleep(0)
        return fire.key

    assert cron.receive(incoming()).body == KEY.encode()
    assert asyncio.run(cron.receive_async(incoming())).body == KEY.encode()
