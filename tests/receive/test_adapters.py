"""What the WSGI and ASGI adapters read from a request."""

from __future__ import annotations

import io
from typing import Any

import pytest

from detent.receive import asgi, wsgi
from detent.receive.messages import gather

BODIES: dict[str, tuple[dict[str, Any], bytes | None]] = {
    "with a length": ({"CONTENT_LENGTH": "4"}, b"abcd"),
    "as much as is allowed": ({"CONTENT_LENGTH": "6"}, b"abcdef"),
    "too long": ({"CONTENT_LENGTH": "7"}, None),
    "no length: there is none": ({}, b""),
    "an empty length": ({"CONTENT_LENGTH": ""}, b""),
    "chunked, and too long": ({"wsgi.input_terminated": True}, None),
    "chunked": ({"wsgi.input_terminated": True, "wsgi.input": io.BytesIO(b"abc")}, b"abc"),
}


@pytest.mark.parametrize(("environ", "body"), BODIES.values(), ids=[*BODIES])
def test_a_wsgi_body_is_read_to_its_end_and_not_beyond(environ: dict[str, Any], body: bytes | None) -> None:
    assert wsgi.read_body({"wsgi.input": io.BytesIO(b"abcdefgh"), **environ}, 6) == body


TARGETS: dict[str, tuple[dict[str, Any], str]] = {
    "uWSGI, mod_wsgi, waitress": ({"REQUEST_URI": "/a%2Fb?x=%20"}, "/a%2Fb?x=%20"),
    "gunicorn": ({"RAW_URI": "/a%2Fb"}, "/a%2Fb"),
    "the absolute form": ({"REQUEST_URI": "http://h:80/a?u=http://i/"}, "/a?u=http://i/"),
    "the absolute form without a path": ({"REQUEST_URI": "http://h"}, "/"),
    "a URL in the query is none": ({"REQUEST_URI": "/a?u=http://i/"}, "/a?u=http://i/"),
    "quoted again": ({"SCRIPT_NAME": "/m", "PATH_INFO": "/a b", "QUERY_STRING": "x=%20"}, "/m/a%20b?x=%20"),
    "quoted again, as bytes": ({"PATH_INFO": "/ü".encode().decode("latin-1")}, "/%C3%BC"),
}


@pytest.mark.parametrize(("environ", "target"), TARGETS.values(), ids=[*TARGETS])
def test_a_wsgi_target_is_the_one_that_was_sent(environ: dict[str, Any], target: str) -> None:
    assert wsgi.target_of(environ) == target


SCOPES: dict[str, tuple[dict[str, Any], str, str]] = {
    "raw": ({"path": "/a/b", "raw_path": b"/a%2Fb", "query_string": b"x=%20"}, "/a%2Fb?x=%20", "/a/b"),
    "not raw": ({"path": "/a b", "raw_path": None}, "/a%20b", "/a b"),
    "mounted": ({"path": "/m/a", "raw_path": b"/m/a", "root_path": "/m"}, "/m/a", "/a"),
    "mounted, with a path below it": ({"path": "/a", "raw_path": b"/m/a", "root_path": "/m"}, "/m/a", "/a"),
    "not quite below": ({"path": "/mm/a", "raw_path": b"/mm/a", "root_path": "/m"}, "/mm/a", "/mm/a"),
}


@pytest.mark.parametrize(("scope", "target", "path"), SCOPES.values(), ids=[*SCOPES])
def test_an_asgi_target_is_the_one_that_was_sent(scope: dict[str, Any], target: str, path: str) -> None:
    assert (asgi.target_of(scope), asgi.path_of(scope)) == (target, path)


def test_a_repeated_signature_header_is_invalid() -> None:
    pairs = [
        (b"X-Cron-Signature", b"t=1"),
        (b"x-cron-signature", b"v1=2"),
        (b"A", "ü".encode()),
        (b"B", b"\xff"),
    ]
    assert gather(pairs) == {"x-cron-signature": "t=1,v1=2", "a": "ü", "b": "ÿ"}
