"""Captured requests that are sent again with other keys and fences, and senders that sign only v1."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.receive.receive_world import KEY, SECRET, claim_of, error_of, incoming, noting, receiver

from detent import clock
from detent.manifest.secret_refs import Secret
from detent.messages.signing import SignedRequest, sign
from detent.receive import Incoming, ReceivedFire, Receiver

REFUSED = (401, "SignatureMismatch")


@pytest.fixture
def seen() -> list[ReceivedFire]:
    return []


@pytest.fixture
def cron(seen: list[ReceivedFire], tmp_path: Path) -> Receiver:
    return noting(seen, dedupe=f"sqlite:///{tmp_path / 'receipts.db'}", reject_stale_fence=True)


def forged(captured: Incoming, **headers: str) -> Incoming:
    """The captured request with other headers: a sender without the secret can send this."""
    changed = {name.replace("_", "-"): value for name, value in headers.items()}
    return captured._replace(headers={**captured.headers, **changed})


def by_v1(target: str = "/cron/note", body: bytes = b"", ago_s: float = 0, **headers: str) -> Incoming:
    """A request of a sender that knows only the first signature."""
    signature = sign(
        SignedRequest("POST", target, body), Secret(SECRET), clock.now() - timedelta(seconds=ago_s)
    )
    return forged(incoming("POST", target, body), x_cron_signature=signature, **headers)


def test_a_captured_request_does_not_run_again_under_another_key(
    cron: Receiver, seen: list[ReceivedFire]
) -> None:
    captured = incoming()
    assert cron.receive(captured).status == 204
    for number in range(3):
        assert error_of(cron.receive(forged(captured, idempotency_key=f"billing.note@{number}"))) == REFUSED
    assert error_of(cron.receive(forged(captured, x_cron_run_id="019ca729-0a00-7c3c-a1bb-000000000000")))
    assert dict(cron.receive(captured).headers)["Idempotent-Replayed"] == "true"
    assert [fire.key for fire in seen] == [KEY]


def test_a_forged_fence_or_attempt_is_refused_and_blocks_no_later_fire(
    cron: Receiver, seen: list[ReceivedFire]
) -> None:
    captured = incoming()
    assert error_of(cron.receive(forged(captured, x_cron_fence=str(2**53 - 1)))) == REFUSED
    assert error_of(cron.receive(forged(captured, x_cron_attempt="9"))) == REFUSED
    assert cron.receive(captured).status == 204
    assert cron.receive(incoming(claim=claim_of(key="billing.note@next", fence=8))).status == 204
    assert [fire.fence for fire in seen] == [7, 8]


def test_text_that_moves_from_one_signed_field_into_its_neighbour_is_refused(
    cron: Receiver, seen: list[ReceivedFire]
) -> None:
    """The fields of the signed text are separated by dots, and paths and keys contain dots."""
    captured = incoming(target="/cron/note?a", claim=claim_of(key="b.c"))
    moved = forged(captured, idempotency_key="c")._replace(target="/cron/note?a.b")
    assert error_of(cron.receive(moved)) == REFUSED
    run_id = captured.headers["x-cron-run-id"]
    longer_run_id = forged(captured, idempotency_key="b", x_cron_run_id=f"c.{run_id}")
    assert error_of(cron.receive(longer_run_id)) == (400, "BadFire")
    assert seen == []


def test_the_due_instant_of_a_scheduled_fire_is_the_one_in_its_signed_key(
    cron: Receiver, seen: list[ReceivedFire]
) -> None:
    assert error_of(cron.receive(forged(incoming(), x_cron_fire_time="1772330401"))) == (400, "BadFire")
    manual = claim_of(key=f"{KEY}+e24f7d35")
    assert cron.receive(forged(incoming(claim=manual), x_cron_fire_time="1772330401")).status == 204


def test_a_request_without_the_second_signature_is_refused_with_what_to_do(
    cron: Receiver, seen: list[ReceivedFire]
) -> None:
    reply = cron.receive(by_v1())
    assert error_of(reply) == (401, "MissingSignature")
    said = json.loads(reply.body)["message"]
    assert "v2=" in said and "upgrade the sender" in said and "accept_v1=True" in said
    assert seen == []


# Senders of v1 alone.


def lenient(seen: list[ReceivedFire], tmp_path: Path, **settings: Any) -> Receiver:
    return noting(seen, dedupe=f"sqlite:///{tmp_path / 'receipts.db'}", accept_v1=True, **settings)


def test_with_accept_v1_a_captured_request_runs_once_whatever_its_headers_say(
    seen: list[ReceivedFire], tmp_path: Path
) -> None:
    cron = lenient(seen, tmp_path)
    for captured in (by_v1(), incoming(target="/cron/note?v2")):
        signature = captured.headers["x-cron-signature"].partition(",v2=")[0]
        assert cron.receive(captured).status == 204
        for number in range(3):
            again = forged(captured, idempotency_key=f"{number}", x_cron_signature=signature)
            assert dict(cron.receive(again).headers)["Idempotent-Replayed"] == "true"
    assert len(seen) == 2


def test_with_accept_v1_no_fence_is_trusted(seen: list[ReceivedFire], tmp_path: Path) -> None:
    cron = lenient(seen, tmp_path)
    assert cron.receive(by_v1(x_cron_fence=str(2**53 - 1))).status == 204
    assert [fire.fence for fire in seen] == [0]
    with pytest.raises(ValueError, match="reject_stale_fence needs signed fences"):
        receiver(accept_v1=True, reject_stale_fence=True, dedupe=f"sqlite:///{tmp_path}/r.db")


def test_with_accept_v1_separately_signed_requests_are_different_requests(
    seen: list[ReceivedFire], tmp_path: Path
) -> None:
    cron = lenient(seen, tmp_path)
    for sent in (by_v1(), by_v1(ago_s=5), by_v1(body=b"x"), by_v1("/cron/note?x")):
        assert cron.receive(sent).status == 204
    assert len(seen) == 4
