"""Signatures: known values, valid headers, and what is refused."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import SignatureError, UsageError
from detent.manifest.secret_refs import (
    BadReference,
    Secret,
    Variable,
    display_ref,
    locate_secret,
    secret_variables,
)
from detent.messages.signing import (
    Identity,
    MalformedHeader,
    MissingSignature,
    SignatureMismatch,
    SignedRequest,
    StaleTimestamp,
    sign,
    verify,
)

AT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
UNIX = 1772330400
MESSAGE = SignedRequest("POST", "/tick?a=1&b=%20", b'{"x": 1}')
KEY = Secret("s3cret")
GOOD = "0" * 64
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
METHODS = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"])
MESSAGES = st.builds(SignedRequest, METHODS, TEXTS, st.binary(), st.none())
DOTTED, NUMBERS = st.text("ab.", max_size=4), st.integers(0, 20).map(str)
IDENTITIES = st.builds(Identity, DOTTED, st.text("ab-", max_size=2), NUMBERS, NUMBERS)
IDENTIFIED = st.builds(SignedRequest, METHODS, DOTTED, st.binary(max_size=2), IDENTITIES)


# From openssl: printf '%s' '<t>.<METHOD>.<path>.<body>' | openssl dgst -sha256 -hmac '<secret>'
KNOWN = [
    (MESSAGE, "s3cret", "79f1e61ca2e58ad4b7d0ea79f65f5f8aa09321a38cc5cc2e2714d1fecc58a2c4"),
    (SignedRequest("GET", "/"), "s3cret", "ba13b99ee84e5836a36604e9dd1a6d95bb0128f6900054c3056fd8c8c8e8fcb3"),
    (
        SignedRequest("DELETE", "/a.b/c?d=ü", "grün".encode()),
        "schlüssel",
        "9c0adce3fbe127a9979a3ff2fe74db00868ab798f81fb9a9686f0efb6558443f",
    ),
]


@pytest.mark.parametrize(("message", "secret", "digest"), KNOWN)
def test_signatures_have_the_values_that_other_programs_compute(
    message: SignedRequest, secret: str, digest: str
) -> None:
    assert sign(message, Secret(secret), AT) == f"t={UNIX},v1={digest}"


# From openssl as well, over '<t>.<METHOD>.<path>.<key>.<run id>.<attempt>.<fence>.<SHA-256 of the body>'
IDENTITY = Identity("shop.tick@2026-03-01T02:00:00Z", "019ca729-0a00-7c3c-a1bb-6f6ae3bbf8a5", "2", "42")
TICK = MESSAGE._replace(identity=IDENTITY)
KNOWN_V2 = [
    (TICK, "s3cret", "0ad0a7d0ab984198b4d23c580657ba5abe76c016496c83331a5f06fff658cb53"),
    (
        SignedRequest(
            "GET", "/", b"", IDENTITY._replace(key="bestellung-ü", attempt="1", fence="9007199254740991")
        ),
        "schlüssel",
        "930eb0e757a84469b60ab9074c1b76a165cf3e0ea55105496ad00b5b5a054f86",
    ),
]


@pytest.mark.parametrize(("message", "secret", "digest"), KNOWN_V2)
def test_v2_signatures_have_the_values_that_other_programs_compute(
    message: SignedRequest, secret: str, digest: str
) -> None:
    header = sign(message, Secret(secret), AT)
    assert header == sign(message._replace(identity=None), Secret(secret), AT) + f",v2={digest}"
    assert verify(header, message, [Secret("other"), Secret(secret)], AT) == 1


@given(IDENTIFIED, IDENTIFIED)
def test_a_v2_signature_matches_no_other_request(signed: SignedRequest, other: SignedRequest) -> None:
    """Even if dots in the path and the key produce the same text."""
    if signed == other:
        assert verify(sign(signed, KEY, AT), other, [KEY], AT) == 0
    else:
        with pytest.raises(SignatureMismatch):
            verify(sign(signed, KEY, AT), other, [KEY], AT)


def test_a_request_with_an_identity_needs_both_signatures() -> None:
    v1, v2 = sign(TICK, KEY, AT).split(",")[1:]
    for header, error in {
        f"t={UNIX},{v1}": MissingSignature,
        f"t={UNIX},{v2}": MalformedHeader,
        f"t={UNIX},{v1},{v2},{v2}": MalformedHeader,
        f"t={UNIX},{v1},v2={GOOD}": SignatureMismatch,
        f"t={UNIX},v1={GOOD},{v2}": SignatureMismatch,
    }.items():
        with pytest.raises(error):
            verify(header, TICK, [KEY], AT)


def test_text_that_moves_from_the_key_into_the_path_breaks_the_signature() -> None:
    header, moved = sign(TICK, KEY, AT), IDENTITY._replace(key="tick@2026-03-01T02:00:00Z")
    with pytest.raises(SignatureMismatch):
        verify(header, TICK._replace(path=f"{TICK.path}.shop", identity=moved), [KEY], AT)


def test_the_method_is_signed_in_capitals() -> None:
    assert sign(MESSAGE._replace(method="post"), KEY, AT) == sign(MESSAGE, KEY, AT)


@given(MESSAGES, st.lists(TEXTS, min_size=1, max_size=4, unique=True), st.data())
def test_any_of_the_secrets_is_accepted_and_its_index_returned(
    message: SignedRequest, texts: list[str], data: st.DataObject
) -> None:
    # HMAC fills a short key up with zeros: such keys are the same key, and no two secrets.
    secrets = [Secret(text) for text in {text.rstrip("\0"): text for text in texts}.values()]
    index = data.draw(st.integers(0, len(secrets) - 1))
    assert verify(sign(message, secrets[index], AT), message, secrets, AT) == index


@given(MESSAGES, MESSAGES)
def test_a_signature_matches_no_other_request(signed: SignedRequest, other: SignedRequest) -> None:
    header = sign(signed, KEY, AT)
    same = _flat(signed) == _flat(other)
    if same:
        assert verify(header, other, [KEY], AT) == 0
    else:
        with pytest.raises(SignatureMismatch):
            verify(header, other, [KEY], AT)


def _flat(message: SignedRequest) -> bytes:
    return f"{message.method}.{message.path}.".encode() + message.body


def test_a_changed_time_breaks_the_signature() -> None:
    header = sign(MESSAGE, KEY, AT).replace(str(UNIX), str(UNIX + 1))
    with pytest.raises(SignatureMismatch):
        verify(header, MESSAGE, [KEY], AT)


DIGEST = hmac.new(
    b"s3cret", f"{UNIX}.POST./tick?a=1&b=%20.".encode() + MESSAGE.body, hashlib.sha256
).hexdigest()
READABLE = {
    "as sent": f"t={UNIX},v1={DIGEST}",
    "in the other order": f"v1={DIGEST},t={UNIX}",
    "with unknown segments": f"v0=abc,t={UNIX},v2=x=y,v1={DIGEST},kid=",
    "with blanks": f" t={UNIX} , v1={DIGEST} ",
}


@pytest.mark.parametrize("header", READABLE.values(), ids=READABLE.keys())
def test_segments_come_in_any_order_and_unknown_ones_are_ignored(header: str) -> None:
    assert verify(header, MESSAGE, [Secret("old"), KEY], AT) == 1


REFUSED: dict[str, tuple[str | None, type[SignatureError]]] = {
    "none": (None, MissingSignature),
    "empty": ("", MissingSignature),
    "blank": ("  ", MissingSignature),
    "no time": (f"v1={GOOD}", MalformedHeader),
    "no digest": (f"t={UNIX}", MalformedHeader),
    "two times": (f"t={UNIX},t={UNIX},v1={GOOD}", MalformedHeader),
    "two digests": (f"t={UNIX},v1={GOOD},v1={DIGEST}", MalformedHeader),
    "no equals sign": (f"t={UNIX},v1={GOOD},junk", MalformedHeader),
    "a trailing comma": (f"t={UNIX},v1={GOOD},", MalformedHeader),
    "a time with a sign": (f"t=+{UNIX},v1={GOOD}", MalformedHeader),
    "a negative time": (f"t=-{UNIX},v1={GOOD}", MalformedHeader),
    "a time with a zero before it": (f"t=0{UNIX},v1={GOOD}", MalformedHeader),
    "a time with a fraction": (f"t={UNIX}.5,v1={GOOD}", MalformedHeader),
    "a time in other digits": (f"t=١٧٧٢٣٣٠٤٠٠,v1={GOOD}", MalformedHeader),
    "an enormous time": (f"t={'9' * 400},v1={GOOD}", MalformedHeader),
    "an empty time": (f"t=,v1={GOOD}", MalformedHeader),
    "a short digest": (f"t={UNIX},v1={GOOD[1:]}", MalformedHeader),
    "a long digest": (f"t={UNIX},v1={GOOD}0", MalformedHeader),
    "a digest in capitals": (f"t={UNIX},v1={DIGEST.upper()}", MalformedHeader),
    "a digest with a newline": (f"t={UNIX},v1={GOOD}\n0", MalformedHeader),
    "a header without end": (f"t={UNIX},v1={DIGEST}," + "x=1," * 1000 + "y=2", MalformedHeader),
    "another digest": (f"t={UNIX},v1={GOOD}", SignatureMismatch),
}


@pytest.mark.parametrize(("header", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_header_is_refused_with_401(header: str | None, expected: type[SignatureError]) -> None:
    with pytest.raises(SignatureError) as caught:
        verify(header, MESSAGE, [KEY], AT)
    assert type(caught.value) is expected
    assert caught.value.status == 401  # type: ignore[attr-defined]


@given(st.text())
def test_any_other_header_raises_a_signature_error(header: str) -> None:
    with pytest.raises(SignatureError):
        verify(header, MESSAGE, [KEY], AT)


@pytest.mark.parametrize("tolerance_s", [30, 120, 300])
@pytest.mark.parametrize("direction", [-1, 1])
def test_a_signature_is_stale_beyond_the_tolerance_either_way(tolerance_s: int, direction: int) -> None:
    header = sign(MESSAGE, KEY, AT)
    edge = AT + direction * timedelta(seconds=tolerance_s)
    assert verify(header, MESSAGE, [KEY], edge, tolerance_s) == 0
    with pytest.raises(StaleTimestamp):
        verify(header, MESSAGE, [KEY], edge + direction * timedelta(milliseconds=1), tolerance_s)


@pytest.mark.parametrize("tolerance_s", [0, 29.9, 300.1, float("inf"), float("nan"), -1])
def test_a_tolerance_that_is_too_tight_or_too_wide_is_refused(tolerance_s: float) -> None:
    with pytest.raises(UsageError, match="30 to 300"):
        verify(sign(MESSAGE, KEY, AT), MESSAGE, [KEY], AT, tolerance_s)


def test_a_verifier_without_a_secret_is_a_mistake_and_not_a_mismatch() -> None:
    with pytest.raises(UsageError, match="at least one"):
        verify(sign(MESSAGE, KEY, AT), MESSAGE, [], AT)


# Secrets and their references.


def test_a_secret_is_never_shown() -> None:
    assert "s3cret" not in f"{KEY} {KEY!r} {[KEY]} {(KEY,)!s}"


@pytest.mark.parametrize("text", ["", "\udcff"])
def test_a_text_that_cannot_sign_is_not_a_secret(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Secret(text)
    assert "\udcff" not in str(caught.value)


def test_a_bare_name_is_looked_up_in_the_table_before_the_environment() -> None:
    table = {"main": "env:MAIN_KEY", "nothing": ""}
    assert locate_secret("main", table) == Variable("MAIN_KEY")
    assert locate_secret("other", table) == Variable("other")
    assert locate_secret("nothing", table) == BadReference("it is empty")


def test_a_table_may_hold_the_secret_itself() -> None:
    place = locate_secret("main", {"main": "a-long-s3cret"})
    assert isinstance(place, Secret)
    assert place.key() == b"a-long-s3cret"


def test_a_raw_reference_is_never_shown() -> None:
    assert display_ref("raw:s3cret") == "raw:…"
    assert display_ref("env:NAME") == "env:NAME"


def test_the_variables_of_secrets_are_those_that_references_and_table_name() -> None:
    table = {"main": "env:MAIN_KEY", "disk": "file:/run/key", "plain": "s3cret", "spare": "env:SPARE"}
    refs = ["env:A", "B", "main", "file:/x", "raw:c", "disk"]
    assert secret_variables(refs, table) == {"A", "B", "MAIN_KEY", "SPARE"}
