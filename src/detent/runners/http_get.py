"""Fetches one document by a signed GET: whole, within its limits, or not at all.

The rules are those of a fire's request: one request, no redirect, no proxy, a hard deadline, and no secret
in what is said of a failure.
"""

from __future__ import annotations

from detent import clock
from detent.core.secrets import Secret
from detent.core.signing import Message, sign
from detent.core.text import plural
from detent.errors import UsageError
from detent.runners.base import Lifeline
from detent.runners.http import Endpoint, explain, parse_url, trusted_roots
from detent.runners.http_answer import Answer, BrokenOff, NotHttp, Silent, read_answer
from detent.runners.http_wire import Interrupted, Watch, connect


def fetch(url: str, secret: Secret | None, *, timeout_s: float, size_max: int) -> bytes:
    """What this URL answers with status 200; else a `UsageError` says why not."""
    endpoint = parse_url(url)
    watch = Watch(Lifeline(float("inf")), timeout_s)
    try:
        return _exchange(endpoint, secret, watch, size_max)
    except Interrupted as interrupted:
        raise UsageError(f"{endpoint.place} took too long: {interrupted.outcome.reason}") from None
    except (OSError, BrokenOff, NotHttp, Silent) as error:
        raise UsageError(explain(error, endpoint.place)) from None


def _exchange(endpoint: Endpoint, secret: Secret | None, watch: Watch, size_max: int) -> bytes:
    wire = connect(endpoint.host, endpoint.port, watch)
    try:
        if endpoint.secure:
            wire.start_tls(trusted_roots(), endpoint.host)
        watch.doing = "sending"
        wire.send_all(_compose(endpoint, secret))
        watch.doing = "waiting for the answer"
        response = read_answer(wire.reader)
        _check_status(response, endpoint)
        watch.doing = "reading the answer"
        return _read(response, endpoint, size_max)
    finally:
        wire.close()


def _compose(endpoint: Endpoint, secret: Secret | None) -> bytes:
    signature = sign(Message("GET", endpoint.target), secret, clock.now()) if secret else ""
    headers = [
        ("Host", endpoint.authority),
        ("User-Agent", "detent"),
        ("Accept", "application/json"),
        ("Accept-Encoding", "identity"),
        ("Authorization", endpoint.credentials),
        ("X-Cron-Signature", signature),
        ("Connection", "close"),
    ]
    lines = [f"{name}: {value}" for name, value in headers if value]
    return "\r\n".join([f"GET {endpoint.target} HTTP/1.1", *lines, "", ""]).encode("ascii")


def _check_status(response: Answer, endpoint: Endpoint) -> None:
    if response.status == 200:
        return
    advice = {401: ": give the right secret with --secret-ref", 404: ": there is nothing at this path"}
    told = advice.get(response.status, "")
    if 300 <= response.status < 400:
        told = ": redirects are not followed; name the address that it leads to"
    raise UsageError(f"{endpoint.place} answered with status {response.status}{told}")


def _read(response: Answer, endpoint: Endpoint, size_max: int) -> bytes:
    content = b""
    while piece := response.read():
        content += piece
        if len(content) > size_max:
            raise UsageError(f"{endpoint.place} answered with more than {plural(size_max, 'byte')}")
    return content
