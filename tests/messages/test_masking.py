"""Masking by name and by value, in text and in fields, and what stays unchanged."""

import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.manifest.secret_refs import Secret
from detent.messages.masking import MASKED, NESTING_MAX, Mask, is_secret_name

BY_NAME = Mask()

TEXTS = [
    ("password=hunter2 rest", "password=*** rest"),
    ("password = hunter2, rest", "password = ***, rest"),
    ("Password:hunter2", "Password:***"),
    ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
    ('DB_PASSWORD="hunter 2\\"x" rest', 'DB_PASSWORD="***" rest'),
    ("DB_PASSWORD='hunter 2' rest", "DB_PASSWORD='***' rest"),
    ('{"token": "hunter2", "n": 1}', '{"token": "***", "n": 1}'),
    ('{"token":"hunter2"}', '{"token":"***"}'),
    ('{"token": "hunter2 cut off', '{"token": "***"'),
    ("{'api_key': b'hunter2', 'ok': 1}", "{'api_key': ***, 'ok': 1}"),
    ('{\\"secret\\": \\"hunter2\\", \\"n\\": 1}', '{\\"secret\\": \\"***\\", \\"n\\": 1}'),
    ('"tokens": ["hunter2", "hunter3"], "n": 1', '"tokens": ***, "n": 1'),
    ("{:token => 'hunter2'}", "{:token => '***'}"),
    ("Authorization: Bearer hunter2.x", "Authorization: ***"),
    ("authorization: hunter2\r\nHost: h", "authorization: ***\r\nHost: h"),
    ('curl -H "Authorization: Bearer hunter2" url', 'curl -H "Authorization: ***" url'),
    ("{'Authorization': 'Bearer hunter2'}", "{'Authorization': '***'}"),
    ("Proxy-Authorization: Basic aHVudGVyMg==", "Proxy-Authorization: ***"),
    ("sent Bearer hunter2hunter2 to it", "sent Bearer *** to it"),
    ("Cookie: a=hunter2; b=hunter2\nnext", "Cookie: ***\nnext"),
    ("Set-Cookie: sid=hunter2; Path=/", "Set-Cookie: ***"),
    ("X-Api-Key: hunter2", "X-Api-Key: ***"),
    ("--password hunter2 --dry-run", "--password *** --dry-run"),
    ("--api-key=hunter2 x", "--api-key=*** x"),
    ("postgresql://me:hunter2@db/x", "postgresql://me:***@db/x"),
    ("redis://:hunter2@cache:6379/0", "redis://:***@cache:6379/0"),
    ("at https://me:hunter2@a and https://me:hunter2@b", "at https://me:***@a and https://me:***@b"),
    ("https://ghp_hunter2hunter2hunter2@github.com/x", "https://***@github.com/x"),
    ("https://h/x?a=1&access_token=hunter2&b=2", "https://h/x?a=1&access_token=***&b=2"),
    ("https://h/x?X-Amz-Signature=hunter2", "https://h/x?X-Amz-Signature=***"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nx",
        "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nx",
    ),
    ("-----BEGIN PRIVATE KEY-----\nhunter2, cut off", "-----BEGIN PRIVATE KEY-----***"),
]


@pytest.mark.parametrize(("text", "masked"), TEXTS)
def test_values_of_secret_names_are_masked_in_text(text: str, masked: str) -> None:
    assert "hunter2" not in masked
    assert BY_NAME.text(text) == masked
    assert BY_NAME.text(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "exit 3",
        "password is wrong",
        "unexpected token in line 3",
        "key=value",
        "primary_key=12",
        "monkey=12",
        "token_bucket=12",
        "max_tokens: 12",
        "password=",
        'password: ""',
        "token: null",
        'secret_refs=["env:SIGNER"]',
        'secret "env:SIGNER" is skipped: the environment variable SIGNER is not set',
        "no secret resolves: env:SIGNER",
        "basic authentication failed",
        "ssh://git@github.com/x",
        "https://example.com/a@b",
        "connection refused by 127.0.0.1:9",
        "2026-03-01T02:00:00Z billing.send@2026-03-01T02:00:00Z",
    ],
)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert BY_NAME.text(text) == text


NAMES = """
    password PASSWORD passwd db_password dbPassword userpassword passphrase pwd secret client_secret
    clientSecret token access_token accessToken csrfToken authtoken api_key apiKey apikey api-key
    X-Api-Key APIKey x.api.key authorization Proxy-Authorization cookie Set-Cookie private_key
    privateKey AWS_SECRET_ACCESS_KEY accessKey credential credentials aws_credentials password_hash
    secrets tokens jwt signature
"""
OTHER_NAMES = """
    key fire fence token_bucket tokenizer secretary secret_refs keyboard monkey primary_key foreign_key
    sort_key rate_key cookie_policy compass author authored_at passed bypass run_id idempotency_key x _
"""


def test_secret_names_are_recognized_in_any_spelling() -> None:
    assert [name for name in NAMES.split() if not is_secret_name(name)] == []
    assert [name for name in (*OTHER_NAMES.split(), "") if is_secret_name(name)] == []


def test_nested_fields_are_masked_by_their_names() -> None:
    fields = {
        "error": "no",
        "request": {"headers": [{"Authorization": "Bearer hunter2"}], "password": 12345, "n": 1},
        "credentials": {"user": "me", "rest": ["hunter2"]},
        "tokens": 12,
        "token": None,
        "password": "",
        "is_secret": True,
    }
    assert BY_NAME.fields(fields) == {
        "error": "no",
        "request": {"headers": [{"Authorization": MASKED}], "password": MASKED, "n": 1},
        "credentials": MASKED,
        "tokens": 12,
        "token": None,
        "password": "",
        "is_secret": True,
    }


def test_detents_own_fields_stay_and_the_argument_is_not_changed() -> None:
    mask = Mask(["hunter2"])
    fields: dict[str, Any] = {"fire": "a.b#hunter2", "key": "token=x", "fence": 7, "reason": ["hunter2"]}
    before = json.dumps(fields)
    assert mask.fields(fields) == fields | {"reason": [MASKED]}
    assert json.dumps(fields) == before


def test_a_value_that_is_not_json_is_masked_as_text() -> None:
    assert BY_NAME.fields({"error": ValueError("password=hunter2")}) == {"error": "password=***"}
    assert BY_NAME.fields({"error": b"token: hunter2"}) == {"error": "b'token: ***'"}


def test_deeply_nested_values_are_masked_as_a_whole() -> None:
    deep: Any = "hunter2"
    for _ in range(NESTING_MAX + 2):
        deep = [deep]
    assert "hunter2" not in str(BY_NAME.fields({"x": deep}))


SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=40)
AROUND = st.text(st.sampled_from("xyz {}:,"), max_size=5)


@given(SECRETS, AROUND, AROUND)
def test_a_known_secret_is_found_in_every_encoding(secret: str, before: str, after: str) -> None:
    mask = Mask([secret])
    for written in (
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
    ):
        text = before + written + after
        assert mask.knows(text)
        assert written not in mask.text(text) or written in MASKED


@given(st.binary(min_size=0, max_size=9), SECRETS, st.binary(max_size=9))
def test_a_known_secret_is_found_inside_longer_base_64(before: bytes, secret: str, after: bytes) -> None:
    content = before + secret.encode() + after
    mask = Mask([secret])
    for encoded in (b64encode(content).decode(), urlsafe_b64encode(content).decode()):
        assert mask.knows(encoded) and MASKED in mask.text(encoded)


def test_a_secret_with_special_characters_is_found() -> None:
    mask = Mask([Secret("hunter2")])
    mask.learn([Secret('line one\n"two"')])
    assert mask.text('it is hunter2 or line one\\n\\"two\\" there') == "it is *** or *** there"
    assert repr(mask).find("hunter2") < 0


def test_a_short_value_is_not_searched_for() -> None:
    assert Mask(["abc"]).text("abc abcd") == "abc abcd"
    assert Mask(["abcd"]).text("abc abcd") == "abc ***"


@given(st.text(st.sampled_from("tokenpassword=:\"'\\{}[]-@/ \n\u00e9")))
def test_masking_never_raises_and_is_idempotent(text: str) -> None:
    once = BY_NAME.text(text)
    assert BY_NAME.text(once) == once


@pytest.mark.parametrize(
    "piece",
    ["token", "token=\\", "a-", 'token="', "://", "-----BEGIN PRIVATE KEY-----", "\\", "bearer ", "--key "],
)
def test_masking_long_text_takes_linear_time(piece: str) -> None:
    """With quadratic time this would take hours."""
    assert BY_NAME.text(piece * 100_000)


# What work printed and returned.


def test_in_output_only_values_are_masked_and_other_bytes_stay() -> None:
    mask = Mask(["sesame"])
    assert mask.output(b"\xff sesame password=other") == b"\xff *** password=other"
    assert mask.output(b"\xff nothing") == b"\xff nothing"


@pytest.mark.parametrize(
    ("result", "masked"),
    [
        ('{"a": ["x long-enough-secret y"]}', '{"a": ["x *** y"]}'),
        ('["sesame"]', '["sesame"]'),  # a word: the result must stay what it was
        ("[123456789012]", '"***"'),  # no JSON any more
        ('{"token": "short"}', '{"token": "short"}'),
    ],
)
def test_in_results_only_long_secrets_are_masked(result: str, masked: str) -> None:
    assert Mask(["sesame", "long-enough-secret", "123456789012"]).result(result) == masked
